"""Training augmentation and preprocessing: functions of (sample, rng) that return a new sample.

The set and its order are SSD's, as YOLACT trains with it: photometric, expand, random crop,
mirror, resize.  Every random function comes in two halves.  ``draw_*`` takes the random numbers
and decides; the rest applies the decision (:mod:`.views`).  So :func:`draw_view` draws everything
before a pixel is read, and then only those that survive are touched: one window of the image,
which expand may push beyond the image's edge and crop shrinks, is cut out, coloured and resized
once.

``rng`` is a ``numpy.random.RandomState`` or anything with its ``randint`` and ``uniform``.
"""
from dataclasses import replace

import cv2
import numpy as np

from .views import (
    MEAN_BGR,
    Colour,
    View,
    Window,
    recolour,
    see_boxes,
    see_image,
    see_masks,
    whole,
)

MIN_SIDE = 4.0 / 550.0

_CROP_CHOICES = 6  # one of them leaves the image alone
_CROP_TRIALS = 50  # for each choice
_CROP_ROUNDS = 50  # choices before the image is left alone for good


def sample_rng(seed, epoch, index):
    """The random generator of one sample: a function of all three non-negative integers.

    Whichever worker loads a sample, and in whatever order, it is augmented in the same way.
    """
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence((seed, epoch, index))))


def augment(sample, rng, size, options):
    """The whole training augmentation of one sample.

    Equal to applying :func:`photometric`, :func:`expand`, :func:`random_crop`, :func:`mirror`,
    :func:`resize` and :func:`drop_small` one after the other, at a fraction of the cost.  (One
    crop is refused here that they cannot know of: canvas only, of an expanded negative.)

    Parameters
    ----------
    sample : Sample
        Image (H, W, 3) BGR, 0..255; boxes xyxy in pixels.
    rng : numpy.random.RandomState
    size : (int, int)
        Width and height of the result.
    options : config.AugmentConfig
        Or anything with its attributes ``photometric``, ``expand``, ``crop``, ``mirror`` (switches)
        and ``min_side``.

    Returns
    -------
    Sample
        Image float32, not clipped: it leaves 0..255 where the colours were changed.  Objects that
        were cropped away or became too small are gone; that may leave none.
    """
    sample, view = draw_view(sample, rng, size, options)
    return replace(sample, image=see_image(sample.image, view), masks=see_masks(sample.masks, view))


def draw_view(sample, rng, size, options):
    """What :func:`augment` does to a sample, without its pixels.

    Returns
    -------
    sample : Sample
        The objects that stay, with their boxes as augmented; image and masks as they were.
    view : View
        How image and masks are to be seen.
    """
    colour = draw_colour(rng) if options.photometric else None
    window = whole(sample.image)
    if options.expand:
        window = draw_expansion(rng, window)
    if options.crop:
        sample, window = _crop(sample, rng, window)
    view = View(window, size, options.mirror and rng.randint(2) == 1, colour)
    sample = replace(sample, boxes=see_boxes(sample.boxes, view))
    return sample.keep(_larger(sample.boxes, options.min_side, size)), view


def photometric(sample, rng):
    """Random brightness, contrast, saturation and hue; image float32, not clipped to 0..255."""
    return replace(sample, image=recolour(sample.image, draw_colour(rng)))


def expand(sample, rng, mean=MEAN_BGR, max_ratio=4.0):
    """Every other time: the image at a random place of a canvas up to ``max_ratio`` times as large.

    The canvas has the colour ``mean`` (BGR); objects move with the image.
    """
    window = draw_expansion(rng, whole(sample.image), max_ratio)
    return _see(sample, View(window, fill=tuple(mean)))


def random_crop(sample, rng):
    """A random part of the image with sides of 0.3 to 1 times the image's, aspect 0.5 to 2.

    Objects stay if their centre lies inside, with their boxes clipped, and at least one that is no
    crowd has to stay.  An image without any such object is a negative wherever it is cut, so every
    crop of it will do.  The image is left alone in one case of six, and when no crop was found.
    """
    sample, window = _crop(sample, rng, whole(sample.image))
    return _see(sample, View(window))


def mirror(sample, rng):
    """Every other time: image, masks and boxes flipped left to right."""
    return _see(sample, View(whole(sample.image), flip=rng.randint(2) == 1))


def resize(sample, size):
    """Image (float32), masks and boxes at ``size`` (width, height), whatever the aspect."""
    return _see(sample, View(whole(sample.image), size))


