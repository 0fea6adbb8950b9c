"""The command-line tools, through main(argv): the whole way, and every mistake in one line."""
import json
import logging
import os
import shutil
from pathlib import Path

import cv2
import mxnet as mx
import numpy as np
import pytest
from coco_builder import tiny_dataset
from pycocotools import mask as mask_utils
from tiny import CLASSES, ROOT

from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.errors import run_tool

pytest_plugins = ("tiny_fixtures",)
TOOLS = sorted(path.stem for path in (ROOT / "tools").glob("*.py"))
ANY_SCORE = "detect.score_threshold=0.001"


@pytest.fixture
def val(tiny_run):
    """Arguments that name the validation set."""
    return ("--ann", tiny_run.data / "instances_val.json", "--images", tiny_run.data / "images")


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def perfect_results(path):
    """A COCO results list that finds every object of an annotation file exactly."""
    truth = CocoDataset(path).coco_ground_truth()
    return [{"image_id": entry["image_id"], "category_id": entry["category_id"], "score": 0.9,
             "bbox": entry["bbox"], "segmentation": entry["segmentation"]}
            for entry in truth["annotations"]]


@pytest.mark.parametrize("name", TOOLS)
def test_help(tool, name):
    code, out, err = tool(name, "--help")
    assert code == 0 and err == ""
    assert out.startswith("usage: ") and "--help" in out and len(out.splitlines()) > 8


@pytest.mark.parametrize("exported", [False, True])
def test_eval(tool, tiny_run, tiny_export, val, tmp_path, exported):  # P2
    """Result files have the ids of the json; a class without objects is n/a and in no mean."""
    source = [str(tiny_export) + "-symbol.json"] if exported else [tiny_run.folder, ANY_SCORE]
    code, out, _ = tool("eval", *source, *val, "--out", tmp_path / "eval", "--batch", 2)
    assert code == 0 and "results and metrics: {}".format(tmp_path / "eval") in out
    assert out.count("Average Precision") == out.count("Average Recall") == 6
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert [rows[name][0] for name in CLASSES] == ["2", "0", "1", "1"]
    assert rows["unused"][2:] == ["n/a"] * 4
    assert all(0 <= float(rows[name][2]) <= 1 for name in ("square", "disc", "bar"))
    metrics = read(tmp_path / "eval" / "metrics.json")
    per_class = {row["name"]: row["segm"]["AP"] for row in metrics["per_class"]}
    assert per_class.pop("unused") is None
    assert metrics["segm"]["AP"] == pytest.approx(np.mean(list(per_class.values())))
    for kind, key in (("bbox", "bbox"), ("segm", "segmentation")):
        results = read(tmp_path / "eval" / "results_{}.json".format(kind))
        assert results and all(key in result for result in results)
        assert {result["category_id"] for result in results} <= {0, 3, 7, 90}
        assert {result["image_id"] for result in results} <= {11, 12, 13}


def test_eval_beside_the_run(tool, tiny_run, val):
    assert tool("eval", tiny_run.folder, *val)[0] == 0
    assert sorted(os.listdir(str(tiny_run.folder / "eval"))) == [
        "metrics.json", "results_bbox.json", "results_segm.json"]
    shutil.rmtree(str(tiny_run.folder / "eval"))


def test_eval_of_a_results_file(tool, tiny_run, tmp_path):
    truth, file = tiny_run.data / "instances_val.json", tmp_path / "results.json"
    results = perfect_results(truth)
    file.write_text(json.dumps(results))
    code, out, _ = tool("eval", "--results", file, "--ann", truth, "--out", tmp_path / "a")
    metrics = read(tmp_path / "a" / "metrics.json")
    assert code == 0 and metrics["bbox"]["AP"] == metrics["segm"]["AP"] == 1
    assert os.listdir(str(tmp_path / "a")) == ["metrics.json"]
    file.write_text(json.dumps([r for r in results if r["category_id"] != 7]))
    code, out, _ = tool("eval", "--results", file, "--ann", truth)
    assert code == 0 and "results and metrics" not in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert [rows[name][2] for name in CLASSES] == ["1.000", "n/a", "0.000", "1.000"]
    assert out.splitlines()[1].split()[-2:] == ["0.667", "0.667"]  # the mean of three classes


