"""Polygons for labelme: they rasterise back to the mask, and nothing by hand is overwritten."""
import json
import os

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw
from pycocotools import mask as mask_utils
from stub_network import CLASSES, stub_predictor, turned_picture, write_film, write_picture

from yolact_mx.errors import DatasetError
from yolact_mx.labelme import LabelmeFiles, outlines
from yolact_mx.outputs import Outputs, choose
from yolact_mx.pipeline import predict_frames
from yolact_mx.sources import read_frames


def predict(paths, folder):
    with Outputs([LabelmeFiles(folder, CLASSES, paths)]) as outputs:
        predict_frames(stub_predictor(), read_frames(paths), outputs, choose)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def rasters(polygons, height, width):
    """The polygons filled by the two programs that read them most."""
    pycocotools = mask_utils.decode(mask_utils.merge(mask_utils.frPyObjects(
        [polygon.ravel().tolist() for polygon in polygons], height, width)))
    pillow = Image.new("1", (width, height))
    for polygon in polygons:
        ImageDraw.Draw(pillow).polygon([tuple(point) for point in polygon], fill=1, outline=1)
    return pycocotools, np.asarray(pillow)


def blob(seed, size):
    """A random smooth shape without holes, of several parts."""
    noise = cv2.GaussianBlur(np.random.RandomState(seed).rand(size, size), (0, 0), size / 8)
    mask = (noise > np.quantile(noise, 0.6)).astype(np.uint8)
    contours = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[-2]
    return cv2.drawContours(np.zeros_like(mask), contours, -1, 1, -1)


@pytest.mark.parametrize("size, least", [(12, 0.85), (40, 0.95), (160, 0.985)])
def test_outlines_give_the_mask_back(size, least):
    for seed in range(10):
        mask = blob(seed, size)
        polygons, holes = outlines(mask)
        assert holes == 0 and all(len(polygon) >= 3 for polygon in polygons)
        assert len(polygons) == cv2.connectedComponents(mask)[0] - 1
        assert sum(map(len, polygons)) < 3 * size
        for raster in rasters(polygons, size, size):
            assert (raster & mask).sum() / (raster | mask).sum() > least


@pytest.mark.parametrize("width, height", [(1, 1), (1, 5), (2, 2), (7, 1)])
def test_the_smallest_parts(width, height):
    mask = np.zeros((10, 12), np.uint8)
    mask[2:2 + height, 3:3 + width] = 1
    polygons, _ = outlines(mask)
    np.testing.assert_array_equal(rasters(polygons, 10, 12)[0], mask)


def test_holes_and_nothing():
    mask = np.zeros((30, 30), np.uint8)
    assert outlines(mask) == ([], 0)
    mask[2:20, 2:20] = 1
    mask[5:9, 5:9] = mask[12:15, 12:15] = 0
    mask[6:8, 6:8] = 1  # an island in the lake is a part of its own
    polygons, holes = outlines(mask)
    assert len(polygons) == 2 and holes == 2


def test_a_file_for_each_picture(tmp_path):
    paths = [write_picture(tmp_path / "in" / "a.png"), turned_picture(tmp_path / "in" / "b.jpg")]
    predict(paths, tmp_path / "polygons")
    content = read(tmp_path / "polygons" / "a.json")
    shapes = content.pop("shapes")
    assert content == {"version": "5.0.0", "flags": {}, "imagePath": "../in/a.png",
                       "imageData": None, "imageHeight": 20, "imageWidth": 40}
    assert [shape["label"] for shape in shapes] == ["dog", "cat"]
    assert shapes[0]["shape_type"] == "polygon" and shapes[0]["group_id"] is None
    assert shapes[0]["description"] == "score 0.20"
    x, y = np.array(shapes[0]["points"]).T
    assert 18 <= x.min() <= 20.5 and x.max() == pytest.approx(39.75)
    assert 4 <= y.min() <= 5.5 and 14.5 <= y.max() <= 16
    turned = read(tmp_path / "polygons" / "b.json")
    assert (turned["imageWidth"], turned["imageHeight"]) == (20, 40)


def test_the_parts_of_an_instance_belong_together(tmp_path):
    predictor = stub_predictor()
    graph = predictor.graph

    def parted(images):
        outputs = graph(images)
        outputs[4][:, 0, 3:5] = 0  # the dog in two halves
        return outputs

    predictor.graph = parted
    with Outputs([LabelmeFiles(tmp_path / "out", CLASSES)]) as outputs:
        predict_frames(predictor, read_frames([write_picture(tmp_path / "a.png")]), outputs, choose)
    shapes = read(tmp_path / "out" / "a.json")["shapes"]
    assert [(shape["label"], shape["group_id"]) for shape in shapes] == [
        ("dog", 1), ("dog", 1), ("cat", None)]


def test_filled_holes_and_empty_masks_are_told(tmp_path, caplog):
    predictor = stub_predictor()
    graph = predictor.graph

    def spoilt(images):
        outputs = graph(images)
        outputs[4][:, 0, 3:5, 5:7] = 0  # a hole in the dog
        outputs[4][:, 1] = 0  # no cat
        return outputs

    predictor.graph = spoilt
    with Outputs([LabelmeFiles(tmp_path / "out", CLASSES)]) as outputs:
        predict_frames(predictor, read_frames([write_picture(tmp_path / "a.png")]), outputs, choose)
    assert "1 holes in masks are filled: labelme's polygons have none" in caplog.text
    assert "1 instances have a mask without any pixel, and no polygon" in caplog.text
    assert [shape["label"] for shape in read(tmp_path / "out" / "a.json")["shapes"]] == ["dog"]


def test_frames_of_a_video_lie_beside_their_files(tmp_path):
    predict([write_film(tmp_path / "a.avi", (100, 250))], tmp_path / "out")
    assert sorted(os.listdir(str(tmp_path / "out"))) == [
        "a_000000.json", "a_000000.png", "a_000001.json", "a_000001.png"]
    content = read(tmp_path / "out" / "a_000001.json")
    assert content["imagePath"] == "a_000001.png" and len(content["shapes"]) == 2
    assert abs(cv2.imread(str(tmp_path / "out" / "a_000001.png")).mean() - 250) < 3


def test_work_by_hand_is_safe(tmp_path):
    paths = [write_picture(tmp_path / "a.png"), write_picture(tmp_path / "b.png")]
    (tmp_path / "b.json").write_text("by hand")
    with pytest.raises(DatasetError, match="b.json' exists and may be work by hand"):
        predict(paths, tmp_path)
    assert not (tmp_path / "a.json").exists()
    film = write_film(tmp_path / "c.avi")
    (tmp_path / "c_000001.json").write_text("by hand")
    with pytest.raises(DatasetError, match="c_000001.json' exists"):
        predict([film], tmp_path)
    assert (tmp_path / "b.json").read_text() == (tmp_path / "c_000001.json").read_text()
