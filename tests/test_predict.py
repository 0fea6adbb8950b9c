"""From pictures to detections and drawings, and what is said when that is not possible."""
import json
import os
import shutil

import cv2
import mxnet as mx
import numpy as np
import pytest
from coco_builder import CATEGORIES, image, read_coco
from pycocotools import mask as mask_utils
from tiny import CLASSES

from yolact_mx.checkpoint import latest_checkpoint
from yolact_mx.errors import CheckpointError, ConfigError, DatasetError
from yolact_mx.predict import Predictor, find_pictures, find_weights, load_predictor, predict_files

pytest_plugins = ("tiny_fixtures",)


def graph(images):
    """Two detections an image, of which the first's score is the image's mean / 1000; padding."""
    count = images.shape[0]
    brightness = images.asnumpy().mean(axis=(1, 2, 3)) / 1000
    boxes = np.tile([[0.5, 0.25, 1.0, 0.75], [0, 0, 0.5, 0.5], [0, 0, 0, 0]], (count, 1, 1))
    scores = np.stack([brightness, np.full(count, 0.1), np.full(count, -1)], axis=1)
    masks = np.zeros((count, 3, 8, 8), np.float32)
    masks[:, 0, 2:6, 4:] = masks[:, 1, :4, :4] = 1
    classes = np.tile([1, 0, -1], (count, 1))
    return [boxes.astype(np.float32), scores, scores, classes, masks]


@pytest.fixture
def predictor():
    return Predictor(graph, ["cat", "dog"], 16, mx.cpu())


def write_picture(path, value=200, width=40, height=20):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), np.full((height, width, 3), value, np.uint8))
    return path


