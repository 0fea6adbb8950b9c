"""A network whose findings are known beforehand, and pictures and films for it."""
from pathlib import Path

import cv2
import mxnet as mx
import numpy as np

from yolact_mx.predict import Predictor

CLASSES = ["cat", "dog"]


def graph(images):
    """Two detections an image, of which the first's score is the image's mean / 1000; padding.

    A dog in the right half, a cat in the upper left quarter (score 0.1).
    """
    count = images.shape[0]
    brightness = images.asnumpy().mean(axis=(1, 2, 3)) / 1000
    boxes = np.tile([[0.5, 0.25, 1.0, 0.75], [0, 0, 0.5, 0.5], [0, 0, 0, 0]], (count, 1, 1))
    scores = np.stack([brightness, np.full(count, 0.1), np.full(count, -1)], axis=1)
    masks = np.zeros((count, 3, 8, 8), np.float32)
    masks[:, 0, 2:6, 4:] = masks[:, 1, :4, :4] = 1
    classes = np.tile([1, 0, -1], (count, 1))
    return [boxes.astype(np.float32), scores, scores, classes, masks]


def stub_predictor():
    return Predictor(graph, CLASSES, [(16, 16)], mx.cpu())


def write_picture(path, value=200, width=40, height=20):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), np.full((height, width, 3), value, np.uint8))
    return path


def write_film(path, values=(40, 80, 120, 160, 200, 240), rate=7.5, width=40, height=20):
    """A video whose frames are grey, of these values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    codec = cv2.VideoWriter_fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
    writer = cv2.VideoWriter(str(path), codec, rate, (width, height))
    assert writer.isOpened()
    for value in values:
        writer.write(np.full((height, width, 3), value, np.uint8))
    writer.release()
    return path


def read_film(path):
    """(frames a second, list of frames)."""
    capture, frames = cv2.VideoCapture(str(path)), []
    rate = capture.get(cv2.CAP_PROP_FPS)
    while True:
        there, image = capture.read()
        if not there:
            capture.release()
            return rate, frames
        frames.append(image)


def stub_camera(monkeypatch, frames, rate=0.0, count=0.0, opened=True):
    """Replaces cv2.VideoCapture; returns the list of captures that were made.

    An exception among the frames is raised in its turn.
    """
    made = []

    class Capture:
        def __init__(self, source):
            self.source, self.left, self.released = source, list(frames), False
            made.append(self)

        def isOpened(self):
            return opened

        def get(self, key):
            return {cv2.CAP_PROP_FPS: rate, cv2.CAP_PROP_FRAME_COUNT: count}[key]

        def read(self):
            if not (opened and self.left):
                return False, None
            frame = self.left.pop(0)
            if isinstance(frame, BaseException):
                raise frame
            return True, frame

        def release(self):
            self.released = True

    monkeypatch.setattr("yolact_mx.video.cv2.VideoCapture", Capture)
    return made


def turned_picture(path):
    """A JPEG of 40x20 pixels, white on the right, that its EXIF flag turns to 20x40.

    Turned, the lower half is white.
    """
    from PIL import Image

    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 20:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(str(path), exif=exif)
    return path
