"""Whatever is done to a valid data set: a DatasetError, or samples that are in order."""
import copy
import json
import shutil

import cv2
import numpy as np
import pytest
from coco_builder import tiny_dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pycocotools import mask as mask_utils

from yolact_mx.data.coco import CocoDataset, require_trainable
from yolact_mx.data.images import read_image
from yolact_mx.data.report import REASONS
from yolact_mx.errors import DatasetError

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True, database=None,
                    suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBERS = st.one_of(st.integers(-200, 200), st.floats(-200, 200),
                    st.sampled_from([0, -1, 1e9, -1e30, 2 ** 70, float("nan"), float("inf")]))
JUNK = st.recursive(st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5)),
                    lambda inner: st.one_of(
                        st.lists(inner, max_size=8),
                        st.dictionaries(st.sampled_from(["id", "size", "counts"]), inner)),
                    max_leaves=8)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """(folder, content of its training json)."""
    folder = tiny_dataset(tmp_path_factory.mktemp("valid"))
    return folder, json.loads((folder / "instances_train.json").read_text())


def places(node, path=()):
    """Paths of all values inside a json value."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield path + (key,)
        if isinstance(value, (dict, list)):
            yield from places(value, path + (key,))


def mutate(data, content):
    """Replace, remove or repeat a value somewhere inside the content."""
    path = data.draw(st.sampled_from(list(places(content))))
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    action = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
    if action == "replace":
        parent[path[-1]] = data.draw(JUNK)
    elif action == "remove":
        del parent[path[-1]]
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))


def check_sample(sample, num_classes):
    n, (height, width) = len(sample.boxes), sample.image.shape[:2]
    assert sample.image.dtype == np.uint8 and sample.image.shape[2] == 3
    assert sample.boxes.shape == (n, 4) and sample.masks.shape == (n, height, width)
    assert len(sample.labels) == len(sample.crowd) == len(sample.has_mask) == n
    assert np.isfinite(sample.boxes).all() and (sample.boxes >= 0).all()
    assert (sample.boxes[:, :2] < sample.boxes[:, 2:]).all()
    assert (sample.boxes[:, 2:] <= [width, height]).all()
    assert ((sample.labels >= 0) & (sample.labels < num_classes)).all()
    assert (sample.masks <= 1).all()
    np.testing.assert_array_equal(sample.masks.any((1, 2)), sample.has_mask)


def check_report(dataset, content):
    report = dataset.report
    usable = sum(len(dataset.annotations(i)) for i in range(len(dataset)))
    assert report.annotations == len(content["annotations"]) == usable + report.num_dropped
    assert set(report.dropped) | set(report.warnings) <= set(REASONS)
    assert report.clean == (not report.dropped and not report.warnings)
    json.dumps(report.to_dict())
    assert all("\n" not in line for line in report.summary())


@SETTINGS
@given(data=st.data())
def test_any_mutated_json(valid, data):
    folder, content = valid
    content = copy.deepcopy(content)
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(data, content)
        if not content:
            break
    path = folder / "mutated.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        dataset = CocoDataset(path, folder / "images")
        samples = [dataset[i] for i in range(len(dataset))]
    except DatasetError as error:
        assert str(path) in str(error) or str(folder / "images") in str(error)
        return
    check_report(dataset, content)
    for sample in samples:
        check_sample(sample, len(dataset.classes))
    truth = dataset.coco_ground_truth()
    assert [a["id"] for a in truth["annotations"]] == list(range(1, len(truth["annotations"]) + 1))
    if any((~sample.crowd).any() for sample in samples):
        require_trainable(dataset)
    else:
        with pytest.raises(DatasetError):
            require_trainable(dataset)


@SETTINGS
@given(text=st.text(st.characters(min_codepoint=48, max_codepoint=112), max_size=12),
       cut=st.integers(0, 40))
def test_any_counts(valid, text, cut):
    folder, content = valid
    content = copy.deepcopy(content)
    mask = np.zeros((80, 100), np.uint8, order="F")
    mask[20:60, 30:70] = np.random.RandomState(cut).randint(0, 2, (40, 40))
    counts = mask_utils.encode(mask)["counts"].decode()
    entry = content["annotations"][0]
    entry["segmentation"] = {"size": [80, 100], "counts": counts[:cut] + text + counts[cut:]}
    path = folder / "counts.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    dataset = CocoDataset(path, folder / "images")
    check_report(dataset, content)
    sample = dataset[0]
    check_sample(sample, 3)
    assert len(sample) == 2
    if not text:
        np.testing.assert_array_equal(sample.masks[0], mask)


@SETTINGS
@given(data=st.data(), kind=st.sampled_from([".png", ".jpg"]))
def test_any_damaged_image(valid, data, kind):
    folder, _ = valid
    picture = np.random.RandomState(1).randint(0, 256, (30, 40, 3)).astype(np.uint8)
    content = bytearray(cv2.imencode(kind, picture)[1].tobytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))):]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / ("damaged" + kind)
    path.write_bytes(bytes(content))
    try:
        image = read_image(path)
    except DatasetError as error:
        assert str(path) in str(error)
    else:
        assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3


def test_every_image_missing(valid, tmp_path):
    shutil.copy(str(valid[0] / "instances_train.json"), str(tmp_path))
    with pytest.raises(DatasetError, match="6 of 6 images"):
        CocoDataset(tmp_path / "instances_train.json", tmp_path)
