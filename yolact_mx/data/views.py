"""An image and its masks as an augmentation leaves them, without a pixel more than that takes.

What happens to a sample is decided before its pixels are read (:mod:`.transforms`); a
:class:`View` holds the decision, the functions here carry it out.
"""
from typing import NamedTuple, Optional, Tuple

import cv2
import numpy as np

from .images import UnreadImage

# Pixel means (BGR, 0..255) of ImageNet: the colour of the canvas around an expanded image,
# whatever statistics the network's input is normalised with.
MEAN_BGR = (103.94, 116.78, 123.68)

_REDUCTIONS = (8, 4, 2)  # of a JPEG while it is decoded
_MARGIN = 2  # pixels of a reduced image around a window: interpolation looks one further


class Colour(NamedTuple):
    """A change of colour: offset and factor of all channels, saturation factor, degrees.

    Hue and saturation of a pixel and of its multiples are the same, so the factor may be applied
    before or after the change of those.
    """
    brightness: float
    contrast: float
    saturation: float
    hue: float


class Window(NamedTuple):
    """A rectangle of whole pixels, xyxy, in the image's coordinates; it may leave the image."""
    x1: int
    y1: int
    x2: int
    y2: int

    @property
    def size(self):
        """(width, height)"""
        return self.x2 - self.x1, self.y2 - self.y1

    @property
    def slices(self):
        """Of the rows and columns of an array."""
        return slice(self.y1, self.y2), slice(self.x1, self.x2)

    def within(self, other):
        """What two windows have in common; empty (a side of 0 or less) if nothing."""
        return Window(max(self.x1, other.x1), max(self.y1, other.y1),
                      min(self.x2, other.x2), min(self.y2, other.y2))

    def moved(self, x, y):
        """The window, x to the right and y down."""
        return Window(self.x1 + x, self.y1 + y, self.x2 + x, self.y2 + y)


class View(NamedTuple):
    """An image seen through ``window``.

    size: (width, height) that the window is resized to, None to keep it.
    flip: mirror it.  colour: changes the image, but not the ``fill`` (BGR) beyond its edge.
    """
    window: Window
    size: Optional[Tuple[int, int]] = None
    flip: bool = False
    colour: Optional[Colour] = None
    fill: Tuple[float, float, float] = MEAN_BGR

    @property
    def shape(self):
        """(rows, columns) of what is seen."""
        return (self.size or self.window.size)[::-1]


def whole(image):
    """The Window that is all of an image."""
    height, width = image.shape[:2]
    return Window(0, 0, width, height)


def see_boxes(boxes, view):
    """(n, 4) xyxy in pixels of the image -> in pixels of the view; a copy."""
    width, height = view.window.size
    boxes = boxes - np.array(view.window[:2] * 2, boxes.dtype)
    if view.flip:
        boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
    if view.size is not None:
        boxes *= np.array((view.size[0] / width, view.size[1] / height) * 2, boxes.dtype)
    return boxes


def see_image(image, view):
    """(rows, columns, 3) BGR: the image as seen; float32 where it is resized or recoloured."""
    if view.size is not None:
        return see_planes(image, view)[::-1].transpose(1, 2, 0)
    part = view.window.within(whole(image))
    seen = image[part.slices]
    seen = cv2.flip(seen, 1) if view.flip else seen
    seen = seen if view.colour is None else recolour(seen, view.colour)
    return _pad(seen, _margins(part, view), view.fill)


def see_planes(image, view, out=None):
    """(3, rows, columns) float32 RGB: the image as seen; the view must have a size.

    image: (H, W, 3) BGR, or an UnreadImage, of which a large JPEG is decoded at 1/2, 1/4 or 1/8
        where the view would shrink it at least that much.
    out: written to if given.
    """
    out = np.empty((3,) + view.shape, np.float32) if out is None else out
    if isinstance(image, UnreadImage):
        full, reduction = whole(image), _reduction(image, view)
        image = image.read(reduction)
        if whole(image) != full:
            return _see_reduced(image, reduction, view, out)
    part = view.window.within(whole(image))
    margins = _margins(part, view)
    seen = image[part.slices]
    planes = _float_planes(cv2.flip(seen, 1) if view.flip else seen, view.colour)
    for plane, fill, seen in zip(planes, view.fill, out[::-1]):
        _resize_padded(plane, margins, fill, seen)
    return out


def see_masks(masks, view):
    """(n, rows, columns) uint8: masks (n, H, W), or MaskParts, as seen."""
    seen = np.zeros((len(masks),) + view.shape, np.uint8)
    for out, mask in zip(seen, each_mask(masks, view)):
        if mask is not None:
            out[:] = mask
    return seen


def each_mask(masks, view):
    """Yields one mask after the other as seen, (rows, columns) uint8, each overwriting the last;
    None for one of which nothing is seen."""
    canvas = np.zeros(view.window.size[::-1], np.uint8)
    seen = canvas if view.size is None else np.empty(view.shape, np.uint8)
    for x, y, part in _parts(masks):
        place = Window(x, y, x + part.shape[1], y + part.shape[0]).within(view.window)
        if min(place.size) <= 0:
            yield None
            continue
        part = part[place.moved(-x, -y).slices]
        place = place.moved(-view.window.x1, -view.window.y1)
        if view.flip:
            width = canvas.shape[1]
            part, place = part[:, ::-1], place._replace(x1=width - place.x2, x2=width - place.x1)
        canvas[place.slices] = part
        if view.size is not None:
            # Resized as 8-bit numbers: OpenCV's fixed-point rule decides which pixels stay 1
            cv2.resize(canvas, view.size, dst=seen)
        yield seen
        canvas[place.slices] = 0


