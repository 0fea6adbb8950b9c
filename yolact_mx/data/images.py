"""Reading any image file into (H, W, 3) uint8 BGR.

One rule per peculiarity, for training, evaluation and prediction alike:

=================  =============================================================
grey, 1-bit        the value in all three channels
palette, CMYK      converted to BGR
16 bits            scaled to 8 bits by value / 256; the range is never stretched
transparency       the alpha channel is dropped, the colour below it stays
EXIF rotation      applied (not in WebP), unless only the unrotated image has the
                   wanted size
=================  =============================================================

A JPEG can be decoded at a fraction of its size, in a fraction of the time.
"""
import io
import os

import cv2
import numpy as np
from PIL import Image, ImageFile, ImageOps

from ..errors import DatasetError

# A broken file is reported once, by our own line, not also by several of OpenCV's.
cv2.setLogLevel(0)

# Suffixes by which the pictures in a folder are known; a file that is named may have any
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")

# Bytes that close a complete file, by the bytes that open it.  OpenCV accepts a cut JPEG and
# leaves whatever was in memory in the missing part; libpng prints its own message.
_CLOSING = {b"\xff\xd8\xff": b"\xff\xd9", b"\x89PNG": b"IEND"}
_CLOSING_WINDOW = 64

_REDUCED = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4,
            8: cv2.IMREAD_REDUCED_COLOR_8}
_ORIENTATION = 0x0112  # EXIF tag; 1: upright, from 5 on width and height are exchanged


class UnreadImage:
    """An image that is not read yet.

    path : of the file.  size : (width, height) that it must have.
    shape : (height, width, 3)
    """

    def __init__(self, path, size):
        self.path, self.size = path, tuple(size)
        self.shape = self.size[::-1] + (3,)

    def read(self, reduction=1):
        """(H, W, 3) uint8 BGR; DatasetError when the file is damaged or of another size.

        reduction: 2, 4 or 8 decodes a JPEG to so many times fewer rows and columns (rounded up),
            each pixel the mean of those it stands for.  Other files come in full.
        """
        data = _read_bytes(self.path)
        if reduction > 1:
            image = _decode_reduced(data, self.size, reduction)
            if image is not None:
                return image
        return decode_image(data, self.path, self.size)


def read_image(path, size=None):
    """Read an image file.

    Parameters
    ----------
    path : str or Path, of any format OpenCV or Pillow reads.
    size : (width, height) that the image must have, in pixels, or None for any.  The
        annotations of an image hold in the orientation of that size, so an image whose EXIF
        flag turns it away from ``size`` is used unturned.

    Returns
    -------
    (H, W, 3) uint8 array, BGR.

    Raises
    ------
    DatasetError
        Naming the file: missing, empty, truncated, not an image, or not of ``size``.
    """
    return decode_image(_read_bytes(path), path, size)


def decode_image(data, path, size=None):
    """``read_image`` of a file's content; ``path`` is its name in messages."""
    image = _decode(data, cv2.IMREAD_COLOR)
    if image is None:
        image = _decode_with_pillow(data, path)
    if size is None or _size(image) == tuple(size):
        return image
    unturned = _decode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if unturned is not None and _size(unturned) == tuple(size):
        return unturned
    raise DatasetError("{}: expected an image of {}x{} pixels (width x height), found {}x{}".format(
        path, *size, *_size(image)))


def _size(image):
    return image.shape[1], image.shape[0]


def _read_bytes(path):
    # Python opens the file because it knows the encoding of file names; OpenCV does not.
    try:
        with open(os.fspath(path), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise DatasetError("{}: no such image file".format(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DatasetError("{}: cannot open the image ({})".format(path, reason)) from None
    if not data:
        raise DatasetError("{}: the image file is empty (0 bytes)".format(path))
    return data


def _is_complete(data):
    for opening, closing in _CLOSING.items():
        if data.startswith(opening):
            return closing in data[-_CLOSING_WINDOW:]
    return True


def _decode(data, flags):
    """Decode with OpenCV; None where it cannot or should not."""
    if not _is_complete(data):
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:  # e.g. more pixels than OpenCV allows
        return None


def _decode_reduced(data, size, reduction):
    """A JPEG of ``size`` at a fraction of it; None for anything that is not so simple."""
    try:
        with Image.open(io.BytesIO(data)) as picture:  # reads the header only
            kind, stored = picture.format, picture.size
            orientation = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # whatever Pillow meets in a damaged file; the full way names it
        return None
    turned = stored[::-1] if orientation in (5, 6, 7, 8) else stored
    if kind != "JPEG" or size not in (stored, turned):
        return None
    flags = _REDUCED[reduction]
    if turned != size:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    elif orientation != 1 and (size[0] % reduction or size[1] % reduction):
        return None  # the last row or column stands for less, and may be the first after a turn
    image = _decode(data, flags)
    reduced = tuple(-(-side // reduction) for side in size)
    return image if image is not None and _size(image) == reduced else None


def _decode_with_pillow(data, path):
    """Decode what OpenCV cannot: GIF and others, and files with bytes after their end."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # GluonCV sets it, for the whole process
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.mode[0] in "IF":
                raise DatasetError("{}: pixels of type {!r} are not supported; "
                                   "save the image with 8 bits".format(path, picture.mode))
            rgb = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    except DatasetError:
        raise
    except Image.UnidentifiedImageError:
        raise DatasetError("{}: not an image (the file begins with {!r})".format(
            path, data[:8])) from None
    except Exception as error:  # Pillow's plug-ins raise whatever a damaged file makes them meet
        kind = "damaged image" if _is_complete(data) else "truncated image"
        raise DatasetError("{}: {} of {} bytes ({})".format(
            path, kind, len(data), error)) from None
    return np.ascontiguousarray(rgb[:, :, ::-1])