def test_nothing_found(tool, tiny_run, tmp_path):  # P4
    """A black image, and no score that is high enough: AP 0 and empty results."""
    data = shutil.copytree(str(tiny_run.data), str(tmp_path / "data"))
    images, truth = os.path.join(data, "images"), os.path.join(data, "instances_val.json")
    pictures = [os.path.join(images, "0{}.png".format(i)) for i in (11, 12, 13)]
    cv2.imwrite(pictures[0], np.zeros((80, 100, 3), np.uint8))
    code, out, err = tool("eval", tiny_run.folder, "--ann", truth, "--images", images, "--out",
                          tmp_path / "eval", "detect.score_threshold=1.1")
    assert code == 0 and "Traceback" not in err and "0.000" in out and "-1.0" not in out
    metrics = read(tmp_path / "eval" / "metrics.json")
    assert metrics["bbox"]["AP"] == metrics["segm"]["AP"] == 0.0
    for kind in ("bbox", "segm"):
        assert (tmp_path / "eval" / "results_{}.json".format(kind)).read_text() == "[]"
    code, out, err = tool("predict", tiny_run.folder, *pictures, "--out", tmp_path / "drawn",
                          "--threshold", 1.1, "--json", tmp_path / "found.json")
    assert code == 0 and "Traceback" not in err and "3 pictures, 0 instances" in out
    assert (tmp_path / "found.json").read_text() == "[]"
    for path in pictures:  # the drawings are the pictures
        drawn = cv2.imread(str(tmp_path / "drawn" / os.path.basename(path)))
        np.testing.assert_array_equal(drawn, cv2.imread(path))


def test_export_prints_what_it_compared(tool, tiny_run, tmp_path):
    code, out, _ = tool("export", tiny_run.folder, tmp_path / "m", "--composed-dcn",
                        "detect.max_detections=7", "detect.nms=greedy")
    assert code == 0 and "equal to the live network" in out
    assert read(tmp_path / "m.json")["outputs"]["boxes"] == [None, 7, 4]


def test_predict(tool, tiny_export, tiny_run, tmp_path, caplog):
    folder = tmp_path / "pictures"
    shutil.copytree(str(tiny_run.data / "images"), str(folder))
    arguments = (str(tiny_export) + "-symbol.json", folder, "--out", tmp_path / "drawn",
                 "--threshold", 0.01, "--top-k", 3, "--json", tmp_path / "found.json")
    code, out, _ = tool("predict", *arguments)
    found = read(tmp_path / "found.json")
    assert code == 0 and "9 pictures, {} instances".format(len(found)) in out and found
    assert len(os.listdir(str(tmp_path / "drawn"))) == 9
    assert {item["category"] for item in found} <= set(CLASSES)
    assert max(sum(item["file"] == name for item in found) for name in os.listdir(str(folder))) <= 3
    assert mask_utils.decode(found[0]["segmentation"]).shape == (80, 100)
    (folder / "bad.png").write_text("no picture")
    code, out, _ = tool("predict", *arguments)
    assert code == 1 and "9 pictures" in out and "1 pictures could not be read" in out
    assert "bad.png" in caplog.text


def test_train_with_separate_files_and_pretrained(tool, tiny_run, tmp_path, caplog):
    """Fine-tuning starts at step 0; without validation files there are no metrics."""
    caplog.set_level(logging.INFO)
    code, out, _ = tool(
        "train", tiny_run.config, "--train-ann", tiny_run.data / "instances_train.json",
        "--train-images", tiny_run.data / "images", "--out", tmp_path / "run", "--steps", 1,
        "--pretrained", tiny_run.folder / "best.params", "--no-augment", "train.lr=1e-4",
        "train.batch_size=1")
    assert code == 0 and "weights and log: {}".format(tmp_path / "run") in out
    assert "Average Precision" not in out
    total = len(mx.nd.load(str(tiny_run.folder / "best.params")))
    assert "{0} of {0} parameters loaded".format(total) in caplog.text
    assert "6 images, 4 classes; 1 steps of 1 images, lr 0.0001" in caplog.text
    assert read(tmp_path / "run" / "log.jsonl")["step"] == 1
    config = load_config(tmp_path / "run" / "config.yml")
    assert config.train.lr == 1e-4 and config.train.batch_size == 1 and config.classes == CLASSES


def edited(path, change):
    content = read(path)
    change(content)
    Path(path).write_text(json.dumps(content))


