"""The reference's own mAP: its figures, and the two faults of it that are mended by default."""
import re
from types import SimpleNamespace

import numpy as np
import pytest

from yolact_mx.reference_map import THRESHOLDS, ReferenceMap, average_precision


def numbered(figures, prefix):
    """The indices of the keys "<prefix><index>/..." of a golden file."""
    return sorted({int(found.group(1)) for found in
                   (re.match(prefix + r"(\d+)/", key) for key in figures.files) if found})


def photo_gt_arguments(meta, image):
    """Arguments of inputs_rule.photo_gt for one image, as the note of the file states them."""
    call = re.search(r"photo_gt\(([^)]*)\)", meta["note"]).group(1)
    assert re.fullmatch(r"[\w\s+*%/,.-]+", call), call
    return eval("({},)".format(call), {"__builtins__": {}}, {"seed": meta["seed"], "im": image})


def ellipses(boxes, height, width):
    """(D, H, W) uint8: the ellipse inscribed in each box, tested at the pixel centres."""
    y, x = np.arange(height)[:, None] + 0.5, np.arange(width)[None] + 0.5
    masks = []
    for x1, y1, x2, y2 in np.asarray(boxes, float):
        rx, ry = max((x2 - x1) / 2, 1e-9), max((y2 - y1) / 2, 1e-9)
        masks.append(((x - (x1 + x2) / 2) / rx) ** 2 + ((y - (y1 + y2) / 2) / ry) ** 2 <= 1)
    return np.array(masks, np.uint8).reshape(-1, height, width)


def test_golden_average_precision(golden):
    figures, _ = golden("ap.npz")
    cases = numbered(figures, "ap")
    assert cases
    for case in cases:
        score, correct, num_gt, expected = (figures["ap{}/{}".format(case, key)]
                                            for key in ("score", "tp", "num_gt", "ap"))
        assert average_precision(score, correct, int(num_gt)) == pytest.approx(
            float(expected), abs=1e-12)  # float64 both; only the order of the sum differs


def test_golden_map(golden, inputs_rule):
    figures, meta = golden("ap.npz")
    images = numbered(figures, "img")
    assert images
    reference, right = ReferenceMap(reference_compatible=True), ReferenceMap()
    for image in images:
        field = {key: figures["img{}/{}".format(image, key)] for key in
                 ("gt", "box", "class", "box_score", "mask_score", "num_crowd")}
        arguments = photo_gt_arguments(meta, image)
        boxes, masks, labels = inputs_rule.photo_gt(*arguments)
        height, width, num_gt = arguments[1:4]
        assert np.array_equal(np.column_stack([boxes, labels]), field["gt"])
        scale = np.array([width, height, width, height], np.float32)
        crowd = np.arange(len(boxes)) >= num_gt
        assert crowd.sum() == field["num_crowd"]
        truth = SimpleNamespace(boxes=boxes.astype(np.float32) * scale, labels=labels,
                                crowd=crowd, masks=masks)
        found = SimpleNamespace(boxes=field["box"], classes=field["class"],
                                scores=field["box_score"], mask_scores=field["mask_score"],
                                masks=ellipses(field["box"], height, width))
        for metric in (reference, right):
            metric.process(found, truth)
    result = reference.evaluate()
    for kind in ("box", "mask"):
        expected = dict(zip(figures["map/{}/keys".format(kind)].tolist(),
                            figures["map/{}/values".format(kind)].tolist()))
        assert result[kind].keys() == expected.keys()
        for key, value in expected.items():
            assert result[kind][key] == pytest.approx(value, abs=1e-9), (kind, key)
    assert all(right.evaluate()[kind]["all"] > 0 for kind in ("box", "mask"))


# ------------------------------------------------------------------ worked by hand

def image_of(boxes, size=(40, 100), **fields):
    """Boxes whose masks are the boxes themselves."""
    masks = np.zeros((len(boxes),) + size, np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes):
        mask[y1:y2, x1:x2] = 1
    return SimpleNamespace(boxes=np.array(boxes, np.int32).reshape(-1, 4), masks=masks,
                           **{key: np.array(value) for key, value in fields.items()})


