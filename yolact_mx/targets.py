"""Ground truth of one image -> which anchor learns what (NumPy; runs in loader workers)."""

import numpy as np

from . import boxes as box_ops

IGNORE, BACKGROUND = -1, 0


def match_anchors(
    anchors, gt_boxes, crowd_boxes, positive_iou=0.5, negative_iou=0.4, crowd_iou=0.7
):
    """Match anchors to objects (reference.md section 2; SSD section 2.2).

    Every anchor takes the object with the highest IoU; then every object gets one anchor of
    its own, pairs with the largest overlap first, no anchor twice.

    Parameters
    ----------
    anchors : (N, 4) float32, cx cy w h, relative
    gt_boxes : (n, 4) float32, xyxy, relative
    crowd_boxes : (m, 4) float32, xyxy, relative
        Ignore regions: background anchors with more than ``crowd_iou`` of their own area
        inside one are ignored.
    positive_iou, negative_iou : float
        At least / below; between the two an anchor is ignored.

    Returns
    -------
    (N,) int32
        g + 1 for object g, 0 for background, -1 to ignore.  All 0 without objects.
    """
    columns = np.array(anchors.T, np.float32, order="C")
    corners = np.concatenate([columns[:2] - columns[2:] / 2, columns[:2] + columns[2:] / 2])
    areas = box_ops.area(corners.T)
    match = np.zeros(len(anchors), np.int32)
    if len(gt_boxes):
        overlap = _overlaps(gt_boxes.astype(np.float32), corners, areas)  # (n, N)
        best = overlap[0].copy()
        match[:] = 1
        for i, row in enumerate(overlap[1:], start=2):
            match[row > best] = i  # of equals the first
            np.maximum(best, row, out=best)
        match[best < positive_iou] = IGNORE
        match[best < negative_iou] = BACKGROUND
        for gt, anchor in _forced(overlap):
            match[anchor] = gt + 1
    for crowd in crowd_boxes.astype(np.float32):
        match[(match <= BACKGROUND) & (_intersection(crowd, corners) / areas > crowd_iou)] = IGNORE
    return match


def _intersection(box, corners):
    """Areas of overlap of a box (4,) with boxes whose coordinates are the rows of (4, N)."""
    x1, y1, x2, y2 = corners
    width = np.minimum(x2, box[2])
    width -= np.maximum(x1, box[0])
    height = np.minimum(y2, box[3])
    height -= np.maximum(y1, box[1])
    np.maximum(width, 0, out=width)
    width *= np.maximum(height, 0, out=height)
    return width


def _overlaps(gt_boxes, corners, areas):
    """(n, N) IoU.  One object at a time: its rows stay in the processor's cache."""
    overlap = np.empty((len(gt_boxes), corners.shape[1]), np.float32)
    for row, box, area in zip(overlap, gt_boxes, box_ops.area(gt_boxes)):
        shared = _intersection(box, corners)
        union = area + areas
        union -= shared
        np.divide(shared, union, out=row)
    return overlap


def _forced(overlap):
    """One anchor per object, greedily by overlap: yields (object, anchor).

    ``overlap`` (n, N) is overwritten: anchors already taken hold -1.  Only objects whose best
    anchor was taken are searched again, so crowded images stay cheap.
    """
    objects = len(overlap)
    anchor_of = overlap.argmax(axis=1)
    value_of = overlap[np.arange(objects), anchor_of]
    for _ in range(min(objects, overlap.shape[1])):
        gt = int(value_of.argmax())
        anchor = int(anchor_of[gt])
        yield gt, anchor
        overlap[:, anchor] = -1
        value_of[gt] = -2
        for other in np.nonzero((anchor_of == anchor) & (value_of > -2))[0]:
            anchor_of[other] = overlap[other].argmax()
            value_of[other] = overlap[other, anchor_of[other]]
