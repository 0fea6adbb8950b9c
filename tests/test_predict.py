"""From pictures to detections, and what is said when that is not possible."""
import shutil

import numpy as np
import pytest
from coco_builder import CATEGORIES, image, read_coco
from stub_network import stub_predictor, write_picture
from tiny import CLASSES

from yolact_mx.checkpoint import latest_checkpoint
from yolact_mx.errors import CheckpointError, ConfigError, DatasetError
from yolact_mx.predict import find_weights, load_predictor

pytest_plugins = ("tiny_fixtures",)


@pytest.fixture
def predictor():
    return stub_predictor()


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


@pytest.mark.parametrize("exported", [False, True])
def test_batches_of_any_size(tiny_run, tiny_export, exported):
    """One after the other, in a graph of static memory: results are those of single pictures."""
    source = str(tiny_export) + "-symbol.json" if exported else tiny_run.folder
    predictor = load_predictor(source)
    pictures = list(np.random.RandomState(0).randint(0, 256, (3, 64, 64, 3), np.uint8))
    wanted = [predictor([picture])[0] for picture in pictures]
    for indices in ([0, 1, 2], [1], [2, 0], [0, 1, 2]):
        for index, found in zip(indices, predictor([pictures[i] for i in indices])):
            np.testing.assert_allclose(found.scores, wanted[index].scores, atol=1e-5)
            np.testing.assert_allclose(found.boxes, wanted[index].boxes, atol=1e-4)


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
        assert predictor.classes == CLASSES and predictor.input_shapes == [(64, 64)]


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
