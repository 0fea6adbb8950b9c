"""One annotation of a COCO file: is it usable, and which part of it?

Everything here works on numbers; only the few polygons that might cover no pixel are
rasterised, so that a file with a million annotations is checked in seconds.
"""
import math
from typing import NamedTuple, Optional, Tuple

import cv2
import numpy as np
from pycocotools import mask as mask_utils

from ..rle import decode_part, run_lengths

# Exporters round, and some count pixels from 1: so much outside the image is no fault.
OUTSIDE_TOLERANCE = 1.0  # pixels
# pycocotools takes memory in proportion to a polygon's extent; a stray exponent must not hang.
FAR_OUTSIDE = 10  # image sides
MIN_BOX_SIDE = 0.01  # pixels: less is zero with a rounding error
MIN_BOX_AGREEMENT = 0.5  # IoU of the given box and the box of the mask


class Annotation(NamedTuple):
    """A usable object.

    bbox: (x, y, width, height) in pixels, as in the file where that is right.
    segmentation: list of (2k,) float64 polygons x0 y0 x1 y1 ..., or a compressed RLE dict, or
        None when only the box is known.
    area: in square pixels as in the file, None when it is missing there.
    """
    id: object
    category_id: object
    bbox: Tuple[float, float, float, float]
    segmentation: object
    crowd: bool
    area: Optional[float]


def check_annotation(entry, identity, category_id, width, height):
    """The usable part of an annotation.

    Parameters
    ----------
    entry : dict from the json file.
    identity, category_id : ids that the caller has checked.
    width, height : size of the image in pixels.

    Returns
    -------
    annotation : Annotation, or None when neither the box nor the segmentation is usable.
    reasons : keys of ``report.REASONS``: why it was dropped (one), or the repairs made.
    """
    segmentation, mask_box, mask_faults = check_segmentation(
        entry.get("segmentation"), width, height)
    bbox, box_faults = check_box(entry.get("bbox"), width, height)
    if bbox is None and mask_box is None:
        return None, (box_faults or mask_faults)[:1]
    reasons = mask_faults + box_faults
    if segmentation is None:
        reasons.append("box_only")
    elif bbox is None:
        bbox = mask_box
    elif _box_iou(bbox, mask_box) < MIN_BOX_AGREEMENT:
        bbox = mask_box
        reasons.append("box_not_around_mask")
    crowd = entry.get("iscrowd")
    if crowd not in (None, 0, 1):
        reasons.append("iscrowd_invalid")
    return Annotation(identity, category_id, bbox, segmentation, crowd == 1,
                      _positive(entry.get("area"))), reasons


def to_rle(segmentation, width, height):
    """Compressed RLE of a checked segmentation, exactly as pycocotools rasterises it."""
    if isinstance(segmentation, dict):
        return segmentation
    return mask_utils.merge(mask_utils.frPyObjects(segmentation, height, width))


class MaskParts:
    """Masks that are not rasterised yet: iterating yields ``(x, y, part)`` of each.

    ``part`` (h, w) uint8 is the rectangle that holds all its pixels, (x, y) where it begins; it
    has a side of 0 where only the box of an object is known (a segmentation of None).
    """

    def __init__(self, segmentations, width, height):
        self._segmentations, self._size = segmentations, (width, height)

    def __len__(self):
        return len(self._segmentations)

    def __getitem__(self, index):
        """The masks of ``index`` (boolean mask or positions)."""
        chosen = np.arange(len(self))[index]
        return MaskParts([self._segmentations[i] for i in chosen], *self._size)

    def __iter__(self):
        for segmentation in self._segmentations:
            if segmentation is None:
                yield 0, 0, np.zeros((0, 0), np.uint8)
            else:
                yield decode_part(to_rle(segmentation, *self._size))


def to_xyxy(bbox, width, height):
    """(x0, y0, x1, y1) of an xywh box, clipped to the image."""
    x, y, w, h = bbox
    return max(x, 0.0), max(y, 0.0), min(x + w, float(width)), min(y + h, float(height))


def check_box(bbox, width, height):
    """``(xywh or None, reasons)``; a missing box is no fault, since the mask may give it."""
    if bbox is None or bbox == []:
        return None, []
    if not isinstance(bbox, list) or len(bbox) != 4 or not _all_finite(bbox):
        return None, ["box_not_four_numbers"]
    x, y, w, h = map(float, bbox)
    if min(w, h) < MIN_BOX_SIDE:
        return None, ["box_no_size"]
    x0, y0, x1, y1 = to_xyxy((x, y, w, h), width, height)
    if min(x1 - x0, y1 - y0) < MIN_BOX_SIDE:
        return None, ["box_outside"]
    if _reaches_out(x, y, x + w, y + h, width, height):
        return (x0, y0, x1 - x0, y1 - y0), ["box_clipped"]
    return (x, y, w, h), []


