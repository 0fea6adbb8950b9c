"""COCO segmentations as run lengths, checked: pycocotools believes whatever it is given.

Run lengths that do not add up to the image make it loop for ever or show foreign memory, wild
polygon coordinates make it ask for gigabytes.
"""
import sys
from numbers import Real

import numpy as np
from pycocotools import mask as mask_utils

MAX_COORDINATE = 1e6  # pixels


def to_rle(segmentation, height, width):
    """Compressed RLE of a COCO segmentation, or None where it holds no usable part.

    Polygons: parts with fewer than three points or wild coordinates are skipped, the others
    united.  RLE (compressed, or a list of counts): it must cover height x width pixels.
    """
    if isinstance(segmentation, dict):
        return _checked(segmentation, height, width)
    if not isinstance(segmentation, list):
        return None
    parts = [part for part in segmentation if _is_polygon(part)]
    return mask_utils.merge(mask_utils.frPyObjects(parts, height, width)) if parts else None


def encode_mask(mask):
    """Compressed RLE, ready for json, of an (H, W) mask of 0 and 1."""
    rle = mask_utils.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": rle["size"], "counts": rle["counts"].decode("ascii")}


def run_lengths(counts):
    """(n,) int64 lengths of the runs, or None for counts that mean nothing.

    counts: a list of whole numbers from 0 on, or the compressed text (str or bytes).  There each
    number is a group of characters from "0" on with 5 bits of value each, lowest first, in
    two's complement, and a sixth bit "more follows"; from the fourth number on it is the
    difference to the number two before.
    """
    if isinstance(counts, list):
        valid = all(is_number(count) and 0 <= count < 1 << 32 and count == int(count)
                    for count in counts)
        return np.array(counts, np.int64) if valid else None
    if isinstance(counts, str) and counts.isascii():
        counts = counts.encode("ascii")
    if not isinstance(counts, bytes) or not counts:
        return None
    bits = np.frombuffer(counts, np.uint8) - np.uint8(ord("0"))  # what is below "0" wraps round
    ends = np.flatnonzero(bits & 0x20 == 0)
    if bits.max() > 0x3F or not len(ends) or ends[-1] != len(bits) - 1:
        return None
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    lengths = ends + 1 - starts
    if lengths.max() > 7:  # 35 bits, more than any image has pixels
        return None
    shifts = 5 * (np.arange(len(bits)) - np.repeat(starts, lengths))
    runs = np.add.reduceat((bits & 0x1F).astype(np.int64) << shifts, starts)
    runs -= (bits[ends] >> 4 & 1).astype(np.int64) << 5 * lengths  # the sign
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return runs if (runs >= 0).all() else None


def decode_part(rle):
    """``(x, y, part)``: the pixels of a compressed RLE within its bounding box, (h, w) uint8.

    The time depends on the object, not on the image.  The RLE has to be a valid one.
    """
    x, y, width, height = mask_utils.toBbox(rle).astype(int).tolist()
    rows = rle["size"][0]
    edges = np.cumsum(run_lengths(rle["counts"])) - x * rows  # between zeros and ones, in turns
    column_wise = np.zeros(width * rows, np.uint8)
    for start, end in zip(edges[0::2].tolist(), edges[1::2].tolist()):
        column_wise[start:end] = 1
    return x, y, column_wise.reshape(width, rows)[:, y:y + height].T


def is_number(value):
    """Whether a JSON value is a finite number; NaN and integers beyond any float are not."""
    return isinstance(value, Real) and abs(value) <= sys.float_info.max


def _checked(rle, height, width):
    if rle.get("size") not in ([height, width], (height, width)):
        return None
    counts = rle.get("counts")
    runs = run_lengths(counts)
    if runs is None or runs.sum() != height * width:
        return None
    if isinstance(counts, list):
        return mask_utils.frPyObjects({"size": [height, width], "counts": counts}, height, width)
    return {"size": [height, width], "counts": counts}


def _is_polygon(part):
    return (isinstance(part, list) and len(part) >= 6 and
            all(is_number(value) and abs(value) < MAX_COORDINATE for value in part))
