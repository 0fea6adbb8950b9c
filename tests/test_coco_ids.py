"""Ids of a COCO json for predicted pictures."""
import json
from pathlib import Path

import pytest

from yolact_mx.coco_ids import CocoIds
from yolact_mx.errors import DatasetError

CONTENT = {
    "images": [{"id": 5, "file_name": "a.png", "width": 40, "height": 20},
               {"id": 9, "file_name": "x/b.png"},
               {"id": 7, "file_name": "y/b.png", "width": 30, "height": 10}],
    "categories": [{"id": 90, "name": "dog"}, {"id": 3, "name": "cat"}, {"id": 4, "name": "cow"}]}


@pytest.fixture
def file(tmp_path):
    (tmp_path / "val.json").write_text(json.dumps(CONTENT))
    return tmp_path / "val.json"


def test_ids(file):
    a, b = Path("anywhere/a.png"), Path("in/y/b.png")
    ids = CocoIds(file, ["cat", "dog"], [a, b])
    assert ids.image(a) == 5 and ids.image(b) == 7
    assert ids.size(a) == (40, 20) and ids.size(b) == (30, 10)
    assert ids.category("cat") == 3 and ids.category("dog") == 90
    assert CocoIds(file, [], [Path("x/b.png")]).size(Path("x/b.png")) is None


def test_the_longest_end_of_the_path_counts(tmp_path):
    images = [{"id": 1, "file_name": "b.png"}, {"id": 2, "file_name": "x/b.png"}]
    (tmp_path / "val.json").write_text(json.dumps({"images": images, "categories": []}))
    paths = [Path("in/x/b.png"), Path("in/b.png")]
    ids = CocoIds(tmp_path / "val.json", [], paths)
    assert [ids.image(path) for path in paths] == [2, 1]


@pytest.mark.parametrize("classes, paths, text", [
    (["cat", "dogg"], [], "expected the classes of the network as categories, 'dogg' missing"),
    ([], ["a.png", "z/b.png", "c.png"], "one of its images, and one only; 'z/b.png', 'c.png' not"),
    ([], ["film.mp4"], "'film.mp4' not")])
def test_what_is_not_there(file, classes, paths, text):
    with pytest.raises(DatasetError) as error:
        CocoIds(file, classes, [Path(path) for path in paths])
    assert str(error.value).startswith(str(file)) and text in str(error.value)


@pytest.mark.parametrize("content, text", [
    ([], "'images' is missing or not a list"), ({"images": []}, "'categories' is missing"),
    ({"images": [{"id": 1}], "categories": []}, "images[0] needs an id and a text as 'file_name'"),
    ({"images": [], "categories": [{"name": "a"}]}, "categories[0] needs an id")])
def test_what_is_no_coco_json(tmp_path, content, text):
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(DatasetError) as error:
        CocoIds(tmp_path / "x.json", [], [])
    assert text in str(error.value)


def test_an_image_that_is_there_twice(tmp_path):
    images = [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "a.png"}]
    (tmp_path / "x.json").write_text(json.dumps({"images": images, "categories": []}))
    with pytest.raises(DatasetError, match="and one only; 'a.png' not"):
        CocoIds(tmp_path / "x.json", [], [Path("a.png")])
