"""Detections as polygons that the annotation tool labelme opens."""
import json
import logging
import os
from pathlib import Path

import cv2
import numpy as np

from .errors import DatasetError
from .outputs import write_png

logger = logging.getLogger(__name__)

_VERSION = "5.0.0"  # of the format
_TOLERANCE = 0.7  # pixels that a polygon may leave the outline of its mask


class LabelmeFiles:
    """NAME.json for each frame, with the polygons of its instances.

    The parts of an instance share a ``group_id``.  Holes are filled, since a polygon has none, and
    counted.  Beside the json of a video's frame lies the frame itself, as a PNG.

    Parameters
    ----------
    folder : Path
        Made if needed.
    classes : list of str
    paths : list of Path
        The sources.  DatasetError where there is a json already: it could be work by hand.
    """

    def __init__(self, folder, classes, paths=()):
        self._folder, self._classes, self._holes, self._empty = Path(folder), classes, 0, 0
        for path in paths:
            self._refuse(self._folder / (path.stem + ".json"))
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, frame, found):
        target = self._folder / (frame.name + ".json")
        self._refuse(target)
        picture = frame.path
        if frame.number is not None:
            picture = self._folder / (frame.name + ".png")
            write_png(picture, frame.image)
        height, width = frame.image.shape[:2]
        content = {
            "version": _VERSION, "flags": {},
            "shapes": [shape for i in range(len(found)) for shape in self._shapes(found, i)],
            "imagePath": os.path.relpath(str(picture), str(self._folder)), "imageData": None,
            "imageHeight": height, "imageWidth": width}
        target.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")

    def close(self):
        if self._empty:
            logger.warning("%d instances have a mask without any pixel, and no polygon",
                           self._empty)
        if self._holes:
            logger.warning("%d holes in masks are filled: labelme's polygons have none",
                           self._holes)

    def _shapes(self, found, i):
        polygons, holes = outlines(found.masks[i])
        self._holes += holes
        self._empty += not polygons
        for polygon in polygons:
            yield {"label": self._classes[found.classes[i]], "points": polygon.tolist(),
                   "group_id": i + 1 if len(polygons) > 1 else None, "shape_type": "polygon",
                   "flags": {}, "description": "score {:.2f}".format(found.mask_scores[i])}

    @staticmethod
    def _refuse(target):
        if target.exists():
            raise DatasetError("'{}' exists and may be work by hand; expected another folder for "
                               "the polygons".format(target))


def outlines(mask):
    """Polygons around the parts of a mask, and how many holes they cover.

    mask: (H, W) uint8, 0 or 1.  Returns a list of (n, 2) float arrays of x, y in pixels, n >= 3,
    where the first pixel reaches from 0 to 1; empty for an empty mask.  Rasterising them gives the
    mask back but for the tolerance and the holes.
    """
    left, top, width, height = cv2.boundingRect(mask)
    # OpenCV's outlines run through the centres of pixels: those of half the size are closer
    fine = mask[top:top + height, left:left + width].repeat(2, axis=0).repeat(2, axis=1)
    contours, tree = cv2.findContours(fine, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)[-2:]
    polygons, holes = [], 0
    for i, contour in enumerate(contours):
        if tree[0, i, 3] >= 0:
            holes += 1
            continue
        simple = cv2.approxPolyDP(contour, 2 * _TOLERANCE, True)
        simple = simple if len(simple) >= 3 else contour
        polygons.append((simple.reshape(-1, 2) + 0.5) / 2 + np.array([left, top]))
    return polygons, holes
