"""Training augmentation and preprocessing: functions of (sample, rng) that return a new sample.

The set and its order are SSD's, as YOLACT trains with it: photometric, expand, random crop,
mirror, resize.  Every random function comes in two halves.  ``draw_*`` takes the random numbers
and decides; the rest applies the decision.  So :func:`augment` draws everything first and then
touches only the pixels that survive: one window of the image, which expand may push beyond the
image's edge and crop shrinks, is cut out, coloured and resized once.

``rng`` is a ``numpy.random.RandomState`` or anything with its ``randint`` and ``uniform``.
"""
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

# Pixel means (BGR, 0..255) of ImageNet: the colour of the canvas around an expanded image,
# whatever statistics the network's input is normalised with.
MEAN_BGR = (103.94, 116.78, 123.68)
MIN_SIDE = 4.0 / 550.0

_CROP_CHOICES = 6  # one of them leaves the image alone
_CROP_TRIALS = 50  # for each choice
_CROP_ROUNDS = 50  # choices before the image is left alone for good


class Colour(NamedTuple):
    """A change of colour: offset, factor and whether it comes first, saturation factor, degrees."""
    brightness: float
    contrast: float
    contrast_first: bool
    saturation: float
    hue: float


class Window(NamedTuple):
    """A rectangle of whole pixels, xyxy, in the image's coordinates; it may leave the image."""
    x1: int
    y1: int
    x2: int
    y2: int


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
    colour = draw_colour(rng) if options.photometric else None
    window = _whole(sample)
    if options.expand:
        window = draw_expansion(rng, window)
    if options.crop:
        sample, window = _crop(sample, rng, window)
    flip = options.mirror and rng.randint(2) == 1
    sample = _view(sample, window, size, flip, colour)
    return drop_small(sample, options.min_side)


def photometric(sample, rng):
    """Random brightness, contrast, saturation and hue; image float32, not clipped to 0..255."""
    return replace(sample, image=_recolour(sample.image, draw_colour(rng)))


def expand(sample, rng, mean=MEAN_BGR, max_ratio=4.0):
    """Every other time: the image at a random place of a canvas up to ``max_ratio`` times as large.

    The canvas has the colour ``mean`` (BGR); objects move with the image.
    """
    return _view(sample, draw_expansion(rng, _whole(sample), max_ratio), fill=mean)


def random_crop(sample, rng):
    """A random part of the image with sides of 0.3 to 1 times the image's, aspect 0.5 to 2.

    Objects stay if their centre lies inside, with their boxes clipped, and at least one that is no
    crowd has to stay.  An image without any such object is a negative wherever it is cut, so every
    crop of it will do.  The image is left alone in one case of six, and when no crop was found.
    """
    return _view(*_crop(sample, rng, _whole(sample)))


def mirror(sample, rng):
    """Every other time: image, masks and boxes flipped left to right."""
    return _view(sample, _whole(sample), flip=rng.randint(2) == 1)


def resize(sample, size):
    """Image (float32), masks and boxes at ``size`` (width, height), whatever the aspect."""
    return _view(sample, _whole(sample), size)


def resize_image(image, size):
    """(H, W, 3) of any type -> float32 at ``size`` (width, height), bilinear.

    Interpolates in float32, so that 8-bit images are not rounded a second time.
    """
    return cv2.resize(np.asarray(image, np.float32), tuple(size), interpolation=cv2.INTER_LINEAR)


def drop_small(sample, min_side=MIN_SIDE):
    """Without the objects whose box is no wider or no higher than ``min_side`` of the image's."""
    height, width = sample.image.shape[:2]
    sides = sample.boxes[:, 2:] - sample.boxes[:, :2]
    return sample.keep((sides > (min_side * width, min_side * height)).all(axis=1))


def normalize(image, mean, std):
    """(H, W, 3) BGR in 0..255 -> (3, H, W) float32 RGB, (x - mean) / std; mean and std are RGB."""
    planes = np.empty((3,) + image.shape[:2], np.float32)
    for k, plane in enumerate(planes):
        np.subtract(image[:, :, 2 - k], np.float32(mean[k]), out=plane)
        plane /= np.float32(std[k])
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
    return Colour(brightness, contrast, contrast_first, saturation, hue)


def draw_expansion(rng, window, max_ratio=4.0):
    """-> ``window`` every other time, else a larger Window around it."""
    if rng.randint(2):
        return window
    width, height = window.x2 - window.x1, window.y2 - window.y1
    ratio = rng.uniform(1, max_ratio)
    left = int(rng.uniform(0, width * ratio - width))
    top = int(rng.uniform(0, height * ratio - height))
    return Window(window.x1 - left, window.y1 - top,
                  window.x1 - left + int(width * ratio), window.y1 - top + int(height * ratio))


