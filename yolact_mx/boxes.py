"""Box geometry on NumPy arrays and on MXNet operators: pure functions.

Boxes are xyxy, anchors are (cx, cy, w, h), both relative to the image unless stated.
Functions that take ``F`` work in hybridized graphs (``F`` is ``mx.nd`` or ``mx.sym``).
"""

import numpy as np

VARIANCES = (0.1, 0.2)  # scale of the centre and size offsets (SSD, section 2.2)
MIN_SIDE = 1e-6  # sides are at least this when a logarithm or a quotient is taken of them


def anchor_corners(anchors):
    """(N, 4) cx cy w h -> (N, 4) xyxy, float32 NumPy."""
    return np.concatenate(
        [anchors[:, :2] - anchors[:, 2:] / 2, anchors[:, :2] + anchors[:, 2:] / 2], axis=1
    )


def intersection(a, b):
    """Areas of overlap of every pair: (n, 4), (m, 4) -> (n, m) NumPy."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    side = np.clip(high - low, 0, None)
    return side[..., 0] * side[..., 1]


def area(boxes):
    """(n, 4) xyxy -> (n,), NumPy."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def iou(a, b):
    """Intersection over union of every pair: (n, 4), (m, 4) -> (n, m) NumPy."""
    overlap = intersection(a, b)
    return overlap / (area(a)[:, None] + area(b)[None, :] - overlap)


def split(F, boxes):
    """(..., 4) -> four tensors (..., 1)."""
    return [F.slice_axis(boxes, axis=-1, begin=i, end=i + 1) for i in range(4)]


def encode(F, boxes, anchors):
    """Box regression targets of ``boxes`` (..., 4) xyxy against ``anchors`` (1, N, 4).

    t = ((c - c_a) / (0.1 s_a), log(s / s_a) / 0.2).  A side of 0 counts as ``MIN_SIDE``, so
    the target stays finite.
    """
    x1, y1, x2, y2 = split(F, boxes)
    cx, cy, w, h = split(F, anchors)
    centre, size = VARIANCES
    return F.concat(
        F.broadcast_div(F.broadcast_sub((x1 + x2) / 2, cx), w * centre),
        F.broadcast_div(F.broadcast_sub((y1 + y2) / 2, cy), h * centre),
        F.log(F.broadcast_div(F.clip(x2 - x1, MIN_SIDE, 1e6), w)) / size,
        F.log(F.broadcast_div(F.clip(y2 - y1, MIN_SIDE, 1e6), h)) / size,
        dim=-1,
    )


def decode(F, deltas, anchors):
    """Inverse of :func:`encode`: ``deltas`` (B, N, 4), ``anchors`` (1, N, 4) -> xyxy (B, N, 4)."""
    dx, dy, dw, dh = split(F, deltas)
    cx, cy, w, h = split(F, anchors)
    centre, size = VARIANCES
    width = F.broadcast_mul(F.exp(dw * size), w)
    height = F.broadcast_mul(F.exp(dh * size), h)
    x1 = F.broadcast_add(F.broadcast_mul(dx * centre, w), cx) - width / 2
    y1 = F.broadcast_add(F.broadcast_mul(dy * centre, h), cy) - height / 2
    return F.concat(x1, y1, x1 + width, y1 + height, dim=-1)


def pairwise_iou(F, boxes):
    """IoU of all pairs within the second-last axis: (..., T, 4) -> (..., T, T).

    Pairs of boxes without area give NaN (0 / 0), which fails every comparison.
    """
    overlap, union = overlap_and_union(F, boxes)
    return overlap / union


def overlap_and_union(F, boxes):
    """Areas of intersection and union of all pairs: (..., T, 4) -> two (..., T, T), symmetric."""
    x1, y1, x2, y2 = split(F, boxes)
    area = (x2 - x1) * (y2 - y1)
    overlap = _common(F, x1, x2) * _common(F, y1, y2)
    return overlap, F.broadcast_add(area, _row(F, area)) - overlap


def _common(F, low, high):
    """Length that two intervals share, for all pairs: (..., T, 1) -> (..., T, T)."""
    length = F.broadcast_minimum(high, _row(F, high)) - F.broadcast_maximum(low, _row(F, low))
    return F.Activation(length, act_type="relu")  # four times faster than F.relu on CPUs


def _row(F, column):
    """(..., T, 1) -> (..., 1, T)"""
    return F.expand_dims(F.squeeze(column, axis=-1), axis=-2)


def crop_mask(F, like, boxes, padding=1.0):
    """1 inside each box, 0 outside, on the pixel grid of a map.

    Parameters
    ----------
    like : (1, 1, H, W) tensor
        Any map of the wanted size; only its shape is used.
    boxes : (B, K, 4) xyxy, relative
        Scaled to pixels, ordered, padded by ``padding`` pixels and clipped to the map;
        pixel (r, c) is inside iff x1 <= c < x2 and y1 <= r < y2.

    Returns
    -------
    (B, K, H, W) float32
    """
    columns = F.reshape(F.contrib.arange_like(like, axis=3), (1, 1, -1))
    rows = F.reshape(F.contrib.arange_like(like, axis=2), (1, 1, -1))
    x1, y1, x2, y2 = split(F, boxes)  # (B, K, 1)
    x = F.reshape(_between(F, columns, x1, x2, padding), (-3, 1, -1))  # (B * K, 1, W)
    y = F.reshape(_between(F, rows, y1, y2, padding), (-3, -1, 1))  # (B * K, H, 1)
    # a matrix product: exact, and four times faster than broadcasting
    inside = F.batch_dot(y, x)
    return F.reshape_like(inside, boxes, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)


def _between(F, grid, a, b, padding):
    length = F.max(grid) + 1
    length = F.reshape(length, (1, 1, 1))
    a, b = F.broadcast_mul(a, length), F.broadcast_mul(b, length)
    low = F.relu(F.broadcast_minimum(a, b) - padding)
    high = F.broadcast_minimum(F.broadcast_maximum(a, b) + padding, length)
    return F.broadcast_mul(F.broadcast_greater_equal(grid, low), F.broadcast_lesser(grid, high))