def _parts(masks):
    """Yields (x, y, part) of each mask: a rectangle with all its pixels, and where it is."""
    if not isinstance(masks, np.ndarray):
        yield from masks
        return
    for mask in masks:
        x, y, width, height = cv2.boundingRect(mask)
        yield x, y, mask[y:y + height, x:x + width]


def _float_planes(image, colour):
    """(h, w, 3) BGR -> list of B, G, R as float32, recoloured."""
    if colour is not None:
        return _coloured_planes(image, colour)
    return [plane.astype(np.float32, copy=False) for plane in cv2.split(image)]


def recolour(image, colour):
    """(h, w, 3) BGR -> float32 copy with the change of colour, not clipped."""
    return cv2.merge(_coloured_planes(image, colour))


def _coloured_planes(image, colour):
    """``recolour`` as a list of planes (h, w), B, G, R."""
    if colour.hue:
        return cv2.split(_recolour_by_hsv(image, colour))
    planes, (offset, factor, saturation, _) = cv2.split(image), colour
    # V + s (x - V) with V the brightest of a pixel's channels is what a way to HSV and back with
    # S times s comes to
    brightest = cv2.max(cv2.max(planes[0], planes[1]), planes[2])
    coloured = _sums(planes, brightest, factor * saturation, factor * (1 - saturation),
                     factor * offset)
    dark = offset < 0 and brightest < -offset
    if np.any(dark):
        # Where all three values are negative that way is V - s (x - V), also without any change
        turned = _sums(planes, brightest, -factor * saturation, factor * (1 + saturation),
                       factor * offset)
        for plane, other in zip(coloured, turned):
            np.copyto(plane, other, where=dark)
    return coloured


def _sums(planes, other, weight, weight_other, offset):
    return [cv2.addWeighted(plane, weight, other, weight_other, offset, dtype=cv2.CV_32F)
            for plane in planes]


def _recolour_by_hsv(image, colour):
    image = image.astype(np.float32)
    if colour.brightness:
        image += np.float32(colour.brightness)
    cv2.cvtColor(image, cv2.COLOR_BGR2HSV, dst=image)
    if colour.saturation != 1:
        image[:, :, 1] *= np.float32(colour.saturation)
    _turn_hue(image[:, :, 0], np.float32(colour.hue))
    cv2.cvtColor(image, cv2.COLOR_HSV2BGR, dst=image)
    if colour.contrast != 1:
        image *= np.float32(colour.contrast)
    return image


def _turn_hue(hue, degrees):
    """Add ``degrees`` in place, within 0..360."""
    hue += degrees
    if degrees > 0:
        hue[hue > 360] -= 360
    else:
        hue[hue < 0] += 360


def _margins(part, view):
    """(top, bottom, left, right) between a part and the edges of the view's window."""
    window = view.window
    left, right = part.x1 - window.x1, window.x2 - part.x2
    if view.flip:
        left, right = right, left
    return part.y1 - window.y1, window.y2 - part.y2, left, right


def _pad(image, margins, fill):
    return cv2.copyMakeBorder(image, *margins, cv2.BORDER_CONSTANT, value=fill) \
        if any(margins) else image


def _resize_padded(plane, margins, fill, out):
    """Resize a plane with ``margins`` around it to ``out``, in float32: 8-bit images are not
    rounded a second time.  One direction after the other, as the canvas of an expanded image has
    up to 16 times its pixels."""
    rows, columns = out.shape
    top, bottom, left, right = margins
    if any(margins):
        plane = cv2.resize(_pad(plane, (0, 0, left, right), fill), (columns, len(plane)))
        plane = _pad(plane, (top, bottom, 0, 0), fill)
    cv2.resize(plane, (columns, rows), dst=out)


def _reduction(image, view):
    """How many times fewer rows and columns of a JPEG will do: 1, 2, 4 or 8.

    The image itself has to be that much larger than the view, and the window too, which a crop
    makes smaller.  An image of the usual size that was expanded is read as the reference reads it.
    """
    shrinkage = min(side / seen for sides in (image.size, view.window.size)
                    for side, seen in zip(sides, view.size))
    return next((number for number in _REDUCTIONS if number <= shrinkage), 1)


def _see_reduced(image, reduction, view, out):
    """``see_planes`` of an image that is ``reduction`` times smaller than the view's pixels."""
    (x1, y1, x2, y2), (width, height) = view.window, view.size
    around = Window(x1 // reduction - _MARGIN, y1 // reduction - _MARGIN,
                    x2 // reduction + _MARGIN + 1, y2 // reduction + _MARGIN + 1)
    part = around.within(whole(image))
    # Pixel centres: column c of the view lies (c + 0.5) * step from the window's edge
    step_x, step_y = (x2 - x1) / width / reduction, (y2 - y1) / height / reduction
    start_x = x1 / reduction + step_x / 2 - 0.5 - part.x1
    start_y = y1 / reduction + step_y / 2 - 0.5 - part.y1
    if view.flip:
        start_x, step_x = start_x + (width - 1) * step_x, -step_x
    matrix = np.array([[step_x, 0, start_x], [0, step_y, start_y]])
    planes = _float_planes(image[part.slices], view.colour)
    for plane, fill, seen in zip(planes, view.fill, out[::-1]):
        cv2.warpAffine(plane, matrix, view.size, dst=seen, borderValue=fill,
                       flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    return out
