"""What the readers of all formats share: pictures, objects, faults and text files."""
import os
from pathlib import Path, PurePosixPath
from typing import Callable, List, NamedTuple, Optional, Tuple, Union

from PIL import Image, ImageFile

from ...errors import DatasetError

SPLITS = ("train", "val", "test")
PLACES_SHOWN = 5


class Object(NamedTuple):
    """An object of a picture.

    label: name of its class.
    segmentation: list of polygons [x0, y0, x1, y1, ...] in pixels, or a compressed RLE.
    where: its place in the source, for messages.
    """
    label: str
    segmentation: Union[List, dict]
    where: str


class Picture(NamedTuple):
    """A picture of the source.

    file_name: its path below ``images/``, with ``/`` between folders.
    content: path of the image file, or the bytes of one that the source embeds.
    size: (width, height) that the annotations hold for, in pixels; None when the image decides.
    objects: function of (width, height) that gives the objects; may raise DatasetError.
    """
    file_name: str
    content: Union[Path, bytes]
    size: Optional[Tuple[int, int]]
    objects: Callable[[int, int], List[Object]]


class Faults:
    """What was left out, and what was taken otherwise than it stands: reason -> places."""

    def __init__(self):
        self.dropped, self.notes = {}, {}

    def drop(self, reason, where):
        """Count a picture, an object or a part of one that is left out."""
        self.dropped.setdefault(str(reason), []).append(str(where))

    def note(self, reason, where):
        """Count something that is no fault, yet should be known."""
        self.notes.setdefault(str(reason), []).append(str(where))

    def lines(self):
        """One line a reason with its number and first places, for a terminal."""
        return _lines("left out:", self.dropped) + _lines("notes:", self.notes)


def _lines(title, reasons):
    return [title] * bool(reasons) + ["  {}: {}: {}{}".format(
        reason, len(places), "; ".join(places[:PLACES_SHOWN]),
        "; ..." if len(places) > PLACES_SHOWN else "") for reason, places in reasons.items()]


def decode_with_pillow(file):
    """Pillow's image, values of a palette kept; raises whatever a damaged file makes it meet."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # GluonCV sets it, for the whole process
    with Image.open(file) as picture:
        picture.load()
    return picture


def name_below(path, folder):
    """Path from ``folder`` to a file, with ``/``; of a file elsewhere what follows the ``..``."""
    parts = Path(os.path.relpath(str(path), str(folder))).parts
    return str(PurePosixPath(*[part for part in parts if part != ".."]))


def require_folders(folder, names):
    """Raise DatasetError, naming what is missing, unless ``folder`` has all these folders."""
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        raise DatasetError("{}: expected the folders {} there; missing: {}".format(
            folder, ", ".join(names), ", ".join(missing)))


def read_text(path):
    """Content of a UTF-8 file, with or without BOM; DatasetError when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError("{}: cannot be opened ({})".format(path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise DatasetError("{}: not UTF-8 text ({})".format(path, error)) from None


def read_class_names(path):
    """Names of the classes, one a line; DatasetError for an empty line or a repeated name."""
    names = [line.strip() for line in read_text(path).rstrip().splitlines()]
    for number, name in enumerate(names or [""], 1):
        if not name:
            raise DatasetError("{}: expected the name of a class on each line, line {} is empty"
                               .format(path, number))
    require_unique(names, path)
    return names


def require_unique(names, path):
    """Raise DatasetError when a class name occurs twice, since objects are told apart by it."""
    for name in names:
        if list(names).count(name) > 1:
            raise DatasetError("{}: the class name {!r} occurs more than once".format(path, name))
