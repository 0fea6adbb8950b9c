"""YOLO segmentation: a text file for each picture, with a polygon of relative numbers a line."""
from functools import partial
from pathlib import Path

import yaml

from ...errors import DatasetError
from ..images import PICTURES
from .common import SPLITS, Object, Picture, name_below, read_text, require_unique

FOLDERS = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}
OUTSIDE_TOLERANCE = 0.01  # of the image: exporters round


def read_yolo(folder, names, faults):
    """Classes and ``{split: pictures}`` of a folder with ``images`` and ``labels``.

    The splits are those of ``data.yaml``, else the sub-folders ``train`` and ``val`` of
    ``images``, else all pictures are for training.  A line of four numbers is a box: its
    rectangle is taken for the object, and counted.

    Parameters
    ----------
    folder : Path
    names : list of str or None
        Classes 0, 1, ...; None takes those of ``data.yaml``.
    faults : Faults
        Gets what is left out, while the pictures are consumed.

    Raises DatasetError when there are no class names, no pictures, or a named split is missing.
    """
    path, settings = _read_settings(folder)
    classes = _class_names(folder, path, settings.get("names") if names is None else names)
    files = _files_of_splits(folder, path, settings)
    if not any(files.values()):
        raise DatasetError("{}: expected pictures in its folder images, found none".format(folder))
    _count_labels_alone(folder, sum(files.values(), []), faults)
    return list(classes.values()), {
        split: _pictures(folder, files[split], classes, faults) for split in files}


def _read_settings(folder):
    """(path, content) of the yaml file; content {} when there is none."""
    paths = sorted(path for suffix in ("*.yaml", "*.yml") for path in folder.glob(suffix))
    known = [path for path in paths if path.stem in ("data", "dataset")] or paths
    if len(known) > 1:
        raise DatasetError("{}: expected one data.yaml, found {}".format(
            folder, ", ".join(path.name for path in known)))
    if not known:
        return None, {}
    try:
        settings = yaml.safe_load(read_text(known[0]))
    except yaml.YAMLError as error:
        raise DatasetError("{}: not valid yaml ({})".format(
            known[0], " ".join(str(error).split()))) from None
    if not isinstance(settings, dict):
        raise DatasetError("{}: expected keys such as names, train and val".format(known[0]))
    return known[0], settings


def _class_names(folder, path, names):
    """{class number: name}."""
    if names is None:
        raise DatasetError("{}: expected the class names under 'names' in data.yaml, or a file "
                           "of class names".format(folder))
    names = dict(enumerate(names)) if isinstance(names, list) else names
    if not names or not isinstance(names, dict) or not all(type(key) is int for key in names):
        raise DatasetError("{}: 'names' must be a list of names, or numbers with names".format(
            path))
    names = {number: str(names[number]).strip() for number in sorted(names)}
    require_unique(names.values(), path or folder)
    return names


def _files_of_splits(folder, path, settings):
    """{split: sorted image files}."""
    named = {split: settings[split] for split in SPLITS if settings.get(split)}
    if named:
        return {split: _files_of_entries(folder, path, settings, split, entries)
                for split, entries in named.items()}
    usual = {split: [place for name in FOLDERS[split]
                     for place in (folder / "images" / name, folder / name / "images")]
             for split in SPLITS}
    found = {split: _images_below(place) for split, places in usual.items()
             for place in places if place.is_dir()}
    return found or {"train": _images_below(folder / "images")}


def _files_of_entries(folder, path, settings, split, entries):
    """Image files of a split: entries are folders, or text files with an image a line."""
    files = []
    for entry in entries if isinstance(entries, list) else [entries]:
        place = _find(folder, settings.get("path"), str(entry))
        if place is None:
            raise DatasetError("{}: {}: {!r} is not there".format(path, split, entry))
        if place.is_dir():
            files += _images_below(place)
        else:
            lines = [line.strip() for line in read_text(place).splitlines()]
            files += [_find(folder, settings.get("path"), line) or place.parent / line
                      for line in lines if line]
    return sorted(files)


def _find(folder, base, entry):
    """Where an entry of the yaml file is, None when nowhere.

    ``path`` is often another machine's, and some exporters write ``../train`` for ``train``.
    """
    below = entry[3:] if entry.startswith("../") else entry
    for place in (folder / str(base or ".") / entry, folder / entry, folder / below):
        if place.exists():
            return place
    return None


def _images_below(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)


def _label_file(image):
    """``.../labels/x.txt`` of ``.../images/x.jpg``; beside the picture without ``images``."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts) / (image.stem + ".txt")


def _pictures(folder, files, classes, faults):
    for image in files:
        path = _label_file(image)
        parts = [part for part in name_below(image, folder).split("/") if part != "images"]
        if not path.is_file():
            faults.note("picture without a label file, taken as one without objects",
                        name_below(image, folder))
            path = None
        yield Picture("/".join(parts), image, None, partial(
            _objects, path, folder, classes, faults))


def _count_labels_alone(folder, files, faults):
    for place in sorted({image.parent for image in files if image.parent.is_dir()}):
        pictures = {path.stem for path in place.iterdir() if path.suffix.lower() in PICTURES}
        for path in sorted(_label_file(place / "x").parent.glob("*.txt")):
            if path.stem not in pictures and path.name != "classes.txt":
                faults.drop("label file without a picture", name_below(path, folder))


def _objects(path, folder, classes, faults, width, height):
    if path is None:
        return []
    objects = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        where = "{}:{}".format(name_below(path, folder), number)
        if line.strip():
            try:
                label, values = _read_line(line, classes)
            except DatasetError as error:
                faults.drop(error, where)
                continue
            if len(values) == 4:
                faults.note("box, taken as a rectangular object", where)
                x, y, w, h = values
                x0, y0, x1, y1 = x - w / 2, y - h / 2, x + w / 2, y + h / 2
                values = [x0, y0, x1, y0, x1, y1, x0, y1]
            polygon = [value * side for value, side in zip(
                values, [width, height] * (len(values) // 2))]
            objects.append(Object(label, [polygon], where))
    return objects


def _read_line(line, classes):
    """(label, relative numbers) of a line; DatasetError gives the reason against it."""
    try:
        number, *values = map(float, line.split())
    except ValueError:
        raise DatasetError("line that is not numbers") from None
    if number not in classes:
        raise DatasetError("line with an unknown class number")
    if len(values) % 2:
        raise DatasetError("line with an odd count of coordinates")
    if len(values) < 4:
        raise DatasetError("line with fewer than four coordinates")
    if not all(-OUTSIDE_TOLERANCE <= value <= 1 + OUTSIDE_TOLERANCE for value in values):
        raise DatasetError("line with coordinates that are not between 0 and 1")
    return classes[number], values
