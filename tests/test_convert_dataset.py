"""tools/convert_dataset.py: masks, boxes and classes survive; faults are counted; same bytes."""
import io
import json
import os
import shlex
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from foreign_formats import (
    SIZE,
    labelme_json,
    labelme_mask,
    labelme_shape,
    make_scenes,
    palette_png,
    picture_bytes,
    polygons_of,
    rasterise,
    write,
    write_inst,
    write_labelme,
    write_sbd,
    write_voc,
    write_yolo,
    yolo_line,
)
from PIL import Image

from yolact_mx.class_names import PASCAL
from yolact_mx.cli import data_paths
from yolact_mx.commands import check_dataset, convert_dataset
from yolact_mx.data.coco import CocoDataset
from yolact_mx.errors import run_tool

HEIGHT, WIDTH = SIZE - 8, SIZE
FIVE = list(PASCAL[:5])
NAMES = json.dumps({"names": FIVE})
SQUARE = [10, 20, 40, 20, 40, 50, 10, 50]


@pytest.fixture
def tool(capfd):
    """``tool(arguments...)`` -> (exit code, stdout, stderr)."""
    def call(*arguments, main=convert_dataset.main):
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            run_tool(main, [str(argument) for argument in arguments])
        return (stop.value.code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def scenes():
    return list(make_scenes(5))


def dataset(folder, split="train"):
    return CocoDataset(folder / "instances_{}.json".format(split), folder / "images")


def content(folder, split="train"):
    return json.loads((folder / "instances_{}.json".format(split)).read_text())


def assert_equal(folder, split, expected):
    """expected: for each picture (image or None, list of (label, mask))."""
    found = dataset(folder, split)
    assert found.report.clean and len(found) == len(expected)
    areas = iter(entry["area"] for entry in content(folder, split)["annotations"])
    for sample, (image, objects) in zip(found, expected):
        assert [found.classes[label] for label in sample.labels] == [name for name, _ in objects]
        if image is not None:
            np.testing.assert_array_equal(sample.image, image)
        for mask, box, (_, truth) in zip(sample.masks, sample.boxes, objects):
            np.testing.assert_array_equal(mask, truth)
            rows, columns = np.flatnonzero(truth.any(1)), np.flatnonzero(truth.any(0))
            tight = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            np.testing.assert_allclose(box, tight, atol=1)  # a polygon has it between pixels
            assert next(areas) == truth.sum()
        assert not sample.crowd.any()


def test_voc(tool, tmp_path, scenes):
    """Masks are exact, also with holes and hidden parts; pixels of value 255 are no object's."""
    void = np.zeros((HEIGHT, WIDTH), bool)
    void[::7] = True
    source = write_voc(tmp_path / "VOC2012", {"train": scenes[:3], "val": scenes[3:]}, void)
    code, out, err = tool("voc", source, "--out", tmp_path / "out")
    assert code == 0 and err == "" and "left out" not in out and "notes" not in out
    for split, part in (("train", scenes[:3]), ("val", scenes[3:])):
        assert_equal(tmp_path / "out", split, [
            (None, [(name, mask & ~void) for name, mask in objects]) for _, objects in part])
        result = content(tmp_path / "out", split)
        assert [c["name"] for c in result["categories"]] == list(PASCAL)
        assert [c["id"] for c in result["categories"]] == list(range(1, 21))
        assert all(isinstance(a["segmentation"], dict) for a in result["annotations"])
    both = [content(tmp_path / "out", split) for split in ("train", "val")]
    for key in ("images", "annotations"):
        ids = [entry["id"] for part in both for entry in part[key]]
        assert ids == list(range(1, len(ids) + 1))


def test_voc_of_other_classes(tool, tmp_path, scenes):
    names = ["thing"] + FIVE
    source = write_voc(tmp_path / "voc", {"train": scenes[:1]}, names=names)
    classes = write(tmp_path / "names.txt", "\ufeff" + "\r\n".join(names) + "\r\n")
    assert tool("voc", source, "--out", tmp_path, "--classes", classes)[0] == 0
    assert_equal(tmp_path, "train", [(None, scenes[0][1])])
    assert dataset(tmp_path).classes == names


def test_voc_faults(tool, tmp_path, scenes):
    source = write_voc(tmp_path / "voc", {"train": scenes + [scenes[0]]})
    objects, classes = source / "SegmentationObject", source / "SegmentationClass"
    (objects / "train_0.png").write_bytes((objects / "train_0.png").read_bytes()[:90])
    write(objects / "train_1.png", palette_png(np.ones((4, 5), np.uint8)))
    (classes / "train_2.png").unlink()
    write(objects / "train_3.png", picture_bytes(scenes[0][0]))  # a colour image
    (source / "JPEGImages" / "train_4.jpg").unlink()
    numbers, kinds = (np.zeros((HEIGHT, WIDTH), np.uint8) for _ in range(2))
    numbers[:8], numbers[8:16], numbers[16:30] = 1, 2, 3
    kinds[8:16], kinds[16:26], kinds[26:30] = 21, 5, 6
    write(objects / "train_5.png", palette_png(numbers))
    write(classes / "train_5.png", palette_png(kinds))
    code, out, _ = tool("voc", source, "--out", tmp_path / "out")
    assert code == 1
    for text in ("picture whose masks cannot be used: 4:", "train_0.png: damaged",
                 "train_1.png: 5x4 pixels, but 72x64", "train_2.png: no such file",
                 "found mode RGB", "image that is missing: 1:", "train_4.jpg",
                 "object of unknown class: 2: train_5.png object 1 (class 0); train_5.png object 2",
                 "most frequent: 1: train_5.png object 3"):
        assert text in out, (text, out)
    assert_equal(tmp_path / "out", "train", [(None, [("bottle", numbers == 3)])])


def test_sbd(tool, tmp_path, scenes):
    single = (scenes[0][0], scenes[0][1][:1])
    source = write_sbd(tmp_path / "sbd", {"train": scenes[:2] + [single], "val": scenes[3:]})
    assert tool("sbd", source, "--out", tmp_path / "out")[0] == 0
    for split, part in (("train", scenes[:2] + [single]), ("val", scenes[3:])):
        assert_equal(tmp_path / "out", split, [(None, objects) for _, objects in part])
    assert dataset(tmp_path / "out").classes == list(PASCAL)


def test_sbd_faults(tool, tmp_path, scenes):
    source = write_sbd(tmp_path / "sbd", {"train": scenes[:4]})
    numbers = np.zeros((HEIGHT, WIDTH), np.uint8)
    numbers[:20], numbers[20:30], numbers[30:40] = 1, 2, 5
    write_inst(source / "inst" / "train_0.mat", numbers, [7, 21, 3])
    write(source / "inst" / "train_1.mat", "no matlab file")
    write_inst(source / "inst" / "train_2.mat", numbers[:9], [7, 7, 7, 7, 7])
    code, out, _ = tool("sbd", source, "--out", tmp_path / "out")
    assert code == 1
    for text in ("object without a pixel: 1: train_0.mat object 3", "object of unknown class: 2:",
                 "train_1.mat: expected a MATLAB file", "expected an image of 72x9 pixels"):
        assert text in out, (text, out)
    assert_equal(tmp_path / "out", "train", [
        (None, [("car", numbers == 1)]), (None, scenes[3][1])])


def test_labelme(tool, tmp_path, scenes):
    source = write_labelme(tmp_path / "photos" / "deep", scenes)
    assert tool("labelme", tmp_path / "photos", "--out", tmp_path / "out")[0] == 0
    assert_equal(tmp_path / "out", "train", [
        (image, [(name, rasterise(polygons_of(mask))) for name, mask in objects])
        for image, objects in scenes])
    assert dataset(tmp_path / "out").classes == sorted({n for _, s in scenes for n, _ in s})
    entry = content(tmp_path / "out")["annotations"][0]
    assert entry["segmentation"] == polygons_of(scenes[0][1][0][1])  # exact
    assert content(tmp_path / "out")["images"][0]["file_name"] == "deep/0.png"
    assert (tmp_path / "out/images/deep/0.png").resolve() == (source / "0.png").resolve()


def test_labelme_shapes(tool, tmp_path, scenes):
    """Every type with an area; groups join across types; the embedded picture is written."""
    image, ring = scenes[0][0], np.zeros((HEIGHT, WIDTH), bool)
    ring[10:40, 20:60], ring[20:30, 30:50] = True, False
    far = np.zeros_like(ring)
    far[50:60, 2:9] = True
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    disc = np.hypot(x - 30, y - 25) <= 20
    shape_list = [
        labelme_shape("b", [40, 50, 10, 20], "rectangle"), labelme_shape("c", SQUARE, "rectangle"),
        labelme_shape("a", [30, 25, 30, 45], "circle"), labelme_mask("b", ring, 7),
        labelme_shape("b", SQUARE), labelme_mask("a", far), labelme_shape(" b ", [
            0, 50, 9, 50, 9, 64, 0, 64], None, 7), labelme_shape("c", [0, 0, 5, 5], "line")]
    write(tmp_path / "in" / "x.json", labelme_json(
        shape_list, "C:\\photos\\x.png", data=picture_bytes(image)))
    write(tmp_path / "in" / "other.json", {"version": 1})
    code, out, _ = tool("labelme", tmp_path / "in", "--out", tmp_path / "out")
    assert code == 1 and "shape of type 'line', which has no area: 1: x.json shapes[7]" in out
    assert "not of labelme: passed over: 1: other.json" in out
    square = rasterise([SQUARE])
    corner = rasterise([[0, 50, 9, 50, 9, 64, 0, 64]])
    found = dataset(tmp_path / "out")
    sample = found[0]
    assert [found.classes[label] for label in sample.labels] == list("bcabba")
    for i, truth in ((0, square), (1, square), (3, ring | corner), (4, square), (5, far)):
        np.testing.assert_array_equal(sample.masks[i], truth)
    # pycocotools draws an outline up to half a pixel beside it
    assert (sample.masks[2] & disc).sum() > 0.98 * (sample.masks[2] | disc).sum()
    np.testing.assert_array_equal(sample.image, image)
    assert (tmp_path / "out/images/x.png").read_bytes() == picture_bytes(image)


def test_labelme_classes(tool, tmp_path, scenes):
    write_labelme(tmp_path / "in", scenes)
    names = [name for name in FIVE if name != "bird"][::-1]
    classes = write(tmp_path / "labels.txt", "\n".join(["__ignore__", "_background_"] + names))
    code, out, _ = tool("labelme", tmp_path / "in", "--out", tmp_path, "--classes", classes)
    birds = sum(label == "bird" for _, objects in scenes for label, _ in objects)
    assert birds and code == 1
    assert "label is not among the classes: {}: ".format(birds) in out and "'bird'" in out
    assert dataset(tmp_path).classes == names


def test_labelme_faults(tool, tmp_path, scenes):
    folder, png = tmp_path / "in", picture_bytes(scenes[0][0])
    good = labelme_shape("a", SQUARE)
    bad = [7, labelme_shape("", SQUARE), dict(good, points=[[1, 2, 3]] * 4),
           dict(good, points=[[1, 2], [float("nan"), 3], [9, 9]]),
           labelme_shape("a", [10, 10, 20, 20]), labelme_shape("a", [1, 1, 9, 1, 5, 1]),
           labelme_shape("a", [5, 5, 5, 5], "circle"), labelme_shape("a", SQUARE, "circle"),
           labelme_shape("a", [5, 5, 9, 9], "mask", mask="AAAA"),
           labelme_shape("a", [5, 5, 9, 9], "mask"), labelme_shape("a", [500, 9, 600, 60],
                                                                     "rectangle")]
    for name, value in (
            ("a", labelme_json(bad + [good], "a.png")), ("b", "{"), ("c", b"\xff\xfe\x00"),
            ("d", {"shapes": 3}), ("e", labelme_json([good], "e.png")),
            ("f", labelme_json([good], "f.png", width=50)), ("g", labelme_json([good], "a.png")),
            ("h", labelme_json([good], "h.png", data=png[:500]))):
        write(folder / (name + ".json"), value)
    for name in "af":
        write(folder / (name + ".png"), png)
    code, out, _ = tool("labelme", folder, "--out", tmp_path / "out")
    lines = dict(line.strip().split(": ", 1) for line in out.splitlines()
                 if line[:2] == "  " and ": " in line)
    assert code == 1
    assert {reason: text.split(":")[0] for reason, text in lines.items()
            if text[0].isdigit()} == {
        "shape that is not a json object": "1", "shape without a label": "1",
        "shape whose points are not a list of [x, y]": "2",
        "polygon part of fewer than 6 numbers; removed": "1",
        "polygon part that covers no pixel; removed": "1", "circle without a radius": "1",
        "circle that has not two points": "1", "mask that is no image": "1",
        "embedded data that is not base64": "1", "polygon part outside the image; removed": "1",
        "file that is not json": "2", "file whose 'shapes' is not a list": "1",
        "image that is missing": "1", "picture whose name was used before": "1",
        "picture that cannot be used": "2"}
    assert "e.json: 'e.png' does not exist" in out and "expected an image of 50x64" in out
    assert sorted(os.listdir(str(tmp_path / "out" / "images"))) == ["a.png"]
    assert_equal(tmp_path / "out", "train", [(scenes[0][0], [("a", rasterise([SQUARE]))])])


LAYOUTS = {
    "folders": (["images/train", "images/val"], NAMES),
    "ultralytics": (["images/one", "images/two"], "path: ../datasets/x\ntrain: images/one\n"
                    "val: [images/two]\nnames:\n" + "".join(
                        "  {}: {}\n".format(i, name) for i, name in enumerate(FIVE))),
    "roboflow": (["train/images", "valid/images"], json.dumps(
        {"train": "../train/images", "val": "../valid/images", "nc": 5, "names": FIVE})),
    "lists": (["images/a", "images/b"], json.dumps(
        {"train": "train.txt", "val": "val.txt", "names": FIVE})),
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_yolo(tool, tmp_path, scenes, layout):
    places, settings = LAYOUTS[layout]
    source = write_yolo(tmp_path / "in", dict(zip(places, (scenes[:3], scenes[3:]))), settings)
    for name, place in zip(("train", "val"), places):
        write(source / (name + ".txt"), "\n".join("./{}/{}".format(place, name) for name in sorted(
            os.listdir(str(source / place)))))
    code, out, _ = tool("yolo", source, "--out", tmp_path / "out")
    assert code == 0 and "left out" not in out and "notes" not in out
    for split, part in (("train", scenes[:3]), ("val", scenes[3:])):
        assert_equal(tmp_path / "out", split, [
            (image, [(name, rasterise([max(polygons_of(mask), key=len)]))
                     for name, mask in objects]) for image, objects in part])
    assert dataset(tmp_path / "out").classes == FIVE


def test_yolo_faults_and_boxes(tool, tmp_path, scenes):
    source = write_yolo(tmp_path / "in", {"images": scenes[:2]}, NAMES)
    labels = ["0 0.5 0.5 0.25 0.5", "0.0 0.1 0.1 0.9 0.1 0.5 0.9", "5 0.1 0.1 0.9 0.1 0.5 0.9",
              "x 1 2", "1 0.1 0.1 0.9", "1 0.1 0.1", "2 10 10 50 10 30 40", "", "1 nan 0 1 1 1 0",
              "3 0.5 0.5 0.6 0.6 0.7 0.7"]
    write(source / "labels/images_0.txt", "\n".join(labels))
    (source / "labels/images_1.txt").unlink()
    write(source / "labels/lost.txt", labels[0])
    write(source / "labels/classes.txt", "\n".join(FIVE))
    code, out, _ = tool("yolo", source, "--out", tmp_path / "out")
    assert code == 1
    for text in ("unknown class number: 1: labels/images_0.txt:3", "not numbers: 1:",
                 "odd count of coordinates: 1: labels/images_0.txt:5",
                 "fewer than four coordinates: 1:", "not between 0 and 1: 2: labels/images_0.txt:7",
                 "covers no pixel; removed: 1: labels/images_0.txt:10",
                 "label file without a picture: 1: labels/lost.txt",
                 "box, taken as a rectangular object: 1: labels/images_0.txt:1",
                 "without a label file, taken as one without objects: 1: images/images_1.png",
                 "2 pictures (1 without objects), 2 objects", "aeroplane 2, bicycle 0"):
        assert text in out, (text, out)
    box = np.zeros((HEIGHT, WIDTH), bool)
    box[HEIGHT // 4:HEIGHT * 3 // 4, WIDTH * 3 // 8:WIDTH * 5 // 8] = True
    triangle = rasterise([[0.1 * WIDTH, 0.1 * HEIGHT, 0.9 * WIDTH, 0.1 * HEIGHT,
                           0.5 * WIDTH, 0.9 * HEIGHT]])
    assert_equal(tmp_path / "out", "train", [
        (scenes[0][0], [("aeroplane", box), ("aeroplane", triangle)]), (scenes[1][0], [])])


def test_val_share(tool, tmp_path, scenes):
    """A fixed share, and one picture more moves few of the others."""
    kinds = {}
    for count in (20, 21):
        source = write_labelme(tmp_path / str(count), [scenes[i % 5] for i in range(count)])
        out = tmp_path / "out{}".format(count)
        assert tool("labelme", source, "--out", out, "--val-share", 0.2)[0] == 0
        names = [{entry["file_name"] for entry in content(out, split)["images"]}
                 for split in ("train", "val")]
        assert len(names[1]) == 4 and len(names[0]) == count - 4 and not names[0] & names[1]
        kinds[count] = names[1]
        assert content(out, "train")["categories"] == content(out, "val")["categories"]
    assert len(kinds[20] & kinds[21]) >= 3
    code, _, err = tool("labelme", tmp_path / "20", "--out", tmp_path / "out20")
    assert code == 2 and "instances_val.json exists and would not be written again" in err


def test_same_bytes(tool, tmp_path, scenes):
    """Whatever the order of the files in a folder, and again into the same folder."""
    sources = {"voc": write_voc(tmp_path / "v", {"train": scenes[:2], "val": scenes[2:]}),
               "sbd": write_sbd(tmp_path / "s", {"train": scenes[:2]}),
               "labelme": write_labelme(tmp_path / "l", scenes[:3]),
               "yolo": write_yolo(tmp_path / "y", {"images": scenes[:3]}, NAMES)}
    for kind, source in sources.items():
        results = []
        for out in (tmp_path / "1", tmp_path / "2", tmp_path / "2", source):
            assert tool(kind, source, "--out", out / kind)[0] == 0
            results.append({path.name: path.read_bytes() for path in (out / kind).glob("*.json")})
        assert results[0] and results[0] == results[1] == results[2]
    source = sources["yolo"]  # into itself: the pictures are where they belong
    assert tool("yolo", source, "--out", source)[0] == 0
    assert not any(path.is_symlink() for path in (source / "images").iterdir())
    assert (source / "instances_train.json").read_bytes() == (
        tmp_path / "1/yolo/instances_train.json").read_bytes()


@pytest.mark.parametrize("kind", ["labelme", "yolo"])
@pytest.mark.parametrize("turned", [True, False])
def test_exif_orientation(tool, tmp_path, kind, turned):
    """Sizes are those of the picture as it is read; labelme's json may say it was not turned."""
    picture = Image.fromarray(np.random.RandomState(0).randint(0, 255, (40, 60, 3), np.uint8))
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    picture.save(file, "JPEG", exif=exif)
    width, height = (40, 60) if turned or kind == "yolo" else (60, 40)
    polygon = [2, 4, 30, 4, 30, 34, 2, 34]
    write(tmp_path / "in/images/a.jpg", file.getvalue())
    write(tmp_path / "in/labels/a.txt", yolo_line(0, polygon, height, width))
    write(tmp_path / "in/data.yaml", NAMES)
    write(tmp_path / "in/images/a.json", labelme_json(
        [labelme_shape("aeroplane", polygon)], "a.jpg", width, height))
    assert tool(kind, tmp_path / "in", "--out", tmp_path / "out")[0] == 0
    found = dataset(tmp_path / "out")
    assert found.size(0) == (width, height) and found[0].image.shape == (height, width, 3)
    np.testing.assert_array_equal(found[0].masks[0], rasterise([polygon], height, width))


def test_fits_the_other_commands(tool, tmp_path, scenes):
    """The folder is what --data takes, and the command that is printed finds no fault."""
    source = write_voc(tmp_path / "a b", {"train": scenes[:2], "val": scenes[2:]})
    _, out, _ = tool("voc", source, "--out", tmp_path / "my data")
    (train, images), val = data_paths(Namespace(data=str(tmp_path / "my data")))
    assert len(CocoDataset(train, images)) == 2 and len(CocoDataset(*val)) == 3
    commands = [shlex.split(line) for line in out.splitlines() if "tools/check_dataset" in line]
    assert len(commands) == 2
    for words in commands:
        code, report, _ = tool(*words[1:], main=check_dataset.main)
        assert code == 0 and "no faults found" in report


def test_pictures_are_neither_overwritten_nor_needed_as_links(tool, tmp_path, scenes, monkeypatch):
    source = write_labelme(tmp_path / "in", scenes[:2])
    write(tmp_path / "out/images/0.png", "mine")
    (tmp_path / "out/images/1.png").symlink_to(tmp_path / "gone.png")
    code, out, _ = tool("labelme", source, "--out", tmp_path / "out")
    assert code == 1 and "0.png: exists and is another picture" in out
    assert (tmp_path / "out/images/0.png").read_text() == "mine" and len(dataset(
        tmp_path / "out")) == 1

    def refuse(self, target):
        raise PermissionError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for _ in range(2):  # the copies are known again
        assert tool("labelme", source, "--out", tmp_path / "copied")[0] == 0
    assert not (tmp_path / "copied/images/0.png").is_symlink()
    assert len(dataset(tmp_path / "copied")) == 2


def test_the_same_picture_in_both_splits_is_told(tool, tmp_path, scenes):
    source = write_yolo(tmp_path / "in", {"images": scenes[:2]}, json.dumps(
        {"train": "images", "val": "images", "names": FIVE}))
    code, out, _ = tool("yolo", source, "--out", tmp_path / "out")
    assert code == 0 and "picture both in train and in val: 2: images_0.png" in out


def test_mistakes(tool, tmp_path, scenes):
    """One plain line on stderr, exit code 2, no json."""
    out = tmp_path / "out"
    empty, picture = tmp_path / "empty", picture_bytes(scenes[0][0])
    empty.mkdir()
    for name, settings in (("yolo", None), ("twice", '{"names": ["a", "a"]}'),
                           ("list", "- a"), ("broken", "names: ["), ("nc", "names: 3"),
                           ("lost", '{"train": "no/images", "names": ["a"]}'), ("good", NAMES)):
        write_yolo(tmp_path / name, {"images": scenes[:1]}, settings)
    write(tmp_path / "bare/data.yaml", NAMES)
    write(tmp_path / "line/a.json", labelme_json([labelme_shape("a", [1, 1, 9, 9], "line")], "a"))
    write(tmp_path / "line/a", picture)
    write(tmp_path / "gap.txt", "a\n\nb\n")
    write(tmp_path / "none.txt", "")
    voc = write_voc(tmp_path / "voc", {"val": scenes[:1]})
    cases = [
        (("voc", tmp_path / "no"), "no: expected a folder"),
        (("voc", empty), "expected the folders JPEGImages, SegmentationObject, Seg"),
        (("sbd", empty), "missing: img, inst"),
        (("labelme", empty), "expected labelme's .json files there"),
        (("labelme", tmp_path / "line"), "nothing usable: 1 pictures could be read"),
        (("yolo", tmp_path / "yolo"), "expected the class names under 'names' in data.yaml"),
        (("yolo", tmp_path / "twice"), "the class name 'a' occurs more than once"),
        (("yolo", tmp_path / "list"), "expected keys such as names"),
        (("yolo", tmp_path / "broken"), "data.yaml: not valid yaml"),
        (("yolo", tmp_path / "nc"), "'names' must be a list of names"),
        (("yolo", tmp_path / "lost"), "train: 'no/images' is not there"),
        (("yolo", tmp_path / "bare"), "expected pictures in its folder images"),
        (("voc", voc, "--val-share", 0.5), "has splits of its own (val)"),
        (("voc", voc, "--classes", tmp_path / "gap.txt"), "on each line, line 2 is empty"),
        (("voc", voc, "--classes", tmp_path / "none.txt"), "on each line, line 1 is empty"),
        (("voc", voc, "--classes", tmp_path / "no.txt"), "no.txt: cannot be opened"),
        (("yolo", tmp_path / "good", "--out", tmp_path / "gap.txt"), "Not a directory"),
    ]
    for arguments, text in cases:
        code, _, err = tool(*(arguments if "--out" in arguments else arguments + ("--out", out)))
        assert code == 2 and err.startswith("error: ") and err.count("\n") == 1, (arguments, err)
        assert text in err, (arguments, err)
    assert not list(out.glob("*.json"))
    for arguments in (("coco", voc, "--out", out), ("voc", voc), ("voc", voc, "--out", out,
                                                                 "--val-share", "1.5")):
        code, _, err = tool(*arguments)
        assert code == 2 and err.startswith("usage: ")


def test_script(tmp_path, scenes):
    import subprocess

    source = write_labelme(tmp_path / "in", scenes[:1])
    script = Path(__file__).resolve().parent.parent / "tools" / "convert_dataset.py"
    done = subprocess.run([sys.executable, str(script), "labelme", str(source), "--out",
                           str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stderr == b""
