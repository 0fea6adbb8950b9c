"""Ids that a COCO json gives to pictures and classes, for results that can be scored with it."""
from pathlib import Path

from .coco_files import first_ids, read_json, stated_size
from .errors import DatasetError


class CocoIds:
    """Image ids by picture file, category ids by class name.

    Parameters
    ----------
    file : path of a COCO json; annotations are not needed.
    classes : list of str
        All must be categories of it.
    paths : list of Path
        All must be images of it: the last part of the path is its ``file_name``, folders included.

    Raises
    ------
    DatasetError
        Naming what is not there, or there twice.
    """

    def __init__(self, file, classes, paths):
        content = read_json(file)
        images, categories = (_records(content, file, key, name)
                              for key, name in (("images", "file_name"), ("categories", "name")))
        self._categories = {record["name"]: record["id"] for record in categories}
        missing = ["'{}'".format(name) for name in classes if name not in self._categories]
        if missing:
            raise DatasetError("{}: expected the classes of the network as categories, {} missing"
                               .format(file, first_ids(missing)))
        by_name = {}
        for record in images:
            by_name.setdefault(Path(record["file_name"]).name, []).append(record)
        self._images = {path: _image_of(path, by_name.get(path.name, ())) for path in paths}
        unknown = ["'{}'".format(path) for path, image in self._images.items() if image is None]
        if unknown:
            raise DatasetError("{}: expected each picture to be one of its images, and one only; "
                               "{} not".format(file, first_ids(unknown)))

    def image(self, path):
        return self._images[path]["id"]

    def size(self, path):
        """(width, height) that the file states, or None."""
        return stated_size(self._images[path])

    def category(self, name):
        return self._categories[name]


def _image_of(path, records):
    """The image record whose file name is the longest end of the path; None without one."""
    parts = path.absolute().parts
    ends = [(len(names), record) for names, record in (
        (Path(record["file_name"]).parts, record) for record in records)
        if parts[len(parts) - len(names):] == names]
    longest = max((length for length, _ in ends), default=0)
    best = [record for length, record in ends if length == longest]
    return best[0] if len(best) == 1 else None


def _records(content, file, key, name):
    records = content.get(key) if isinstance(content, dict) else None
    if not isinstance(records, list):
        raise DatasetError("{}: '{}' is missing or not a list".format(file, key))
    for position, record in enumerate(records):
        if not (isinstance(record, dict) and isinstance(record.get(name), str)
                and isinstance(record.get("id"), (int, str))):
            raise DatasetError("{}: {}[{}] needs an id and a text as '{}', found {!r}".format(
                file, key, position, name, record))
    return records