def test_mistakes(tool, tiny_run, tmp_path, val):
    """One plain line on stderr, exit code 2, nothing written."""
    data = tiny_dataset(tmp_path / "data")  # has three of the four classes
    renamed, lost = tiny_dataset(tmp_path / "renamed"), tiny_dataset(tmp_path / "lost")
    edited(renamed / "instances_val.json",
           lambda content: content["categories"][0].update(name="rod"))
    (lost / "images" / "002.png").unlink()
    (tmp_path / "list.json").write_text('{"a": 1}')
    (tmp_path / "file").write_text("")
    run, config, out = tiny_run.folder, tiny_run.config, tmp_path / "out"
    on = (config, "--data", data, "--out", out)
    cases = [
        ("train", ("shape", "--data", data), "'shape' not found (did you mean 'shapes'?)"),
        ("train", on + ("train.lrr=1",), "unknown key 'train.lrr'; did you mean 'train.lr'?"),
        ("train", (config, "--out", out), "name the data: --data DIR"),
        ("train", (config, "--data", tmp_path / "no"), "expected instances_train.json there"),
        ("train", (config, "--train-ann", tmp_path / "no.json", "--train-images", data), "no.json"),
        ("train", (config, "--train-ann", data / "instances_train.json", "--train-images", data,
                   "--val-ann", "x.json"), "--val-ann and --val-images go together"),
        ("train", (config, "--data", lost), "1 of 6 images are not in"),
        ("train", (config, "--data", renamed, "--out", out),
         "missing: 'bar'; not expected: 'rod'"),
        ("train", on + ("classes=[a, b]",), "missing: 'a', 'b'; not expected"),
        ("train", on + ("--ctx", "tpu"), "--ctx: expected cpu, gpu:0"),
        ("train", on + ("--ctx", "gpu:x"), "--ctx: expected cpu, gpu:0"),
        ("train", on + ("--ctx", "gpu:99"), "--ctx gpu:99: this MXNet sees"),
        ("train", on + ("--ctx", "cpu:0,1", "train.batch_size=3"), "multiple of 2 (devices"),
        ("train", on + ("train.batch_size=7",), "at most the 6 training images, found 7"),
        ("train", on + ("input.size=32",), "key 'input.size': expected at least 64"),
        ("train", on + ("model.mask_iou=[8,8,8,8]",), "key 'model.mask_iou'"),
        ("train", on + ("model.backbone.name=resnet",), "key 'model.backbone.name'"),
        ("train", on + ("model.backbone.weights=no.params",), "no.params"),
        ("train", on + ("--pretrained", "no.params"), "weights 'no.params' cannot be read"),
        ("train", on + ("--resume",), "has no checkpoint to resume from"),
        ("eval", val, "name a network and --images DIR, or --results FILE"),
        ("eval", (tmp_path / "nowhere",) + val, "nowhere' does not exist"),
        ("eval", (run, "--ann", data / "instances_val.json", "--images", data / "images"),
         "missing: 'unused'; not expected: none"),
        ("eval", ("--results", tmp_path / "list.json") + val[:2], "list.json"),
        ("eval", ("--results", tmp_path / "no.json") + val[:2], "no.json"),
        ("export", (tmp_path / "nowhere", out / "m"), "nowhere' does not exist"),
        ("export", (run, tmp_path / "file" / "m"), "File exists"),
        ("predict", (run, tmp_path / "no.png"), "no.png' does not exist"),
        ("predict", (run, tmp_path), "holds no picture"),
        ("predict", (run, data / "images", "--out", data / "images"), "would overwrite"),
        ("predict", (run, data / "images" / "001.png", "--out", tmp_path / "drawn", "--json",
                     tmp_path / "no" / "found.json"), "No such file or directory"),
    ]
    for name, arguments, text in cases:
        code, _, err = tool(name, *arguments)
        assert code == 2 and "Traceback" not in err, (arguments, err)
        last = err.splitlines()[-1]
        assert last.startswith("error: ") and text in last, (arguments, err)
        assert err.count("error: ") == 1
    assert not out.exists()


@pytest.mark.parametrize("name, arguments", [
    ("train", ("shapes", "--steps", "0")), ("train", ("shapes", "--epochs", "-1")),
    ("train", ("shapes", "--steps", "1", "--epochs", "1")),
    ("train", ("shapes", "--resume", "--pretrained", "a")),
    ("eval", ("run", "--ann", "a", "--batch", "0")), ("eval", ("run",)),
    ("eval", ("run", "--ann", "a", "--results", "b")),
    ("predict", ("run", "a.png", "--top-k", "none"))])
def test_mistakes_of_the_command_line(tool, name, arguments):
    code, _, err = tool(name, *arguments)
    assert code == 2 and err.startswith("usage: ") and ": error: " in err.splitlines()[-1]


def test_what_is_no_mistake_of_the_user_is_shown_in_full():
    def bug(argv):
        raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError):
        run_tool(bug)


def test_interrupted_and_finished(capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    for main, code in ((interrupted, 130), (lambda argv: None, 0), (lambda argv: 1, 1)):
        with pytest.raises(SystemExit) as stop:
            run_tool(main)
        assert stop.value.code == code
    assert capsys.readouterr().err == "interrupted\n"
