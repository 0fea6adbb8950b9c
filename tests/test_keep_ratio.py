"""``input.keep_ratio`` from the first step of a training to the exported graph."""
import json
import logging
import subprocess
import sys

import cv2
import mxnet as mx
import numpy as np
import pytest
from coco_builder import CATEGORIES, image, rectangle, write_coco
from tiny import ROOT, assert_close, log_lines, losses, run, weights, write_config

from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.images import read_image
from yolact_mx.data.loader import build_loader
from yolact_mx.detect import OUTPUTS
from yolact_mx.predict import find_weights, load_predictor
from yolact_mx.trainer import Trainer
from yolact_mx.training_data import build_batches, build_samples

pytest_plugins = ("tiny_fixtures",)
ON = "input.keep_ratio=true"
# Of input.size 64: 5:4 goes to 6:5, 70 x 58; 3:5 to 9:16, 48 x 85
WIDE, HIGH = (58, 70), (85, 48)
SIZES = {WIDE: (100, 80), HIGH: (60, 100)}
ANY_SCORE = "detect.score_threshold=0.001"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folder of five wide and four high pictures for training, two and one for validation."""
    folder = tmp_path_factory.mktemp("ratios")
    for name, wide, high, start in (("train", 5, 4, 0), ("val", 2, 1, 20)):
        sizes = [SIZES[WIDE]] * wide + [SIZES[HIGH]] * high
        images = [image(start + i, width=w, height=h) for i, (w, h) in enumerate(sizes)]
        objects = []
        for i, entry in enumerate(images):
            box = [10 + i, 20 + i, 24, 30]
            objects.append({
                "id": i + 1, "image_id": entry["id"], "category_id": CATEGORIES[i % 3]["id"],
                "segmentation": [rectangle(*box)], "bbox": box, "area": 720, "iscrowd": 0})
        write_coco(folder, images, objects, name="instances_{}.json".format(name))
    return folder


@pytest.fixture(scope="module")
def train_set(data):
    return CocoDataset(data / "instances_train.json", data / "images")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Run folder of tools/train.py: five steps with two loader processes, and a validation."""
    folder = tmp_path_factory.mktemp("run")
    assert run("train", write_config(folder), "--data", data, "--out", folder / "run",
               "--steps", 5, ON, "train.workers=2") == 0
    return folder / "run"


def tiny_config(folder, *overrides):
    return load_config(write_config(folder), (ON,) + overrides)


def test_samples_of_both_shapes(train_set, tmp_path):
    """Without augmentation an image is its picture, resized to its shape; objects move along."""
    samples = build_samples(tiny_config(tmp_path), train_set, augmented=False)
    for index, (height, width), proto_size in ((0, WIDE, (16, 18)), (5, HIGH, (22, 12))):
        sample = samples[0, index]
        assert sample["image"].shape == (3, height, width)
        assert sample["masks"].shape == (1,) + proto_size
        (w, h), x, y = SIZES[height, width], 10 + index, 20 + index
        np.testing.assert_allclose(
            sample["boxes"], [[x / w, y / h, (x + 24) / w, (y + 30) / h]], rtol=1e-6)
        inside = np.argwhere(sample["masks"][0])
        low, high = inside.min(axis=0) / proto_size, (inside.max(axis=0) + 1) / proto_size
        np.testing.assert_allclose(low, [y / h, x / w], atol=0.06)
        np.testing.assert_allclose(high, [(y + 30) / h, (x + 24) / w], atol=0.06)
        assert (sample["match"] > 0).any()


def test_loader_processes_share_memory_between_shapes(train_set, tmp_path):
    config = tiny_config(tmp_path)
    samples, order = build_samples(config, train_set), build_batches(config, train_set, 0, 9)
    alone, shared = (list(build_loader(samples, order, count)) for count in (0, 2))
    assert {batch["images"].shape[1:] for batch in alone} == {(3,) + WIDE, (3,) + HIGH}
    for ours, theirs in zip(shared, alone):
        assert ours["image_ids"] == theirs["image_ids"]
        np.testing.assert_array_equal(ours["images"].asnumpy(), theirs["images"].asnumpy())


def test_what_is_said_about_shapes(train_set, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    build_batches(tiny_config(tmp_path), train_set, 0, 9)
    assert "input.keep_ratio: 5 images of 70x58, 4 images of 48x85" in caplog.text
    assert "not trained on" not in caplog.text
    build_batches(tiny_config(tmp_path), train_set, 0, 1)
    assert "7 of 9 images are not trained on in these 1 steps" in caplog.text


def test_training_and_evaluation(trained, data, tool, tmp_path):
    assert np.isfinite(losses_of_steps(trained)).all()
    assert log_lines(trained)[-1]["val"]["segm"]["AP"] is not None
    found = []
    for batch in (1, 3):
        code, out, err = tool("eval", trained, "--ann", data / "instances_val.json", "--images",
                              data / "images", "--out", tmp_path, "--batch", batch, ANY_SCORE)
        assert code == 0, err
        found.append(json.loads((tmp_path / "metrics.json").read_text())["segm"])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def losses_of_steps(folder):
    lines = [line for line in log_lines(folder) if "loss" in line]
    assert len(lines) == 5
    return np.array([list(line["loss"].values()) for line in lines])


@pytest.fixture
def build(train_set, tmp_path):
    """``build(name of the run folder, steps, devices)`` -> Trainer."""
    def trainer(out, steps, devices=1):
        config, contexts = tiny_config(tmp_path), [mx.cpu(i) for i in range(devices)]
        config.classes = list(train_set.classes)
        return Trainer(config, train_set, None, tmp_path / out, contexts, steps)

    return trainer


def test_several_devices_equal_one(build, tmp_path):
    one, two = build("one", 3), build("two", 3, 2)
    one.fit(), two.fit()
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-5)
    assert_close(weights(two), weights(one), 1e-5)