def test_pictures_of_any_size(predictor):
    pictures = [np.full((20, 40, 3), 100, np.uint8), np.full((7, 5, 3), 200, np.uint8)]
    first, second = predictor(pictures)
    np.testing.assert_allclose(first.scores, [0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(second.scores, [0.2, 0.1], rtol=1e-6)
    assert first.classes.tolist() == [1, 0] and first.masks.shape == (2, 8, 8)


def test_what_the_network_gets(predictor):
    picture = np.zeros((20, 40, 3), np.uint8)
    picture[:] = (1, 2, 3)  # blue, green, red
    picture[:, 20:] = (11, 12, 13)
    prepared = predictor.prepare(picture)
    assert prepared.shape == (3, 16, 16) and prepared.dtype == np.float32
    assert prepared[:, 5, 2].tolist() == [3, 2, 1] and prepared[:, 5, 13].tolist() == [13, 12, 11]


@pytest.mark.parametrize("batch", [1, 2, 5, 50])
def test_a_whole_data_set_in_its_order(predictor, tmp_path, batch):
    images = [image(7 * i % 11, width=30 + i, height=20) for i in range(11)]
    dataset = read_coco(tmp_path, [], images)
    for i, entry in enumerate(images):
        write_picture(tmp_path / "images" / entry["file_name"], 20 * i, 30 + i, 20)
    found = list(predictor.over(dataset, batch))
    assert [image_id for image_id, _ in found] == [entry["id"] for entry in images]
    for i, (_, detections) in enumerate(found):
        assert detections.scores[0] == pytest.approx(0.02 * i)
        assert detections.boxes[0].tolist() == [int((30 + i) / 2), 5, 30 + i, 15]
        assert detections.masks[0].shape == (20, 30 + i)


def test_a_data_set_without_images(predictor, tmp_path):
    dataset = read_coco(tmp_path, []).subset([])
    assert list(predictor.over(dataset)) == []


def test_a_damaged_image_of_a_data_set(predictor, tmp_path):
    dataset = read_coco(tmp_path, [], [image(1), image(2)], CATEGORIES)
    (tmp_path / "images" / "002.png").write_bytes(b"")
    with pytest.raises(DatasetError, match="002.png"):
        list(predictor.over(dataset))


def test_find_pictures(tmp_path):
    for name in ("b.png", "a.JPG", "c.tiff", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    inside = [tmp_path / name for name in ("a.JPG", "b.png", "c.tiff")]
    assert find_pictures([str(tmp_path)]) == inside
    notes = tmp_path / "notes.txt"  # named explicitly: taken for a picture
    assert find_pictures([notes, tmp_path, inside[0]]) == [notes] + inside  # each once
    with pytest.raises(DatasetError, match="empty' holds no picture"):
        find_pictures([tmp_path / "empty"])
    with pytest.raises(DatasetError, match="nowhere.png' does not exist"):
        find_pictures([tmp_path / "nowhere.png"])


def test_drawings_and_records(predictor, tmp_path):
    path = write_picture(tmp_path / "a.jpg")
    (_, records), = predict_files(predictor, [path], tmp_path / "out" / "deep", threshold=0.05)
    segmentations = [record.pop("segmentation") for record in records]
    assert records == [
        {"file": "a.jpg", "category": "dog", "bbox": [20, 5, 20, 10],
         "score": pytest.approx(0.2, rel=1e-5)},
        {"file": "a.jpg", "category": "cat", "bbox": [0, 0, 20, 10], "score": pytest.approx(0.1)}]
    json.dumps(segmentations)
    mask = mask_utils.decode(segmentations[0])
    assert mask.shape == (20, 40) and mask[6:14, 22:].all() and mask.sum() <= 12 * 22
    drawn = cv2.imread(str(tmp_path / "out" / "deep" / "a.png"))
    assert drawn.shape == (20, 40, 3) and drawn[10, 30].tolist() != [200] * 3


@pytest.mark.parametrize("options, categories", [
    ({"threshold": 0.05, "top_k": 1}, ["dog"]), ({"threshold": 0.15}, ["dog"]),
    ({"threshold": 0.3}, []), ({"threshold": 0.05, "scale": 2}, ["dog", "cat"])])
def test_threshold_number_and_scale(predictor, tmp_path, options, categories):
    path = write_picture(tmp_path / "a.png")
    (_, records), = predict_files(predictor, [path], tmp_path / "out", **options)
    assert [record["category"] for record in records] == categories
    scale = options.get("scale", 1)
    drawn = cv2.imread(str(tmp_path / "out" / "a.png"))
    assert drawn.shape == (20 * scale, 40 * scale, 3)
    assert (drawn != 200).any() == bool(categories)


def test_a_picture_that_cannot_be_read_does_not_stop_the_others(predictor, tmp_path):
    good = [write_picture(tmp_path / name) for name in ("a.png", "c.png")]
    bad = tmp_path / "b.png"
    bad.write_text("no picture")
    found = dict(predict_files(predictor, [good[0], bad, good[1]], tmp_path / "out"))
    assert list(found) == [good[0], bad, good[1]]
    assert isinstance(found[bad], DatasetError) and "b.png: not an image" in str(found[bad])
    assert sorted(os.listdir(str(tmp_path / "out"))) == ["a.png", "c.png"]


def test_nothing_is_overwritten(predictor, tmp_path):
    first, second = write_picture(tmp_path / "x" / "a.png"), write_picture(tmp_path / "y" / "a.jpg")
    content = first.read_bytes()
    with pytest.raises(DatasetError, match="drawing of '.*x/a.png' would overwrite '.*x/a.png'"):
        list(predict_files(predictor, [first], tmp_path / "x"))
    with pytest.raises(DatasetError, match="y/a.jpg' would overwrite '.*', that of '.*x/a.png'"):
        list(predict_files(predictor, [first, second], tmp_path / "out"))
    assert first.read_bytes() == content and not os.listdir(str(tmp_path / "out"))
    list(predict_files(predictor, [second], tmp_path / "y"))  # a.png beside a.jpg is fine


def test_sources(tiny_run, tiny_export, tmp_path):
    folder = tiny_run.folder
    assert find_weights(folder)[0] == folder / "best.params"
    checkpoint = latest_checkpoint(folder / "checkpoints")
    for source in (checkpoint, checkpoint / "model.params"):
        weights, config = find_weights(source, overrides=["detect.nms=greedy"])
        assert weights == checkpoint / "model.params"
        assert config.classes == CLASSES and config.detect.nms == "greedy"
    unfinished = tmp_path / "run"  # without best.params
    shutil.copytree(str(folder / "checkpoints"), str(unfinished / "checkpoints"))
    shutil.copy(str(folder / "config.yml"), str(unfinished))
    assert find_weights(unfinished)[0] == unfinished / "checkpoints" / checkpoint.name / (
        "model.params")
    shutil.copy(str(folder / "best.params"), str(tmp_path / "alone.params"))
    loaded = load_predictor(tmp_path / "alone.params", config=folder / "config.yml")
    exported = load_predictor(str(tiny_export) + "-symbol.json")
    for predictor in (loaded, exported):
        assert predictor.classes == CLASSES and predictor.input_size == 64


def test_sources_that_cannot_be_used(tiny_run, tiny_export, tmp_path):
    weights = tmp_path / "a" / "b" / "c" / "alone.params"
    weights.parent.mkdir(parents=True)
    shutil.copy(str(tiny_run.folder / "best.params"), str(weights))
    (tmp_path / "text.params").write_text("hello")
    for name in ("lonely-symbol.json", "cut-symbol.json", "other-symbol.json"):
        shutil.copy(str(tiny_export) + "-symbol.json", str(tmp_path / name))
    for suffix in ("-0000.params", ".json"):
        shutil.copy(str(tiny_export) + suffix, str(tmp_path / ("cut" + suffix)))
        shutil.copy(str(tiny_export) + suffix, str(tmp_path / ("other" + suffix)))
    content = (tmp_path / "cut-0000.params").read_bytes()
    (tmp_path / "cut-0000.params").write_bytes(content[:len(content) // 2])
    (tmp_path / "other.json").write_text("{}")
    saved = tiny_run.folder / "config.yml"
    cases = [
        (("nowhere",), CheckpointError, "'nowhere' does not exist: expected a run folder"),
        ((tmp_path / "a",), CheckpointError, "neither best.params nor a checkpoint"),
        ((weights,), ConfigError, "no config.yml beside"),
        ((weights, None, tiny_run.config), ConfigError, "'tiny' has no class names"),
        ((weights, None, saved, ["classes=[a, b]"]), CheckpointError, "expected shape"),
        ((weights, None, saved, ["detect.nmz=x"]), ConfigError, "did you mean 'detect.nms'?"),
        ((tmp_path / "text.params", None, saved), CheckpointError, "text.params' cannot be read"),
        (("no-symbol.json",), CheckpointError, "no-symbol.json is missing"),
        ((tmp_path / "lonely-symbol.json",), CheckpointError, "lonely-0000.params is missing"),
        ((tmp_path / "cut-symbol.json",), CheckpointError, "cut-symbol.json' cannot be read"),
        ((tmp_path / "other-symbol.json",), CheckpointError, "other-symbol.json' cannot be read"),
        ((str(tiny_export) + "-symbol.json", None, None, ["detect.nms=greedy"]), ConfigError,
         "its configuration is fixed"),
    ]
    for arguments, kind, text in cases:
        with pytest.raises(kind) as error:
            load_predictor(*arguments)
        assert text in str(error.value) and "\n" not in str(error.value), str(error.value)
