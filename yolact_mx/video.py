"""Frames of video files and webcams, in and out, with OpenCV."""
import logging
import os
import time

import cv2

from .errors import DatasetError

# A broken file is reported once, by our own line, not also by FFmpeg's.
os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
cv2.setLogLevel(0)

logger = logging.getLogger(__name__)

_USUAL_RATE = 25.0  # frames a second, where file or camera do not say
_HIGHEST_RATE = 1000
# Some containers only estimate how many frames they hold
_ENOUGH = 0.9


def read_video(path):
    """Frames of a video file: yields (frames a second, (H, W, 3) uint8 BGR).

    Frames are turned as the file says.  Raises DatasetError that names the file: at once when it
    cannot be opened or has no frame, at the end when it announced many more than could be read.
    """
    if not path.is_file():
        raise DatasetError("video '{}' does not exist".format(path))
    capture, count = cv2.VideoCapture(str(path)), 0
    try:
        rate, expected = _rate(capture, path), capture.get(cv2.CAP_PROP_FRAME_COUNT)
        while True:
            there, image = capture.read()
            if not there:
                break
            count += 1
            yield rate, image
    finally:
        capture.release()
    if not count:
        raise DatasetError("{}: not a video, or of a codec that OpenCV cannot read".format(path))
    if count < _ENOUGH * expected:
        raise DatasetError("{}: damaged video ({} of {:.0f} frames could be read)".format(
            path, count, expected))


def read_webcam(index):
    """Frames of a camera until it stops: yields (frames a second, seconds, (H, W, 3) uint8 BGR).

    seconds: since the first frame.  Raises DatasetError when the camera cannot be opened, and
    when it gives no more frames.
    """
    capture, started = cv2.VideoCapture(index), None
    try:
        if not capture.isOpened():
            raise DatasetError("webcam {}: there is none, or it is in use".format(index))
        rate = _rate(capture, "webcam {}".format(index))
        while True:
            there, image = capture.read()
            if not there:
                raise DatasetError("webcam {}: no more frames".format(index))
            started = started or time.monotonic()
            yield rate, time.monotonic() - started, image
    finally:
        capture.release()


class VideoFile:
    """An mp4 file (MPEG-4) that frames are written to.

    Parameters
    ----------
    path : Path
    rate : float
        Frames a second.
    width, height : int
        Of the frames.  The codec knows even sizes only: an odd one gets its last row or column
        twice.

    Raises
    ------
    DatasetError
        If the file cannot be written, or cannot be read back when it is closed.
    """

    def __init__(self, path, rate, width, height):
        self.path, self.rate, self.frames = path, rate, 0
        self._size = width + width % 2, height + height % 2
        codec = cv2.VideoWriter_fourcc(*"mp4v")
        self._writer = cv2.VideoWriter(str(path), codec, rate, self._size)
        if not self._writer.isOpened():
            raise DatasetError("video '{}' cannot be written ({}x{} pixels, {:g} frames a second)"
                               .format(path, *self._size, rate))

    def write(self, image, seconds=None):
        """Add a frame, BGR; with ``seconds`` since the first one as often as time has passed.

        A camera's frames come at the pace of the network, and the film would run too quickly.
        """
        due = 1 if seconds is None else max(1, round(seconds * self.rate) + 1 - self.frames)
        image = self._fitted(image)
        for _ in range(due):
            self._writer.write(image)
        self.frames += due

    def close(self):
        self._writer.release()
        capture = cv2.VideoCapture(str(self.path))  # the writer does not say when a disk is full
        readable = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
        capture.release()
        if readable < self.frames:
            raise DatasetError("video '{}': {} frames written, {} can be read (disk full?)".format(
                self.path, self.frames, readable))

    def _fitted(self, image):
        right, bottom = (size - length for size, length in zip(self._size, image.shape[1::-1]))
        if right in (0, 1) and bottom in (0, 1):
            return cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
        return cv2.resize(image, self._size)  # a stream may change its size; others are ignored


def _rate(capture, name):
    rate = capture.get(cv2.CAP_PROP_FPS)
    if 0 < rate <= _HIGHEST_RATE:
        return rate
    if capture.isOpened():
        logger.info("%s states no frame rate: %g frames a second assumed", name, _USUAL_RATE)
    return _USUAL_RATE
