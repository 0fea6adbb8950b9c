"""One annotation: each fault is found, the good part is kept, the reason is counted."""
import json

import cv2
import numpy as np
import pytest
from coco_builder import (
    annotation,
    image,
    list_rle,
    read_coco,
    read_square,
    rectangle,
    square,
    square_annotation,
    write_coco,
)
from pycocotools import mask as mask_utils

from yolact_mx.data.coco import CocoDataset


def test_overlapping_objects_keep_their_own_pixels(tmp_path):
    sample = read_coco(tmp_path, [annotation(1, 1, 0, [square(10, 10, 40)], [10, 10, 40, 40]),
                                  annotation(2, 1, 7, [square(20, 20, 10)], [20, 20, 10, 10])])[0]
    assert sample.masks.sum((1, 2)).tolist() == [1600, 100]


def test_a_ring_inside_a_ring_is_no_hole(tmp_path):
    sample, _ = read_square(tmp_path, segmentation=[square(10, 20, 20), square(15, 25, 5)])
    assert sample.masks.sum() == 400


@pytest.mark.parametrize("iscrowd", [0, 1])
@pytest.mark.parametrize("text", [False, True])
def test_rle_as_list_and_as_text(tmp_path, text, iscrowd):
    rle = list_rle(10, 20, 20, 20)
    if text:
        rle = mask_utils.frPyObjects(rle, *rle["size"])
        rle = {"size": rle["size"], "counts": rle["counts"].decode()}
    sample, report = read_square(tmp_path, segmentation=rle, iscrowd=iscrowd)
    assert report.clean
    assert sample.masks.sum() == 400 and sample.masks[0, 20:40, 10:30].all()
    assert sample.crowd.tolist() == [bool(iscrowd)]


def test_text_rle_equals_pycocotools_on_ragged_masks(tmp_path):
    density = [0.5, 0.1, 0.9, 0.01, 0.99]
    masks = (np.random.RandomState(0).rand(80, 100, 5) < density).astype(np.uint8)
    masks[:3, :3, 0] = 1  # counts that start with a run of no zeros
    rles = mask_utils.encode(np.asfortranarray(masks))
    dataset = read_coco(tmp_path, [
        annotation(i, 1, 0, {"size": r["size"], "counts": r["counts"].decode()}, [0, 0, 100, 80])
        for i, r in enumerate(rles)])
    assert dataset.report.clean
    np.testing.assert_array_equal(dataset[0].masks, masks.transpose(2, 0, 1))


def test_keys_that_may_be_missing(tmp_path):
    sample, report = read_square(tmp_path, iscrowd=None, area=None, bbox=None)
    assert report.clean
    np.testing.assert_array_equal(sample.boxes, [[10, 20, 30, 40]])
    assert not sample.crowd[0] and sample.has_mask[0]


def test_box_of_an_rle_when_the_bbox_is_missing(tmp_path):
    sample, _ = read_square(tmp_path, bbox=None, segmentation=list_rle(30, 40, 7, 9))
    np.testing.assert_array_equal(sample.boxes, [[30, 40, 37, 49]])


def test_masks_are_drawn_by_pycocotools_not_by_opencv(tmp_path):
    # Scores are only exact when the pixels are those that COCO's own tools see.
    polygon = [12.3, 20.7, 55.1, 18.2, 61.9, 44.4, 30.5, 60.8, 14.6, 41.3]
    sample, _ = read_square(tmp_path, segmentation=[polygon], bbox=None)
    rle = mask_utils.merge(mask_utils.frPyObjects([polygon], 80, 100))
    np.testing.assert_array_equal(sample.masks[0], mask_utils.decode(rle))
    drawn = cv2.fillPoly(np.zeros((80, 100), np.uint8),
                         [np.array(polygon).reshape(-1, 1, 2).round().astype(np.int32)], 1)
    assert (sample.masks[0] != drawn).any()


# ---------------------------------------------------------------- segmentations (P3)

GOOD = square(10, 20, 20)
FOUR = [60, 60, 62, 62]


