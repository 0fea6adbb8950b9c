"""The lists of a COCO file: ids, names, categories, and files that cannot be used."""
import json
import re

import pytest
from coco_builder import (
    CATEGORIES,
    image,
    read_coco,
    square_annotation,
    write_coco,
)

from yolact_mx.data.coco import CocoDataset
from yolact_mx.errors import DatasetError


def error_of(folder, content):
    """The one line that a json content gives; its images need not exist."""
    path = folder / "broken.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(DatasetError) as error:
        CocoDataset(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def test_ids_names_and_folders_of_any_kind(tmp_path):
    images = [image(0, "sub/图.png"), image(-3, "sub\\deeper\\b.png")]
    for entry, name in zip(images, ["sub/图.png", "sub/deeper/b.png"]):
        write_coco(tmp_path, [dict(entry, file_name=name)])
    path = tmp_path / "bom.json"
    content = {"images": images, "categories": [{"id": 0, "name": "été"}],
               "annotations": [square_annotation(0, image_id=0, category_id=0)]}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8-sig")
    dataset = CocoDataset(path, tmp_path / "images")
    assert dataset.report.clean and dataset.classes == ["été"] and dataset.category_ids == [0]
    assert dataset.image_ids == [0, -3] and dataset[1].image.shape == (80, 100, 3)
    assert dataset[0].image_id == 0 and dataset[0].labels.tolist() == [0]


def test_ids_may_be_texts(tmp_path):
    entry = dict(image(1), id="a")
    dataset = read_coco(tmp_path, [dict(square_annotation("x", category_id="c"), image_id="a")],
                        [entry], [{"id": "c", "name": "cat"}])
    assert dataset.report.clean and dataset.image_ids == ["a"] and len(dataset[0]) == 1


def test_repeated_images(tmp_path):
    images = [image(1), image(1), image(2, "001.png"), image(3, "a.png"), image(3, "b.png")]
    dataset = read_coco(tmp_path, [square_annotation(1), square_annotation(2, image_id=3)], images)
    assert dataset.image_ids == [1, 2]
    assert dataset.report.warnings == {"image_repeated": [1], "image_file_repeated": [2],
                                       "image_id_ambiguous": [3]}
    assert dataset.report.dropped == {"ambiguous_image_id": [2]}


# ---------------------------------------------------------------- label map (P2)

def test_categories_in_disorder_and_unused(tmp_path):
    images = [image(i) for i in range(1, 7)]
    entries = [square_annotation(i, image_id=i, category_id=(90, 0)[i % 2]) for i in range(1, 7)]
    dataset = read_coco(tmp_path, entries, images)  # categories 90, 0, 7; 7 unused
    assert dataset.category_ids == [0, 7, 90] and dataset.classes == ["square", "disc", "bar"]
    for index in range(6):
        assert dataset[index].labels.tolist() == [(2, 0)[(index + 1) % 2]]


def test_labels_follow_the_given_classes(tmp_path):
    dataset = read_coco(tmp_path, [square_annotation(1, category_id=7)],
                        classes=["bar", "disc", "square"])
    assert dataset.category_ids == [90, 7, 0] and dataset.classes == ["bar", "disc", "square"]
    assert dataset[0].labels.tolist() == [1]
    assert dataset.coco_ground_truth()["annotations"][0]["category_id"] == 7


def test_other_names_are_refused(tmp_path):
    with pytest.raises(DatasetError) as error:
        read_coco(tmp_path, [], classes=["bar", "disc", "ring"])
    assert "missing: 'ring'" in str(error.value) and "not expected: 'square'" in str(error.value)


def test_classes_as_one_text_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="must be a list of names, found the text 'bar'"):
        read_coco(tmp_path, [], classes="bar")


def test_repeated_categories(tmp_path):
    dataset = read_coco(tmp_path, [square_annotation(1, category_id=2)], categories=[
        {"id": 0, "name": "nut"}, {"id": 0, "name": "nut"}, {"id": 2, "name": "nut"}])
    assert dataset.classes == ["nut (id 0)", "nut (id 2)"] and dataset[0].labels.tolist() == [1]
    assert dataset.report.warnings == {"category_repeated": [0], "category_name_repeated": [0, 2]}


# ---------------------------------------------------------------- unusable files

@pytest.mark.parametrize("content, expected", [
    ("", "not valid json"),
    ('{"images": [', "not valid json"),
    ("[" * 100000, "not valid json"),
    ([], "found a list \\(a results file\\?\\)"),
    ({"images": [], "annotations": []}, "the key 'categories' is missing"),
    ({"images": [], "categories": []}, "the key 'annotations' is missing"),
    ({"images": {}, "annotations": [], "categories": []}, "'images' must be a list, found dict"),
    ({"images": [], "annotations": [], "categories": []}, "'categories' is empty"),
    ({"images": [], "annotations": [], "categories": [{"id": 1}]}, "\\(id 1\\) has no name"),
    ({"images": [], "annotations": [], "categories": [{"name": "a"}]}, "has no usable id"),
    ({"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"},
                                                      {"id": 1, "name": "b"}]}, "two names"),
    ({"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"},
                                                      {"id": "1", "name": "b"}]}, "found both"),
    ({"images": [5], "annotations": [], "categories": CATEGORIES}, "images\\[0\\] is not"),
    ({"images": [{"id": 4}], "annotations": [], "categories": CATEGORIES}, "has no file_name"),
])
def test_unusable_files(tmp_path, content, expected):
    assert re.search(expected, error_of(tmp_path, content))


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(DatasetError, match="cannot open the annotation file"):
        CocoDataset(tmp_path / "absent.json")
    with pytest.raises(DatasetError, match="cannot open the annotation file"):
        CocoDataset(tmp_path)
    path = tmp_path / "latin.json"
    path.write_bytes('{"é": 1}'.encode("latin-1"))
    with pytest.raises(DatasetError, match="not UTF-8 text"):
        CocoDataset(path)
