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
    corners = box_ops.anchor_corners(anchors.astype(np.float32))
    match = np.zeros(len(anchors), np.int32)
    if len(gt_boxes):
        overlap = box_ops.iou(gt_boxes.astype(np.float32), corners)  # (n, N)
        best, match = overlap.max(axis=0), overlap.argmax(axis=0).astype(np.int32) + 1
        match[best < positive_iou] = IGNORE
        match[best < negative_iou] = BACKGROUND
        for gt, anchor in _forced(overlap):
            match[anchor] = gt + 1
    if len(crowd_boxes):
        crowd_boxes = crowd_boxes.astype(np.float32)
        share = box_ops.intersection(crowd_boxes, corners) / box_ops.area(corners)
        match[(match <= BACKGROUND) & (share.max(axis=0) > crowd_iou)] = IGNORE
    return match


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
