"""What is written of detections: overlays, records in json, cut-outs (labelme.py: polygons).

Each writer has ``write(frame, found)`` for a Frame and its ImageDetections, best first, and
``close()``; :class:`Outputs` calls all of them.
"""
import json
import logging
import re
import time
from collections import Counter, deque
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np

from .errors import DatasetError
from .rle import encode_mask
from .sources import Unreadable, is_video
from .video import VideoFile
from .visualize import draw_detections, draw_note

logger = logging.getLogger(__name__)

_RATE_OVER = 30  # frames that the shown rate is an average of
_NAME_LENGTH = 60  # characters of a class name in a file name


def choose(detections, threshold=0.0, top_k=None, classes=None):
    """The ``top_k`` best Detections with a mask score above ``threshold``, best first.

    classes: indices 0..C-1 that count; None for all.
    """
    order = np.argsort(-detections.mask_scores, kind="stable")
    order = order[detections.mask_scores[order] > threshold]
    if classes is not None:
        order = order[np.isin(detections.classes[order], classes)]
    return detections.keep(order[:top_k])


class Outputs:
    """All writers together, and the count of what went through; a context manager.

    An :class:`~yolact_mx.sources.Unreadable` is logged and counted.
    """

    def __init__(self, writers):
        self._writers, self._counts, self._videos = list(writers), Counter(), set()
        self._stack = ExitStack()

    def __enter__(self):
        for writer in self._writers:
            self._stack.callback(writer.close)
        return self

    def __exit__(self, *error):
        self._stack.close()

    @property
    def failed(self):
        """How many pictures and videos could not be read, or not to their end."""
        return self._counts["bad pictures"] + self._counts["bad videos"]

    def write(self, frame, found):
        """Give a frame to all writers."""
        if isinstance(frame, Unreadable):
            logger.error("%s", frame.error)
            self._counts["bad videos" if frame.video else "bad pictures"] += 1
            return
        for writer in self._writers:
            writer.write(frame, found)
        self._counts["instances"] += len(found)
        if frame.number is None:
            self._counts["pictures"] += 1
        else:
            self._counts["frames"] += 1
            self._videos.add(frame.path)

    def summary(self, place):
        """What was done, in a line: "9 pictures, 12 instances: PLACE; 1 pictures could ..."."""
        counts, parts = self._counts, []
        if self._videos or counts["bad videos"]:
            parts.append("{} videos ({} frames)".format(len(self._videos), counts["frames"]))
        if counts["pictures"] or counts["bad pictures"] or not parts:
            parts.insert(0, "{} pictures".format(counts["pictures"]))
        line = "{}, {} instances: {}".format(", ".join(parts), counts["instances"], place)
        if counts["bad pictures"]:
            line += "; {} pictures could not be read".format(counts["bad pictures"])
        if counts["bad videos"]:
            line += "; {} videos could not be read to their end".format(counts["bad videos"])
        return line


class Overlays:
    """Frames with their instances drawn in: NAME.png of a picture, NAME.mp4 of a video.

    Parameters
    ----------
    folder : Path
        Made if needed.
    classes : list of str
    scale : int
        The drawings are so many times larger.
    show_rate : bool
        Write the frames a second of the whole way, from the second frame on, into each.
    """

    def __init__(self, folder, classes, scale=1, show_rate=False):
        self._folder, self._classes, self._scale = Path(folder), classes, scale
        self._times = deque(maxlen=_RATE_OVER) if show_rate else None
        self._video = None
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, frame, found):
        drawn = draw_detections(
            frame.image, found, self._classes, score_threshold=-1, top_k=None, scale=self._scale)
        if self._times is not None:
            self._note_rate(drawn)
        path = overlay_path(frame.path, self._folder, frame.number is not None)
        if self._video and self._video.path != path:
            self.close()
        if frame.number is None:
            write_png(path, drawn)
            return
        if self._video is None:
            self._video = VideoFile(path, frame.rate, drawn.shape[1], drawn.shape[0])
        self._video.write(drawn, frame.seconds)

    def close(self):
        video, self._video = self._video, None
        if video:
            video.close()

    def _note_rate(self, drawn):
        self._times.append(time.perf_counter())
        if len(self._times) > 1:
            passed = max(self._times[-1] - self._times[0], 1e-6)
            draw_note(drawn, "{:.1f} fps".format((len(self._times) - 1) / passed))


class JsonRecords:
    """A json list with file, class, xywh box in pixels, score and RLE mask of each instance.

    Records of a video also have the number of their ``frame``, from 0.  With ``ids``
    (:class:`~yolact_mx.coco_ids.CocoIds`) they are COCO results.  The list is written as it grows
    and is valid json once it is closed.
    """

    def __init__(self, path, classes, ids=None):
        self._classes, self._ids, self._empty = classes, ids, True
        self._file = open(str(path), "w", encoding="utf-8")
        self._file.write("[")

    def write(self, frame, found):
        for i in range(len(found)):
            self._file.write("" if self._empty else ", ")
            self._empty = False
            json.dump(self._record(frame, found, i), self._file, ensure_ascii=False)

    def close(self):
        with self._file:
            self._file.write("]")

    def _record(self, frame, found, i):
        x1, y1, x2, y2 = found.boxes[i].tolist()
        name = self._classes[found.classes[i]]
        record = {"file": frame.path.name}
        if frame.number is not None:
            record["frame"] = frame.number
        if self._ids:
            record["image_id"] = self._ids.image(frame.path)
            record["category_id"] = self._ids.category(name)
        record.update(category=name, bbox=[x1, y1, x2 - x1, y2 - y1],
                      score=float(found.mask_scores[i]), segmentation=encode_mask(found.masks[i]))
        return record


class CutOuts:
    """Each instance as FOLDER/NAME/RANK_CLASS.png, cut to its mask, transparent around it."""

    def __init__(self, folder, classes):
        self._folder, self._classes, self._empty = Path(folder), classes, 0

    def write(self, frame, found):
        number = "" if frame.number is None else "{:06d}_".format(frame.number)
        for i in range(len(found)):
            mask = found.masks[i]
            left, top, width, height = cv2.boundingRect(mask)
            if not width:
                self._empty += 1
                continue
            area = slice(top, top + height), slice(left, left + width)
            name = re.sub(r"[^\w.-]+", "_", self._classes[found.classes[i]])[:_NAME_LENGTH]
            path = self._folder / frame.path.stem / "{}{:03d}_{}.png".format(number, i + 1, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_png(path, np.dstack([frame.image[area], mask[area] * 255]))

    def close(self):
        if self._empty:
            logger.warning("%d instances have a mask without any pixel, and no cut-out",
                           self._empty)


def overlay_path(path, folder, video):
    """Where the drawing of a source goes."""
    return Path(folder) / (path.stem + (".mp4" if video else ".png"))


def check_overlays(paths, folder):
    """Raises DatasetError where a drawing would replace a source or another drawing."""
    taken = {path.resolve(): "" for path in paths}
    for path in paths:
        target = overlay_path(path, folder, is_video(path))
        place = target.resolve()
        if place in taken:
            raise DatasetError(
                "the drawing of '{}' would overwrite '{}'{}; expected another --out".format(
                    path, target, taken[place]))
        taken[place] = ", that of '{}'".format(path)


def write_png(path, image):
    """Write (H, W, 3) BGR or (H, W, 4) BGRA uint8; an OSError says what went wrong."""
    Path(path).write_bytes(cv2.imencode(".png", image)[1].tobytes())
