"""The COCO data set: samples, negatives, crowds, images and the ground truth for scoring."""
import contextlib
import io
import json

import numpy as np
import pytest
from coco_builder import (
    annotation,
    image,
    list_rle,
    read_coco,
    square,
    square_annotation,
    tiny_dataset,
    write_coco,
)
from PIL import Image
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from yolact_mx.data.coco import CocoDataset, require_trainable
from yolact_mx.data.report import REASONS
from yolact_mx.errors import DatasetError


def test_tiny_dataset(tmp_path):
    folder = tiny_dataset(tmp_path)
    dataset = CocoDataset(folder / "instances_train.json", folder / "images")
    assert dataset.report.clean and dataset.report.summary()[-1] == "no faults found"
    assert dataset.classes == ["square", "disc", "bar"] and dataset.category_ids == [0, 7, 90]
    assert len(dataset) == 6 and dataset.image_ids == [1, 2, 3, 4, 5, 6]
    assert dataset.size(0) == (100, 80) and dataset.file_name(0) == "001.png"
    first = dataset[0]
    assert first.image.shape == (80, 100, 3) and first.image_id == 1
    np.testing.assert_array_equal(first.boxes, [[10, 10, 40, 40], [52, 22, 88, 58]])
    assert first.labels.tolist() == [0, 1] and first.labels.dtype == np.int64
    assert first.masks.shape == (2, 80, 100) and first.masks.dtype == np.uint8
    assert first.masks[0].sum() == 900 and first.masks[0, 10:40, 10:40].all()
    assert first.has_mask.all() and not first.crowd.any()
    assert dataset[1].crowd.tolist() == [False, True]
    assert dataset[2].masks.sum() == 2 * 24 * 24  # two parts, one mask
    assert len(dataset[5]) == 0 and dataset[5].masks.shape == (0, 80, 100)
    assert dataset[5].boxes.shape == (0, 4)
    require_trainable(dataset)

BOX = [10, 20, 20, 20]  # of the default square_annotation: 400 pixels


def test_exif_rotation_follows_the_size_in_the_json(tmp_path):
    tags = Image.Exif()
    tags[0x0112] = 6
    (tmp_path / "images").mkdir()
    Image.new("RGB", (100, 80)).save(tmp_path / "images" / "001.png", exif=tags)
    assert read_coco(tmp_path, [], [image(1)])[0].image.shape == (80, 100, 3)
    assert read_coco(tmp_path, [], [image(1, width=80, height=100)])[0].image.shape == (100, 80, 3)