def resize_image(image, size):
    """(H, W, 3) of any type -> float32 at ``size`` (width, height), bilinear.

    Interpolates in float32, so that 8-bit images are not rounded a second time.
    """
    return cv2.resize(np.asarray(image, np.float32), tuple(size), interpolation=cv2.INTER_LINEAR)


def drop_small(sample, min_side=MIN_SIDE):
    """Without the objects whose box is no wider or no higher than ``min_side`` of the image's."""
    height, width = sample.image.shape[:2]
    return sample.keep(_larger(sample.boxes, min_side, (width, height)))


def normalize(image, mean, std):
    """(H, W, 3) BGR in 0..255 -> (3, H, W) float32 RGB, (x - mean) / std; mean and std are RGB."""
    return normalize_planes(
        np.array(image.transpose(2, 0, 1)[::-1], np.float32, order="C"), mean, std)


def input_planes(image, size):
    """(rows, columns, 3) BGR -> (3, H, W) float32 RGB in 0..255; ``size`` is (width, height)."""
    resized = resize_image(image, size)
    return np.ascontiguousarray(resized[:, :, ::-1].transpose(2, 0, 1), np.float32)


def normalize_planes(planes, mean, std):
    """(3, H, W) float32 RGB in 0..255 -> (x - mean) / std, in place; mean and std are RGB."""
    for plane, offset, scale in zip(planes, mean, std):
        plane -= np.float32(offset)
        plane /= np.float32(scale)
    return planes


def draw_colour(rng):
    """-> Colour; each of the four changes is made every other time."""
    brightness = rng.uniform(-32, 32) if rng.randint(2) else 0.0
    contrast_first = bool(rng.randint(2))
    contrast = _draw_factor(rng) if contrast_first else 1.0
    saturation = _draw_factor(rng)
    hue = rng.uniform(-18, 18) if rng.randint(2) else 0.0
    if not contrast_first:
        contrast = _draw_factor(rng)
    return Colour(brightness, contrast, saturation, hue)


def draw_expansion(rng, window, max_ratio=4.0):
    """-> ``window`` every other time, else a larger Window around it."""
    if rng.randint(2):
        return window
    width, height = window.size
    ratio = rng.uniform(1, max_ratio)
    left = int(rng.uniform(0, width * ratio - width))
    top = int(rng.uniform(0, height * ratio - height))
    return Window(-left, -top, int(width * ratio) - left, int(height * ratio) - top).moved(
        window.x1, window.y1)


def draw_crop(rng, window, sample):
    """-> (Window inside ``window``, (n,) bool: the objects that stay), or None for no crop."""
    width, height = window.size
    centres = (sample.boxes[:, :2] + sample.boxes[:, 2:]) / 2
    negative = sample.crowd.all()  # also true without objects
    for _ in range(_CROP_ROUNDS):
        if rng.randint(_CROP_CHOICES) == 0:
            return None
        for _ in range(_CROP_TRIALS):
            w, h = rng.uniform(0.3 * width, width), rng.uniform(0.3 * height, height)
            if not 0.5 <= h / w <= 2:
                continue
            left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
            crop = Window(int(left), int(top), int(left + w), int(top + h)).moved(
                window.x1, window.y1)
            kept = ((centres > crop[:2]) & (centres < crop[2:])).all(axis=1)
            wanted = negative or (kept & ~sample.crowd).any()
            if wanted and min(crop.within(whole(sample.image)).size) > 0:
                return crop, kept
    return None


def _draw_factor(rng):
    return rng.uniform(0.5, 1.5) if rng.randint(2) else 1.0


def _crop(sample, rng, window):
    """-> the sample with the objects that stay, boxes clipped; the window drawn for it."""
    crop = draw_crop(rng, window, sample)
    if crop is None:
        return sample, window
    window, kept = crop
    sample = sample.keep(kept)
    corners = np.clip(sample.boxes.reshape(-1, 2, 2), window[:2], window[2:])
    return replace(sample, boxes=corners.reshape(-1, 4).astype(sample.boxes.dtype)), window


def _see(sample, view):
    return replace(sample, image=see_image(sample.image, view),
                   boxes=see_boxes(sample.boxes, view), masks=see_masks(sample.masks, view))


def _larger(boxes, min_side, size):
    """(n,) bool: wider and higher than ``min_side`` of ``size`` (width, height)."""
    return (boxes[:, 2:] - boxes[:, :2] > (min_side * size[0], min_side * size[1])).all(axis=1)