@pytest.mark.parametrize("segmentation, reason", [
    ([], "segmentation_empty"),
    ([[]], "segmentation_empty"),
    (None, "segmentation_missing"),
    ("text", "segmentation_unknown"),
    (5, "segmentation_unknown"),
    (GOOD, "polygon_not_numeric"),
    ([[5, 5]], "polygon_too_short"),
    ([FOUR], "polygon_too_short"),
    ([[10, 20, 30, 20, 30, 40, 7]], "polygon_odd_length"),
    ([[10, 20, 10, 20, 10, 20]], "polygon_degenerate"),
    ([[10, 20, 20, 30, 25, 35]], "polygon_degenerate"),
    ([rectangle(10, 20.2, 20, 0.1)], "polygon_degenerate"),
    ([[10, 20, 30, 20, float("nan"), 40]], "polygon_not_finite"),
    ([[10, 20, 30, 20, float("inf"), 40]], "polygon_not_finite"),
    ([[10, 20, 30, 20, 10 ** 400, 40]], "polygon_not_finite"),
    ([[10, 20, 30, "20", 30, 40]], "polygon_not_numeric"),
    ([[10, 20, 30, None, 30, 40]], "polygon_not_numeric"),
    ([[[10, 20], [30, 20], [30, 40]] * 2], "polygon_not_numeric"),
    ([square(200, 20, 20)], "polygon_outside"),
    ([square(-30, 20, 20)], "polygon_outside"),
    ([square(10, 80, 20)], "polygon_outside"),
    ([[10, 20, 1e9, 20, 30, 40]], "polygon_far_outside"),
    ([square(99.9, 20, 20)], "polygon_degenerate"),
    (dict(list_rle(10, 20, 20, 20), size=[100, 80]), "rle_size_mismatch"),
    ({"counts": [8000]}, "rle_size_mismatch"),
    ({"size": [80, 100], "counts": [10, 20, 30]}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": [8010, -10]}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": [7999.5, 0.5]}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": [8000, 1e300]}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": ["8000"]}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": []}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": None}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": "0"}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": ""}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": "ooooooooo"}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": "~~~é"}, "rle_bad_counts"),
    ({"size": [80, 100], "counts": "Pj7P"}, "rle_bad_counts"),  # cut within a number
    ({"size": [80, 100], "counts": [8000]}, "rle_empty"),
    ({"size": [80, 100], "counts": [8000, 0]}, "rle_empty"),
])
def test_unusable_segmentation_leaves_the_box(tmp_path, segmentation, reason):
    sample, report = read_square(tmp_path, segmentation=segmentation)
    assert report.warnings == {reason: [5], "box_only": [5]} and not report.dropped
    assert sample.has_mask.tolist() == [False] and not sample.masks.any()
    np.testing.assert_array_equal(sample.boxes, [[10, 20, 30, 40]])


@pytest.mark.parametrize("segmentation, reason", [
    ([FOUR, GOOD], "polygon_too_short"),
    ([GOOD, FOUR], "polygon_too_short"),
    ([[], GOOD], "polygon_too_short"),
    ([GOOD, [1, 2, 3, 4, 5, 6, 7]], "polygon_odd_length"),
    ([GOOD, square(-30, 0, 10)], "polygon_outside"),
    ([[1, 1, float("nan"), 2, 3, 3], GOOD, [1, 1, float("nan"), 2, 3, 3]], "polygon_not_finite"),
])
def test_good_parts_are_kept(tmp_path, segmentation, reason):
    sample, report = read_square(tmp_path, segmentation=segmentation)
    assert report.warnings == {reason: [5]} and not report.dropped
    assert sample.masks.sum() == 400 and sample.has_mask.all()


def test_arrays_stay_in_step_when_an_object_is_dropped(tmp_path):
    entries = [square_annotation(i, category_id=(0, 7, 90)[i % 3], x=15 * i, y=10 + i, side=10 + i)
               for i in range(5)]
    entries[2].update(segmentation=[[5, 5]], bbox=[10, 10, 0, 12])
    dataset = read_coco(tmp_path, entries)
    sample = dataset[0]
    assert dataset.report.dropped == {"box_no_size": [2]}
    assert sample.labels.tolist() == [0, 1, 0, 1]
    assert sample.masks.sum((1, 2)).tolist() == [10 ** 2, 11 ** 2, 13 ** 2, 14 ** 2]
    assert sample.boxes[:, 0].tolist() == [0, 15, 45, 60]


# ---------------------------------------------------------------- boxes (P6)