def test_resumed_equals_uninterrupted(build, tmp_path):
    whole = build("whole", 4)
    whole.fit()
    build("part", 2).fit()
    again = build("part", 4)
    again.resume()
    again.fit()
    assert again.step == 4
    assert_close(weights(again), weights(whole), 1e-6)
    np.testing.assert_allclose(losses(tmp_path / "part"), losses(tmp_path / "whole"), rtol=1e-5)


def test_pictures_of_both_shapes_at_once(trained, data):
    """Results come in the order of the pictures, and are those of each alone."""
    predictor = load_predictor(trained, overrides=[ANY_SCORE])
    pictures = [read_image(data / "images" / "{:03d}.png".format(i)) for i in (22, 20, 0, 5, 21)]
    assert [predictor.prepare(p).shape[1:] for p in pictures] == [HIGH, WIDE, WIDE, HIGH, WIDE]
    together = predictor(pictures)
    assert sum(map(len, together)) > 20
    for found, picture in zip(together, pictures):
        (alone,) = predictor([picture])
        assert len(found) == len(alone)
        for name in OUTPUTS:
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), atol=1e-4)


def test_predict(trained, data, tool, tmp_path):
    code, out, err = tool("predict", trained, data / "images", "--out", tmp_path / "drawn",
                          "--json", tmp_path / "found.json", "--threshold", 0.01)
    assert code == 0 and len(list((tmp_path / "drawn").iterdir())) == 12, err
    for path in (tmp_path / "drawn").iterdir():
        assert cv2.imread(str(path)).shape == cv2.imread(str(data / "images" / path.name)).shape


def test_export_of_one_shape(trained, data, tool, tmp_path):
    prefix, picture = tmp_path / "wide", data / "images" / "000.png"
    code, out, err = tool("export", trained, prefix, "--size", "70x58", ANY_SCORE)
    assert code == 0 and "equal to the live network" in out, err
    entry = json.loads((tmp_path / "wide.json").read_text())["input"]
    assert (entry["size"], entry["width"], entry["height"]) == (64, 70, 58)
    exported = load_predictor(str(prefix) + "-symbol.json")
    live = load_predictor(trained, overrides=[ANY_SCORE])
    (ours,), (theirs,) = exported([read_image(picture)]), live([read_image(picture)])
    assert len(ours) == len(theirs) > 5 and ours.masks.shape[1:] == (16, 18)
    for name in OUTPUTS:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-4)
    # any other picture is resized to the one shape
    assert exported.prepare(read_image(data / "images" / "005.png")).shape == (3,) + WIDE
    printed = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "mxnet_predict.py"), str(prefix), str(picture),
         "--out", str(tmp_path), "--threshold", "0.01"],
        stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    assert "000.png: {} instances".format(int((ours.mask_scores > 0.01).sum())) in printed


def test_export_is_of_the_square_by_default(trained, tool, tmp_path):
    assert tool("export", trained, tmp_path / "model")[0] == 0
    entry = json.loads((tmp_path / "model.json").read_text())["input"]
    assert entry["width"] == entry["height"] == 64


def test_onnx_export_of_one_shape(trained, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from yolact_mx.export_onnx import export_onnx

    weights_file, config = find_weights(trained, overrides=[ANY_SCORE])
    assert export_onnx(config, weights_file, tmp_path / "model", image_size=HIGH) < 1e-4
    entry = json.loads((tmp_path / "model.json").read_text())["input"]
    assert (entry["width"], entry["height"]) == HIGH[::-1]


def test_sizes_that_cannot_be_exported(trained, tiny_run, tool, tmp_path):
    code, _, err = tool("export", tiny_run.folder, tmp_path / "model", "--size", "70x58")
    assert code == 2 and "--size is for networks with input.keep_ratio" in err
    for text in ("70", "70x", "10x58"):
        code, _, err = tool("export", trained, tmp_path / "model", "--size", text)
        assert code == 2 and "expected WIDTHxHEIGHT" in err and "'{}'".format(text) in err
    code, _, err = tool("export", trained, tmp_path / "model", "--size", "70x58",
                        "model.mask_iou=[4, 8, 8, 8, 8]")
    assert code == 2 and "model.mask_iou" in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())
