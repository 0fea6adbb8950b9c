"""What is predicted on: pictures, folders, patterns, video files and webcams, frame by frame."""
import glob
import logging
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from .data.images import PICTURES, read_image
from .errors import DatasetError
from .video import read_video, read_webcam

logger = logging.getLogger(__name__)

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv")


class Frame(NamedTuple):
    """A picture, or one frame of a video or a webcam.

    path: the file; ``webcam0`` for a webcam.
    image: (H, W, 3) uint8 BGR, turned as its EXIF flag says.
    number: of the frame, from 0; None for a picture.
    rate: frames a second of the video; None for a picture.
    seconds: since the first frame of a webcam; else None.
    """

    path: Path
    image: np.ndarray
    number: Optional[int] = None
    rate: Optional[float] = None
    seconds: Optional[float] = None

    @property
    def name(self):
        """Name of what is written about this frame alone, without suffix."""
        number = "" if self.number is None else "_{:06d}".format(self.number)
        return self.path.stem + number


class Unreadable(NamedTuple):
    """A source that could not be read, or not to its end; the error names it."""

    path: Path
    error: DatasetError
    video: bool = False


def is_video(path):
    return path.suffix.lower() in VIDEOS


def find_sources(paths):
    """Picture and video files among ``paths``, each once.

    Of a folder all its pictures and videos, sorted by name; of a pattern (``in/*.jpg``,
    ``in/**/*.png``) all that match, sorted.  A file that is named is taken for a picture unless
    it is called like a video.  Raises DatasetError for what does not exist or holds neither.
    """
    files = []
    for path in paths:
        files.extend(_files_of(Path(path)) or _matches(str(path)))
    return list(dict.fromkeys(files))


def read_frames(paths, size_of=None):
    """Yields a :class:`Frame` for each picture and video frame, :class:`Unreadable` for the rest.

    size_of: ``size_of(path)`` -> (width, height) that a picture must have, or None for any; it
        decides whether an EXIF flag is followed (:func:`~yolact_mx.data.images.read_image`).
    """
    for path in paths:
        try:
            if is_video(path):
                for number, (rate, image) in enumerate(read_video(path)):
                    yield Frame(path, image, number, rate)
            else:
                yield Frame(path, read_image(path, size_of and size_of(path)))
        except DatasetError as error:
            yield Unreadable(path, error, is_video(path))


def webcam_path(index):
    """What stands for the path of a webcam."""
    return Path("webcam{}".format(index))


def webcam_frames(index):
    """The same of a webcam: frames until it stops, then why it did."""
    path = webcam_path(index)
    try:
        for number, (rate, seconds, image) in enumerate(read_webcam(index)):
            yield Frame(path, image, number, rate, seconds)
    except DatasetError as error:
        yield Unreadable(path, error, video=True)


def _files_of(path):
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    inside = sorted(entry for entry in path.iterdir() if entry.is_file())
    files = [entry for entry in inside if entry.suffix.lower() in PICTURES + VIDEOS]
    if not files:
        raise DatasetError("folder '{}' holds no picture ({}) and no video ({})".format(
            path, " ".join(PICTURES), " ".join(VIDEOS)))
    if len(files) < len(inside):
        logger.info("%s: %d other files are neither pictures nor videos", path,
                    len(inside) - len(files))
    return files


def _matches(pattern):
    if not glob.has_magic(pattern):
        raise DatasetError("picture or video '{}' does not exist".format(pattern))
    found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    files = [path for path in found if path.is_file()]
    if not files:
        raise DatasetError("pattern '{}': expected files, found {}".format(
            pattern, "{} folders".format(len(found)) if found else "nothing"))
    return files
