"""tools/check_dataset.py: report, exit codes, one plain line where nothing is usable."""
import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
from coco_builder import (
    image,
    list_rle,
    rectangle,
    square,
    square_annotation,
    tiny_dataset,
    write_coco,
)

from yolact_mx.errors import run_tool

TOOL = Path(__file__).resolve().parent.parent / "tools" / "check_dataset.py"


@pytest.fixture
def check(monkeypatch, capsys):
    """``check(arguments...)`` -> (exit code, stdout, stderr) of the tool."""
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import check_dataset

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            run_tool(check_dataset.main, [str(argument) for argument in arguments])
        return (stop.value.code, *capsys.readouterr())

    return run


def faulty(folder, entries, images=None):
    return write_coco(folder, images or [image(1)], entries), "--images", folder / "images"


def test_clean(check, tmp_path):
    folder = tiny_dataset(tmp_path)
    code, out, err = check(folder / "instances_train.json", "--images", folder / "images",
                           "--json", tmp_path / "report.json")
    assert code == 0 and err == ""
    assert "6 images: 1 without objects, 0 with crowds only" in out and "no faults found" in out
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "images": 6, "annotations": 9, "dropped": {}, "warnings": {}}


def test_crowd_only_and_empty_images_are_told_but_no_fault(check, tmp_path):  # P1
    crowd = square_annotation(2, 2, segmentation=list_rle(10, 20, 20, 20), iscrowd=1)
    entries = [square_annotation(1, 1), crowd, square_annotation(3, 4)]
    code, out, _ = check(*faulty(tmp_path, entries, [image(i) for i in range(1, 5)]))
    assert code == 0 and "1 without objects, 1 with crowds only" in out


def test_all_crowd(check, tmp_path):  # P1
    crowd = square_annotation(2, segmentation=list_rle(10, 20, 20, 20), iscrowd=1)
    code, out, err = check(*faulty(tmp_path, [crowd]))
    assert code == 2 and "1 with crowds only" in out
    assert err.startswith("error: ") and err.count("\n") == 1
    assert "all 1 annotations are crowds" in err


def test_segmentation_faults_are_counted(check, tmp_path):  # P3
    good, four = square(10, 20, 20), [60, 60, 62, 62]
    faults = [[], [[]], [four, good], [good, four], [[5, 5]], [[10, 20, 30, 20, 30, 40, 9]],
              [[10, 20] * 3], None]
    entries = [square_annotation(i, i, segmentation=value) for i, value in enumerate(faults, 1)]
    code, out, _ = check(*faulty(tmp_path, entries, [image(i) for i in range(1, 9)]),
                         "--json", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert code == 1 and report["dropped"] == {}
    assert report["warnings"] == {
        "segmentation_empty": [1, 2], "polygon_too_short": [3, 4, 5], "polygon_odd_length": [6],
        "polygon_degenerate": [7], "segmentation_missing": [8], "box_only": [1, 2, 5, 6, 7, 8]}
    assert all(reason in out for reason in report["warnings"])


def test_box_faults_are_counted(check, tmp_path):  # P6
    def entry(identity, bbox, part):
        return square_annotation(identity, identity, bbox=bbox, segmentation=[part] if part else [])

    entries = [entry(1, [10, 10, 0, 12], None), entry(2, [10, 10, 12, -4], None),
               entry(3, [10, 10, 1, 40], rectangle(10, 10, 1, 40)),
               entry(4, [-20, 10, 150, 20], rectangle(-20, 10, 150, 20)),
               entry(5, [120, 10, 20, 20], square(120, 10, 20))]
    code, _, _ = check(*faulty(tmp_path, entries, [image(i) for i in range(1, 6)]),
                       "--json", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert code == 1 and report["annotations"] == 5
    assert report["dropped"] == {"box_no_size": [1, 2], "box_outside": [5]}
    assert report["warnings"] == {"polygon_clipped": [4], "box_clipped": [4]}


def test_damaged_image_files_are_found_by_reading(check, tmp_path):
    arguments = faulty(tmp_path, [square_annotation(i, i) for i in range(1, 15)],
                       [image(i) for i in range(1, 15)])
    for i in range(1, 14):
        (tmp_path / "images" / "{:03d}.png".format(i)).write_bytes(b"" if i == 1 else b"GIF8")
    code, out, err = check(*arguments)
    assert code == 1 and err == ""
    assert "image_unusable: 13" in out and "001.png: the image file is empty" in out
    assert "... and 3 more image files" in out
    assert check(*arguments, "--no-read")[0] == 0


def test_no_readable_image(check, tmp_path):
    arguments = faulty(tmp_path, [square_annotation(1)])
    (tmp_path / "images" / "001.png").write_bytes(b"text")
    code, _, err = check(*arguments)
    assert code == 2 and "none of its 1 images can be read" in err


def test_missing_images(check, tmp_path):
    path, *_ = faulty(tmp_path, [square_annotation(1)])
    code, out, err = check(path, "--images", tmp_path / "nowhere")
    assert code == 2 and out == "" and "1 of 1 images are not in" in err and "001.png" in err


def test_unusable_file(check, tmp_path):
    code, out, err = check(tmp_path / "absent.json", "--images", tmp_path)
    assert code == 2 and out == "" and err.count("\n") == 1 and "absent.json" in err


def test_draw(check, tmp_path):
    folder = tiny_dataset(tmp_path)
    (folder / "images" / "002.png").write_bytes(b"")
    code, _, _ = check(folder / "instances_train.json", "--images", folder / "images",
                       "--draw", tmp_path / "truth")
    assert code == 1
    pictures = sorted((tmp_path / "truth").iterdir())
    assert [p.name for p in pictures] == ["000000_001.jpg", "000002_003.jpg", "000003_004.jpg",
                                          "000004_005.jpg", "000005_006.jpg"]
    assert cv2.imread(str(pictures[0])).shape == (80, 100, 3)


def test_report_that_cannot_be_written(check, tmp_path):
    code, _, err = check(*faulty(tmp_path, [square_annotation(1)]), "--json", tmp_path / "no" / "r")
    assert code == 2 and "cannot write the report" in err
    (tmp_path / "file").write_text("")
    code, _, err = check(*faulty(tmp_path, [square_annotation(1)]), "--draw", tmp_path / "file")
    assert code == 2 and "cannot write pictures" in err


def test_from_the_command_line_in_the_c_locale(tmp_path):
    entry = image(1, "图 é.png")
    path = tmp_path / "instances_train.json"
    write_coco(tmp_path, [entry], [square_annotation(1, category_id=1)])
    path.write_text(json.dumps({"images": [entry], "categories": [{"id": 1, "name": "été"}],
                                "annotations": [square_annotation("图", category_id=1, bbox=[])]},
                               ensure_ascii=False), encoding="utf-8-sig")
    (tmp_path / "images" / "图 é.png").write_bytes(b"")
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING"))}
    done = subprocess.run([sys.executable, str(TOOL), str(path), "--images",
                           str(tmp_path / "images")], env=dict(environment, LC_ALL="C"),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 2 and "图 é.png" in done.stdout.decode("utf-8")
    assert done.stderr.decode("utf-8").startswith("error: ") and done.stderr.count(b"\n") == 1