def check_segmentation(value, width, height):
    """``(segmentation or None, its xywh box or None, reasons)``."""
    if value is None:
        return None, None, ["segmentation_missing"]
    if isinstance(value, dict):
        return _check_rle(value, width, height)
    if not isinstance(value, list):
        return None, None, ["segmentation_unknown"]
    if not any(value):
        return None, None, ["segmentation_empty"]
    return _check_polygons(value, width, height)


def _check_polygons(parts, width, height):
    good, boxes, reasons = [], [], []
    for part in parts:
        polygon, box, reason = _check_polygon(part, width, height)
        if polygon is not None:
            good.append(polygon)
            boxes.append(box)
        if reason and reason not in reasons:
            reasons.append(reason)
    if not good:
        return None, None, reasons
    x0, y0, x1, y1 = zip(*boxes)
    return good, _clipped_xywh(min(x0), min(y0), max(x1), max(y1), width, height), reasons


def _check_polygon(part, width, height):
    """``(polygon or None, its xyxy box, reason or None)`` of one part."""
    if not isinstance(part, list):
        return None, None, "polygon_not_numeric"
    if len(part) < 6:
        return None, None, "polygon_too_short"
    if len(part) % 2:
        return None, None, "polygon_odd_length"
    if not _all_finite(part):
        return None, None, "polygon_not_finite" if _all_numbers(part) else "polygon_not_numeric"
    xs, ys = part[0::2], part[1::2]
    box = x0, y0, x1, y1 = min(xs), min(ys), max(xs), max(ys)
    if x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height:
        return None, None, "polygon_outside"
    reach = FAR_OUTSIDE * max(width, height)
    if min(x0, y0) < -reach or max(x1 - width, y1 - height) > reach:
        return None, None, "polygon_far_outside"
    polygon = np.array(part, np.float64)
    clipped = _reaches_out(x0, y0, x1, y1, width, height)
    if (clipped or _is_thin(polygon, box)) and _covers_nothing(polygon, width, height):
        return None, None, "polygon_degenerate"
    return polygon, box, "polygon_clipped" if clipped else None


def _is_thin(polygon, box):
    """True when the polygon may slip between the pixel centres: mean width up to 2 pixels."""
    area = cv2.contourArea(polygon.astype(np.float32).reshape(-1, 1, 2))
    return area <= 2 * max(box[2] - box[0], box[3] - box[1])


def _covers_nothing(polygon, width, height):
    points = polygon.reshape(-1, 2)
    on_a_line = np.linalg.matrix_rank(points - points[0]) < 2  # may still colour stray pixels
    return on_a_line or not mask_utils.area(to_rle([polygon], width, height))


def _check_rle(rle, width, height):
    if rle.get("size") != [height, width]:
        return None, None, ["rle_size_mismatch"]
    runs = _run_lengths(rle.get("counts"))
    if runs is None or runs.sum() != width * height:
        return None, None, ["rle_bad_counts"]
    if not runs[1::2].any():
        return None, None, ["rle_empty"]
    compressed = mask_utils.frPyObjects(
        {"size": [height, width], "counts": runs}, height, width)
    return compressed, tuple(mask_utils.toBbox(compressed).tolist()), []


def _run_lengths(counts):
    """Run lengths of RLE counts (list or text) as an int64 array, None when not understood.

    pycocotools trusts the counts: damaged ones give pixels from foreign memory.
    """
    if isinstance(counts, str):
        return run_lengths(counts)
    if not isinstance(counts, list) or not _all_finite(counts):
        return None
    runs = np.array(counts, np.float64)
    whole = (runs >= 0) & (runs < 1 << 32) & (runs == runs.round())
    return runs.astype(np.int64) if whole.all() else None


def _all_numbers(values):
    return set(map(type, values)) <= {int, float}  # a bool is no number here


def _all_finite(values):
    try:
        return _all_numbers(values) and math.isfinite(sum(values))
    except OverflowError:  # an integer beyond any float
        return False


def _positive(value):
    return float(value) if _all_finite([value]) and value > 0 else None


def _reaches_out(x0, y0, x1, y1, width, height):
    return max(-x0, -y0, x1 - width, y1 - height) > OUTSIDE_TOLERANCE


def _clipped_xywh(x0, y0, x1, y1, width, height):
    x0, y0, x1, y1 = to_xyxy((x0, y0, x1 - x0, y1 - y0), width, height)
    return x0, y0, x1 - x0, y1 - y0


def _box_iou(first, second):
    """IoU of two xywh boxes of positive size."""
    x, y, w, h = first
    u, v, s, t = second
    overlap_w = min(x + w, u + s) - max(x, u)
    overlap_h = min(y + h, v + t) - max(y, v)
    overlap = max(overlap_w, 0.0) * max(overlap_h, 0.0)
    return overlap / (w * h + s * t - overlap)