def test_hundreds_of_objects(tmp_path):
    squares = [(4 * (i % 20), 4 * (i // 20)) for i in range(400)]
    sample = read_coco(tmp_path, [annotation(i, 1, 0, [square(x, y, 3)], [x, y, 3, 3])
                                  for i, (x, y) in enumerate(squares)])[0]
    assert len(sample) == 400 and (sample.masks.sum((1, 2)) == 9).all()


def test_subset(tmp_path):
    folder = tiny_dataset(tmp_path)
    dataset = CocoDataset(folder / "instances_train.json", folder / "images")
    part = dataset.subset([4, 0])
    assert part.image_ids == [5, 1] and len(dataset) == 6 and part[1].image_id == 1


# ---------------------------------------------------------------- negatives and crowds (P1)

def crowd_entry(identity, image_id):
    return annotation(identity, image_id, 7, list_rle(10, 20, 20, 20), BOX, iscrowd=1)


def negatives(folder, **options):
    return read_coco(folder, [square_annotation(1, image_id=1), crowd_entry(2, 2),
                              square_annotation(3, image_id=4)], [image(i) for i in (1, 2, 3, 4)],
                     **options)


def test_images_without_objects_are_kept_as_negatives(tmp_path):
    dataset = negatives(tmp_path)
    report = dataset.report
    assert dataset.image_ids == [1, 2, 3, 4] and report.clean
    assert report.empty_images == [3] and report.crowd_only_images == [2]
    assert report.summary()[0] == "4 images: 1 without objects, 1 with crowds only, 0 left out"
    assert dataset[1].crowd.tolist() == [True] and len(dataset[2]) == 0


def test_negatives_can_be_left_out(tmp_path):
    dataset = negatives(tmp_path, keep_empty=False)
    assert dataset.image_ids == [1, 4] and dataset.report.images_left_out == 2


def test_all_crowd_is_one_plain_sentence(tmp_path):
    dataset = read_coco(tmp_path, [crowd_entry(1, 1), crowd_entry(2, 2)], [image(1), image(2)])
    with pytest.raises(DatasetError, match=r"all 2 annotations are crowds \(iscrowd=1\)"):
        require_trainable(dataset)
    assert any("is that intended?" in line for line in dataset.report.summary())


def test_crowds_and_faults_leave_nothing_to_learn(tmp_path):
    dataset = read_coco(tmp_path, [crowd_entry(1, 1), crowd_entry(2, 1), square_annotation(3, 9)])
    with pytest.raises(DatasetError, match=r"none of its 3 annotations can be learnt: "
                       r"1 duplicate_annotation, 1 unknown_image_id, 1 crowds \(iscrowd=1\)"):
        require_trainable(dataset)


@pytest.mark.parametrize("images, annotations, expected", [
    ([], [], "'images' is empty"),
    ([image(1)], [], "none of the 1 images has an annotation"),
    ([image(1)], [square_annotation(1, category_id=99)], "1 unknown_category_id"),
])
def test_nothing_to_train_on(tmp_path, images, annotations, expected):
    with pytest.raises(DatasetError, match=expected):
        require_trainable(CocoDataset(write_coco(tmp_path, images, annotations)))


# ---------------------------------------------------------------- images

def test_missing_images_are_named_before_training(tmp_path):
    path = write_coco(tmp_path, [image(1)])
    content = json.loads(path.read_text())
    content["images"] += [image(i) for i in range(2, 10)]
    path.write_text(json.dumps(content))
    with pytest.raises(DatasetError) as error:
        CocoDataset(path, tmp_path / "images")
    assert "8 of 9 images" in str(error.value) and "002.png" in str(error.value)
    assert "006.png, ..." in str(error.value) and "007.png" not in str(error.value)


def test_missing_size_is_taken_from_the_file(tmp_path):
    write_coco(tmp_path, [image(1)])
    entry = {"id": 1, "file_name": "001.png", "width": None, "height": -4}
    dataset = read_coco(tmp_path, [square_annotation(1)], [entry])
    assert dataset.report.warnings == {"image_size_missing": [1]}
    assert dataset.size(0) == (100, 80) and dataset[0].masks.sum() == 400
    with pytest.raises(DatasetError, match="image id 1 has no usable width and height"):
        CocoDataset(tmp_path / "instances_train.json")


def test_image_of_another_size_is_an_error(tmp_path):
    write_coco(tmp_path, [image(1, width=50, height=40)])
    with pytest.raises(DatasetError, match="001.png: expected an image of 100x80 .* found 50x40"):
        read_coco(tmp_path, [square_annotation(1)])[0]


def test_damaged_image_is_an_error_that_names_it(tmp_path):
    dataset = read_coco(tmp_path, [square_annotation(1)])
    (tmp_path / "images" / "001.png").write_bytes(b"")
    with pytest.raises(DatasetError, match="001.png: the image file is empty"):
        dataset[0]


# ---------------------------------------------------------------- ground truth for evaluation

def evaluate(truth, results, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        scored = COCOeval(coco, coco.loadRes(results), kind)
        scored.evaluate()
        scored.accumulate()
        scored.summarize()
    return scored.stats


def test_ground_truth_scores_like_the_file_itself(tmp_path):
    folder = tiny_dataset(tmp_path)
    path = folder / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"] = [9.7, 10.1, 30.3, 30.6]
    path.write_text(json.dumps(content))
    truth = CocoDataset(path).coco_ground_truth()
    assert json.loads(json.dumps(truth)) == truth
    assert len(truth["images"]) == 6 and truth["categories"][0] == {"id": 0, "name": "square"}
    results = [dict(image_id=a["image_id"], category_id=a["category_id"], score=0.9 - 0.05 * i,
                    bbox=[a["bbox"][0] + i, *a["bbox"][1:]], segmentation=a["segmentation"])
               for i, a in enumerate(truth["annotations"])]
    for kind in ("bbox", "segm"):
        expected = evaluate(json.loads(path.read_text()), json.loads(json.dumps(results)), kind)
        assert (evaluate(truth, results, kind) == expected).all() and 0 < expected[0]


def test_ground_truth_repairs_what_pycocotools_needs(tmp_path):
    dataset = read_coco(tmp_path, [
        square_annotation(0, iscrowd=None, area=None),
        square_annotation(0, x=50, area=123.5),
        square_annotation(2, x=70, segmentation=[], area=None),
    ])
    first, second, third = dataset.coco_ground_truth()["annotations"]
    assert [first["id"], second["id"], third["id"]] == [1, 2, 3]
    assert (first["area"], second["area"], third["area"]) == (400, 123.5, 400)
    assert first["iscrowd"] == 0 and first["bbox"] == BOX
    assert mask_utils.decode(first["segmentation"]).sum() == 400
    assert "segmentation" not in third
    perfect = [dict(image_id=1, category_id=7, score=1.0, bbox=a["bbox"])
               for a in (first, second, third)]
    assert evaluate(dataset.coco_ground_truth(), perfect, "bbox")[0] == pytest.approx(1)


# ---------------------------------------------------------------- the report

def test_report_counts_add_up_and_name_the_first_ids(tmp_path):
    entries = [square_annotation(i, category_id=99) for i in range(7)]
    entries += [square_annotation(8), square_annotation(9, bbox=[1, 1, 0, 0], x=50)]
    report = read_coco(tmp_path, entries).report
    assert report.to_dict() == {
        "images": 1, "annotations": 9, "dropped": {"unknown_category_id": [0, 1, 2, 3, 4, 5, 6]},
        "warnings": {"box_no_size": [9]}}
    lines = report.summary()
    assert lines[1] == "9 annotations: 2 usable (0 of them crowds), 7 dropped"
    assert lines[2:4] == ["dropped:", "  unknown_category_id: 7 ({}): 0, 1, 2, 3, 4, ...".format(
        REASONS["unknown_category_id"])]
    assert lines[5].startswith("  box_no_size: 1 (") and lines[5].endswith("): 9")