@pytest.mark.parametrize("bbox, reason", [
    ([10, 10, 0, 12], "box_no_size"),
    ([10, 10, 12, -4], "box_no_size"),
    ([0, 10, 1e-310, 12], "box_no_size"),
    ([99.9999999, 10, 12, 12], "box_outside"),
    ([100, 10, 12, 12], "box_outside"),
    ([-12, 10, 12, 12], "box_outside"),
    ([10, 20, 20], "box_not_four_numbers"),
    ([10, 20, 20, float("nan")], "box_not_four_numbers"),
    ([10, 20, 20, 10 ** 400], "box_not_four_numbers"),
    (["10", 20, 20, 20], "box_not_four_numbers"),
    ([10, 20, 20, True], "box_not_four_numbers"),
    ({"x": 1}, "box_not_four_numbers"),
    ([10, 20, 90, 60], "box_not_around_mask"),  # corners instead of width and height
])
def test_bad_box_is_replaced_by_that_of_the_mask(tmp_path, bbox, reason):
    sample, report = read_square(tmp_path, bbox=bbox)
    assert report.warnings == {reason: [5]} and not report.dropped
    np.testing.assert_array_equal(sample.boxes, [[10, 20, 30, 40]])


@pytest.mark.parametrize("other, reason", [
    (dict(bbox=[10, 10, 0, 12], segmentation=[]), "box_no_size"),
    (dict(bbox=[200, 10, 5, 5], segmentation=[square(200, 10, 5)]), "box_outside"),
    (dict(bbox=None, segmentation=[square(200, 10, 5)]), "polygon_outside"),
    (dict(bbox=None, segmentation=None), "segmentation_missing"),
    (dict(image_id=999), "unknown_image_id"),
    (dict(image_id=[1]), "unknown_image_id"),
    (dict(category_id=99), "unknown_category_id"),
    (dict(category_id=None), "unknown_category_id"),
])
def test_unusable_annotation_is_dropped_under_one_reason(tmp_path, other, reason):
    sample, report = read_square(tmp_path, **other)
    assert report.dropped == {reason: [5]} and not report.warnings and len(sample) == 0


def test_thin_object_is_kept(tmp_path):
    sample, report = read_square(tmp_path, bbox=[10, 20, 1, 30],
                                 segmentation=[rectangle(10, 20, 1, 30)])
    assert report.clean and sample.masks.sum() == 30


def test_polygon_and_box_reaching_outside_are_clipped(tmp_path):
    sample, report = read_square(tmp_path, bbox=[-20, 20, 150, 10],
                                 segmentation=[rectangle(-20, 20, 150, 10)])
    assert report.warnings == {"polygon_clipped": [5], "box_clipped": [5]}
    np.testing.assert_array_equal(sample.boxes, [[0, 20, 100, 30]])
    assert sample.masks.sum() == 1000 and sample.masks[0, 20:30].all()


def test_a_pixel_outside_is_no_fault_but_clipped(tmp_path):
    sample, report = read_square(tmp_path, bbox=[-1, 20, 21, 61],
                                 segmentation=[rectangle(-1, 20, 21, 61)])
    assert report.clean
    np.testing.assert_array_equal(sample.boxes, [[0, 20, 20, 80]])


# ---------------------------------------------------------------- other faults

def test_duplicates(tmp_path):
    dataset = read_coco(tmp_path, [
        square_annotation(1), square_annotation(2), square_annotation(1, x=50),
        square_annotation(3, category_id=90)])
    assert dataset.report.dropped == {"duplicate_annotation": [2]}
    assert dataset.report.warnings == {"duplicate_annotation_id": [1]}
    assert len(dataset[0]) == 3


def test_annotations_without_id_or_shape_are_named_by_position(tmp_path):
    path = write_coco(tmp_path, [image(1)], [square_annotation(1)])
    content = json.loads(path.read_text())
    content["annotations"] += ["text", {key: value for key, value in square_annotation(
        9, x=50).items() if key != "id"}]
    path.write_text(json.dumps(content))
    report = CocoDataset(path, tmp_path / "images").report
    assert report.dropped == {"annotation_not_an_object": ["#1"]}
    assert report.warnings == {"annotation_id_missing": ["#2"]}


def test_strange_iscrowd_is_taken_as_zero(tmp_path):
    sample, report = read_square(tmp_path, iscrowd="1")
    assert report.warnings == {"iscrowd_invalid": [5]} and not sample.crowd[0]
