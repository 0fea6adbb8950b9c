"""Anchor boxes ("priors" in the reference; YOLACT section 3.1, SSD section 2.2)."""

import numpy as np


def make_anchors(feature_sizes, image_size, scales, ratios, square, scale_to=None):
    """Anchors of all levels, in the order of the prediction head.

    For each level, row by row, column by column, scale by scale, ratio by ratio.

    Parameters
    ----------
    feature_sizes : sequence of (height, width)
        One per level.
    image_size : (height, width)
        Network input in pixels.
    scales : sequence of sequences of float
        Per level, in pixels of the network input.
    ratios : sequence of float
        Width / height.
    square : bool
        The reference's YOLACT quirk: the height takes the width's value.
    scale_to : float, optional
        Side in pixels that the scales are relative to.  By default each axis of
        ``image_size``, so an anchor keeps its size in pixels; the reference always takes
        its configured ``max_size``, which distorts anchors on inputs of another size.

    Returns
    -------
    (N, 4) float32
        cx, cy, w, h, relative to the image; not clipped to it.
    """
    height, width = (scale_to, scale_to) if scale_to else image_size
    return np.concatenate(
        [
            _level(size, level_scales, ratios, square, height, width)
            for size, level_scales in zip(feature_sizes, scales)
        ]
    ).astype(np.float32)


def _level(size, scales, ratios, square, height, width):
    rows, columns = size
    y, x = np.meshgrid(
        (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij"
    )
    centres = np.stack([x, y], axis=-1).reshape(-1, 1, 2)  # (cells, 1, 2)
    scale = np.repeat(np.asarray(scales, np.float64), len(ratios))
    root = np.tile(np.sqrt(ratios), len(scales))
    w = scale * root / width
    h = scale * root / height if square else scale / root / height
    shapes = np.stack([w, h], axis=-1)[None]  # (1, A, 2)
    cells, per_cell = len(centres), len(scale)
    return np.concatenate(
        [
            np.broadcast_to(centres, (cells, per_cell, 2)),
            np.broadcast_to(shapes, (cells, per_cell, 2)),
        ],
        axis=2,
    ).reshape(-1, 4)


def feature_sizes(image_size):
    """(height, width) of P3..P7 for a network input, by the strides of the backbone and FPN.

    Every stride-2 layer rounds up: 550 -> 69, 35, 18, 9, 5.
    """
    sizes = [tuple(image_size)]
    for _ in range(7):
        sizes.append(tuple((side + 1) // 2 for side in sizes[-1]))
    return sizes[3:]


def input_sizes(config, image_size=None):
    """Sizes that follow from the network input: (H, W), [P3..P7], prototypes; (rows, columns)."""
    image_size = image_size or (config.input.size, config.input.size)
    levels = feature_sizes(image_size)
    return image_size, levels, tuple(2 * side for side in levels[0])


def build_anchors(config, image_size=None):
    """(N, 4) anchors cx, cy, w, h of a configuration for its input size (or another one)."""
    image_size, levels, _ = input_sizes(config, image_size)
    return make_anchors(
        levels,
        image_size,
        config.anchors.scales,
        config.anchors.ratios,
        config.anchors.square,
        # made for its square input, the reference's way would distort them in all other shapes
        scale_to=config.input.size
        if config.reference_compatible and not config.input.keep_ratio
        else None,
    )
