"""Pascal VOC and SBD: an image of object numbers and the class of each object.

VOC has palette PNGs, where 255 marks borders and doubtful regions: no object's.  SBD has MATLAB
files; those in ``inst/`` hold the classes as well, so ``cls/`` is not read.
"""
import numpy as np
from scipy.io import loadmat

from ...class_names import PASCAL
from ...errors import DatasetError
from ...rle import encode_mask
from .common import (
    Object,
    Picture,
    decode_with_pillow,
    name_below,
    read_text,
    require_folders,
)

VOID = 255
SUFFIXES = (".jpg", ".jpeg", ".png")


def read_voc(folder, names, faults):
    """Classes and ``{split: pictures}`` of a folder like ``VOC2012``.

    Parameters
    ----------
    folder : Path
        Has ``JPEGImages``, ``SegmentationObject``, ``SegmentationClass`` and
        ``ImageSets/Segmentation/{train,val}.txt``.
    names : list of str or None
        Classes 1, 2, ... where they are not the 20 of Pascal.
    faults : Faults
        Gets what is left out, while the pictures are consumed.

    Raises DatasetError when folders or both lists are missing.
    """
    require_folders(folder, ("JPEGImages", "SegmentationObject", "SegmentationClass"))
    names = PASCAL if names is None else names
    return names, _splits(folder / "ImageSets" / "Segmentation", lambda name: _voc_picture(
        folder, name, names, faults), faults)


def read_sbd(folder, names, faults):
    """Classes and ``{split: pictures}`` of SBD's folder ``dataset``: see ``read_voc``.

    It has ``img``, ``inst`` and ``train.txt``, ``val.txt``.
    """
    require_folders(folder, ("img", "inst"))
    names = PASCAL if names is None else names
    return names, _splits(folder, lambda name: _sbd_picture(folder, name, names, faults), faults)


def _splits(folder, picture, faults):
    lists = {split: folder / (split + ".txt") for split in ("train", "val")}
    lists = {split: path for split, path in lists.items() if path.is_file()}
    if not lists:
        raise DatasetError("{}: expected train.txt or val.txt there".format(folder))
    # Read before anything is converted: a list that is no text stops at once
    names = {split: [line.strip() for line in read_text(path).splitlines() if line.strip()]
             for split, path in lists.items()}
    return {split: _usable(names[split], picture, faults) for split in names}


def _usable(names, picture, faults):
    for name in names:
        try:
            yield picture(name)
        except DatasetError as error:
            faults.drop("picture whose masks cannot be used", error)


def _voc_picture(folder, name, classes, faults):
    path = folder / "SegmentationObject" / (name + ".png")
    numbers = _read_map(path)
    kinds = _read_map(folder / "SegmentationClass" / (name + ".png"))
    if numbers.shape != kinds.shape:
        raise DatasetError("{}: {}x{} pixels, but {}x{} in SegmentationClass".format(
            path, *numbers.shape[::-1], *kinds.shape[::-1]))

    def objects():
        for number in _object_numbers(numbers):
            mask, where = numbers == number, "{} object {}".format(path.name, number)
            inside = kinds[mask]
            counts = np.bincount(inside[(inside != 0) & (inside != VOID)])
            if np.count_nonzero(counts) > 1:
                faults.note("object with pixels of several classes, taken as the most frequent",
                            where)
            yield from _object(mask, counts.argmax() if len(counts) else 0, classes, where, faults)

    return _picture(folder / "JPEGImages", name, numbers, objects)


def _sbd_picture(folder, name, classes, faults):
    path = folder / "inst" / (name + ".mat")
    numbers, kinds = _read_mat(path)

    def objects():
        present = set(_object_numbers(numbers))
        for number in sorted(present | set(range(1, len(kinds) + 1))):
            where = "{} object {}".format(path.name, number)
            if number in present:
                kind = kinds[number - 1] if number <= len(kinds) else 0
                yield from _object(numbers == number, kind, classes, where, faults)
            else:
                faults.drop("object without a pixel", where)

    return _picture(folder / "img", name, numbers, objects)


def _object_numbers(numbers):
    return [number for number in np.unique(numbers).tolist() if number not in (0, VOID)]


def _object(mask, kind, classes, where, faults):
    """The object as a list of one, or of none when its class is not known."""
    if not 1 <= kind <= len(classes):
        faults.drop("object of unknown class", "{} (class {})".format(where, kind))
        return []
    return [Object(classes[kind - 1], encode_mask(mask), where)]


def _picture(folder, name, numbers, objects):
    files = [folder / (name + suffix) for suffix in SUFFIXES]
    path = next((path for path in files if path.is_file()), files[0])
    return Picture(name_below(path, folder), path, numbers.shape[::-1],
                   lambda width, height: list(objects()))


def _read_map(path):
    """(H, W) uint8: the number of each pixel of a palette PNG."""
    try:
        picture = decode_with_pillow(str(path))
    except FileNotFoundError:
        raise DatasetError("{}: no such file".format(path)) from None
    except Exception as error:  # whatever Pillow's plug-ins meet
        raise DatasetError("{}: damaged ({})".format(path, error)) from None
    if picture.mode not in ("P", "L"):
        raise DatasetError("{}: expected a palette or grey PNG, found mode {}".format(
            path, picture.mode))
    return np.asarray(picture)


def _read_mat(path):
    """(H, W) object numbers and the list of the objects' classes of an SBD file."""
    try:
        content = loadmat(str(path), squeeze_me=True, struct_as_record=False)["GTinst"]
        numbers, kinds = np.asarray(content.Segmentation), content.Categories
        kinds = np.atleast_1d(kinds).astype(np.int64).tolist()
    except FileNotFoundError:
        raise DatasetError("{}: no such file".format(path)) from None
    except Exception as error:  # whatever scipy meets in a damaged file
        raise DatasetError("{}: expected a MATLAB file with GTinst.Segmentation and "
                           "GTinst.Categories ({})".format(path, error)) from None
    if numbers.ndim != 2 or numbers.dtype.kind not in "ui":
        raise DatasetError("{}: GTinst.Segmentation is not an image of whole numbers".format(path))
    return numbers, kinds