def found_of(boxes, classes, scores):
    return image_of(boxes, classes=classes, scores=scores, mask_scores=scores)


def truth_of(boxes, labels, crowd=None):
    return image_of(boxes, labels=labels, crowd=crowd or [False] * len(boxes))


def evaluate(images, reference_compatible):
    metric = ReferenceMap(reference_compatible)
    for found, truth in images:
        metric.process(found, truth)
    result = metric.evaluate()
    assert result["box"] == result["mask"]  # the masks are the boxes
    return result["mask"]


BOX = [0, 0, 20, 20]


def test_images_without_detections_count_in_the_recall():
    images = [(found_of([BOX], [0], [0.9]), truth_of([BOX], [0])),
              (found_of([], [], []), truth_of([BOX], [0]))]
    # One of two objects found: precision 1 at the 51 recalls 0..0.5, then 0.
    assert evaluate(images, reference_compatible=False)["all"] == round(100 * 51 / 101, 2)
    assert evaluate(images, reference_compatible=True)["all"] == 100


def test_crowds_excuse_detections():
    crowd = [40, 0, 100, 40]
    images = [(found_of([[50, 5, 60, 15], BOX], [0, 0], [0.9, 0.8]),
               truth_of([BOX, crowd], [0, 0], [False, True]))]
    assert evaluate(images, reference_compatible=False)["all"] == 100
    # As a false positive before the only hit it halves every precision.
    assert evaluate(images, reference_compatible=True)["all"] == 50


def test_a_crowd_of_another_class_or_too_little_of_it_excuses_nothing():
    crowd = [40, 0, 100, 40]
    other = [(found_of([[50, 5, 60, 15], BOX], [0, 0], [0.9, 0.8]),
              truth_of([BOX, crowd], [0, 1], [False, True]))]
    assert evaluate(other, reference_compatible=False)["all"] == 50
    # 6 of 10 columns lie in the crowd: excused at the thresholds 0.5 and 0.55 only.
    edge = [(found_of([[36, 5, 46, 15], BOX], [0, 0], [0.9, 0.8]),
             truth_of([BOX, crowd], [0, 0], [False, True]))]
    result = evaluate(edge, reference_compatible=False)
    assert [result[key] for key in ("50", "55", "65", "95")] == [100, 100, 50, 50]


def test_each_object_is_found_once_and_by_the_best_score():
    images = [(found_of([[0, 0, 20, 12], BOX], [0, 0], [0.9, 0.8]), truth_of([BOX], [0]))]
    result = evaluate(images, reference_compatible=True)
    # The first detection (IoU 0.6) takes the object at 0.5 and 0.55; above, the second does.
    assert (result["50"], result["55"], result["65"], result["95"]) == (100, 100, 50, 50)


def test_an_overlap_at_the_threshold_is_no_match():
    images = [(found_of([[0, 0, 20, 10]], [0], [0.9]), truth_of([BOX], [0]))]
    assert evaluate(images, reference_compatible=True)["50"] == 0


def test_mean_is_over_classes_with_an_object_or_a_detection():
    images = [(found_of([BOX, BOX], [0, 2], [0.9, 0.8]), truth_of([BOX], [0]))]
    assert evaluate(images, reference_compatible=False)["all"] == 50


def test_nothing_at_all_is_zero():
    assert evaluate([], reference_compatible=False)["all"] == 0
    assert evaluate([(found_of([], [], []), truth_of([], []))], False)["all"] == 0
    assert list(evaluate([], False)) == ["all"] + [str(int(100 * t + 0.5)) for t in THRESHOLDS]


def test_hand_worked_average_precision():
    # Hit, miss, hit of two objects: 51 recalls at 1, 50 at 2/3.
    assert average_precision([0.7, 0.9, 0.8], [True, True, False], 2) == pytest.approx(
        (51 + 50 * 2 / 3) / 101)
    assert average_precision([], [], 3) == 0
    assert average_precision([0.5], [False], 0) == 0