def draw_crop(rng, window, sample):
    """-> (Window inside ``window``, (n,) bool: the objects that stay), or None for no crop."""
    width, height = window.x2 - window.x1, window.y2 - window.y1
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
            crop = Window(window.x1 + int(left), window.y1 + int(top),
                          window.x1 + int(left + w), window.y1 + int(top + h))
            kept = ((centres > crop[:2]) & (centres < crop[2:])).all(axis=1)
            wanted = negative or (kept & ~sample.crowd).any()
            if wanted and _overlap(sample.image, crop):
                return crop, kept
    return None


def _draw_factor(rng):
    return rng.uniform(0.5, 1.5) if rng.randint(2) else 1.0


def _recolour(image, colour):
    """(h, w, 3) BGR -> float32 copy with the change of colour."""
    image = image.astype(np.float32)
    if colour.brightness:
        image += np.float32(colour.brightness)
    if colour.contrast_first and colour.contrast != 1:
        image *= np.float32(colour.contrast)
    # Also without a change: for a pixel whose three values are negative the way to HSV and back
    # is not the identity, and the reference always goes it.
    image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if colour.saturation != 1:
        image[:, :, 1] *= np.float32(colour.saturation)
    if colour.hue:
        _turn_hue(image[:, :, 0], np.float32(colour.hue))
    image = cv2.cvtColor(image, cv2.COLOR_HSV2BGR)
    if colour.contrast != 1 and not colour.contrast_first:
        image *= np.float32(colour.contrast)
    return image


def _turn_hue(hue, degrees):
    """Add ``degrees`` in place, within 0..360."""
    hue += degrees
    if degrees > 0:
        hue[hue > 360] -= 360
    else:
        hue[hue < 0] += 360


def _whole(sample):
    height, width = sample.image.shape[:2]
    return Window(0, 0, width, height)


def _crop(sample, rng, window):
    """-> the sample with the objects that stay, boxes clipped; the window drawn for it."""
    crop = draw_crop(rng, window, sample)
    if crop is None:
        return sample, window
    window, kept = crop
    sample = sample.keep(kept)
    corners = np.clip(sample.boxes.reshape(-1, 2, 2), window[:2], window[2:])
    return replace(sample, boxes=corners.reshape(-1, 4).astype(sample.boxes.dtype)), window


def _view(sample, window, size=None, flip=False, colour=None, fill=MEAN_BGR):
    """The sample as seen through ``window``: the one place where image, masks and boxes move.

    size: (width, height) that the window is resized to (image then float32), None to keep it.
    flip: mirror it.  colour: Colour, changes the image but not the ``fill`` around it.
    """
    width, height = window.x2 - window.x1, window.y2 - window.y1
    image = _cut(sample.image, window, fill, flip, colour)
    boxes = sample.boxes - np.array(window[:2] * 2, sample.boxes.dtype)
    if flip:
        boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
    if size is not None:
        image = resize_image(image, size)
        boxes *= np.array((size[0] / width, size[1] / height) * 2, boxes.dtype)
    masks = np.empty((len(sample),) + image.shape[:2], np.uint8)
    for mask, out in zip(sample.masks, masks):
        # Resized as 8-bit numbers: OpenCV's fixed-point rule decides which pixels stay 1
        cv2.resize(_cut(mask, window, 0, flip), out.shape[::-1], dst=out)
    return replace(sample, image=image, masks=masks, boxes=boxes)


def _cut(image, window, fill, flip=False, colour=None):
    """``window`` of an image or a mask, ``fill`` beyond its edge; a view where possible."""
    height, width = image.shape[:2]
    part = image[_overlap(image, window)]
    left, right = max(-window.x1, 0), max(window.x2 - width, 0)
    top, bottom = max(-window.y1, 0), max(window.y2 - height, 0)
    if flip:
        part, left, right = cv2.flip(part, 1), right, left
    if colour is not None:
        part = _recolour(part, colour)
    if left or top or right or bottom:
        part = cv2.copyMakeBorder(part, top, bottom, left, right, cv2.BORDER_CONSTANT, value=fill)
    return part


def _overlap(image, window):
    """Row and column slices of the image that ``window`` shows, or () if there are none."""
    rows = slice(max(window.y1, 0), min(window.y2, image.shape[0]))
    columns = slice(max(window.x1, 0), min(window.x2, image.shape[1]))
    empty = rows.stop <= rows.start or columns.stop <= columns.start
    return () if empty else (rows, columns)
