"""Samples and batches of a training run, with anchors for each shape of the network input."""

import logging
from collections import Counter

from .anchors import build_anchors, input_sizes
from .data.grouped import GroupedBatches, GroupedSamples
from .data.samples import EpochBatches, TrainingSamples
from .input_shapes import in_words, input_shapes, nearest_shape

logger = logging.getLogger(__name__)


def build_samples(config, dataset, augmented=True):
    """The TrainingSamples of a configuration; GroupedSamples with ``input.keep_ratio``."""
    parts = []
    for shape in input_shapes(config):
        image_size, levels, proto_size = input_sizes(config, shape)
        anchors = build_anchors(config, shape)
        parts.append(
            TrainingSamples(dataset, config, anchors, levels, proto_size, augmented, image_size)
        )
    return GroupedSamples(parts, _groups(config, dataset)) if len(parts) > 1 else parts[0]


def build_batches(config, dataset, first, last, part=(0, 1)):
    """The EpochBatches of a configuration; GroupedBatches with ``input.keep_ratio``.

    first, last, part: see :class:`EpochBatches`.
    """
    settings = config.train
    rest = settings.batch_size, settings.seed, first, last, part
    if not config.input.keep_ratio:
        return EpochBatches(len(dataset), *rest)
    groups = _groups(config, dataset)
    batches, shapes = GroupedBatches(groups, *rest), input_shapes(config)
    logger.info("input.keep_ratio: %s", ", ".join(
        "{} images of {}".format(number, in_words(shapes[group]))
        for group, number in Counter(groups).most_common()))
    unused = batches.unused()
    if unused:
        logger.warning(
            "%d of %d images are not trained on in these %d steps: too few have their shape for "
            "a batch of %d",
            unused, len(dataset), last, settings.batch_size)
    return batches


def _groups(config, dataset):
    """Position in ``input_shapes`` of the shape of each image, by its size as it was taken."""
    shapes = input_shapes(config)
    of_shape = {shape: position for position, shape in enumerate(shapes)}
    sizes = (dataset.size(index) for index in range(len(dataset)))
    return [of_shape[nearest_shape(shapes, height, width)] for width, height in sizes]
