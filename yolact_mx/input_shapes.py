"""Shapes of the network input: one square, or a few that keep a picture's aspect ratio."""

from math import log, sqrt

# Long side : short side.  What most pictures have, and 6:5, so that no picture up to 2:1 is
# stretched by more than the root of 1.2, 10 %.  Each is a graph of its own: as few as will do.
_RATIOS = (1, 6 / 5, 4 / 3, 3 / 2, 16 / 9, 2)


def input_shapes(config):
    """(height, width) that the network input can have; the square comes first.

    With ``input.keep_ratio`` eleven of them, of nearly ``input.size``^2 pixels each; else one.
    """
    size = config.input.size
    if not config.input.keep_ratio:
        return [(size, size)]
    wide = [shape_of(size, ratio) for ratio in _RATIOS]
    return wide + [(width, height) for height, width in wide[1:]]


def shape_of(size, ratio):
    """(height, width) of ``size``^2 pixels with width / height = ``ratio``, in whole pixels."""
    root = sqrt(ratio)
    return int(size / root), int(size * root)


def nearest_shape(shapes, height, width):
    """The one of ``shapes`` that a picture of ``height`` x ``width`` is stretched least for."""
    return min(shapes, key=lambda shape: abs(log(shape[1] * height / (shape[0] * width))))


def in_words(shape):
    """``635x476``, width first, as users know it."""
    return "{1}x{0}".format(*shape)


class PerShape:
    """A graph for each shape of its input, made when it is first needed.

    Parameters
    ----------
    build : callable
        (height, width) -> callable of images (B, 3, height, width) and whatever else.
    """

    def __init__(self, build):
        self._build, self._graphs = build, {}

    def __call__(self, images, *others):
        shape = tuple(images.shape[2:])
        if shape not in self._graphs:
            self._graphs[shape] = self._build(shape)
        return self._graphs[shape](images, *others)
