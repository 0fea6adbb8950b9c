"""Tiny COCO data sets on disk, for tests: pure functions of their arguments, seeded.

Shapes are numbers of pixels, boxes are COCO's xywh, polygons lists of parts.
"""
import json
from pathlib import Path

import cv2
import numpy as np

from yolact_mx.data.coco import CocoDataset

WIDTH, HEIGHT = 100, 80
CATEGORIES = [{"id": 90, "name": "bar"}, {"id": 0, "name": "square"}, {"id": 7, "name": "disc"}]
COLOURS = {0: (40, 60, 220), 7: (220, 120, 30), 90: (60, 200, 60)}  # BGR


def image(identity, file_name=None, width=WIDTH, height=HEIGHT):
    """Entry of ``images``."""
    return {"id": identity, "file_name": file_name or "{:03d}.png".format(identity),
            "width": width, "height": height}


def square(x, y, side):
    """Polygon part that covers exactly side x side pixels."""
    return rectangle(x, y, side, side)


def rectangle(x, y, width, height):
    """Polygon part that covers exactly width x height pixels."""
    return [x, y, x + width, y, x + width, y + height, x, y + height]


def disc(x, y, radius, points=24):
    """Polygon part round the centre (x, y)."""
    angles = 2 * np.pi * np.arange(points) / points
    return np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], 1).ravel().tolist()


def list_rle(x, y, width, height, image_size=(WIDTH, HEIGHT)):
    """Uncompressed RLE of a rectangle (not at the border): columns first, starting with zeros."""
    w, h = image_size
    gap = h - height
    counts = [x * h + y] + [height, gap] * (width - 1) + [height]
    return {"size": [h, w], "counts": counts + [w * h - sum(counts)]}


def annotation(identity, image_id, category_id, segmentation, bbox, iscrowd=0):
    """Entry of ``annotations``; its area is that of the box."""
    return {"id": identity, "image_id": image_id, "category_id": category_id, "iscrowd": iscrowd,
            "segmentation": segmentation, "bbox": list(bbox), "area": bbox[2] * bbox[3]}


def square_annotation(identity, image_id=1, category_id=7, x=10, y=20, side=20, **other):
    """Annotation of a square; ``other`` replaces keys, and the value None removes one."""
    entry = annotation(identity, image_id, category_id, [square(x, y, side)], [x, y, side, side])
    return {key: value for key, value in dict(entry, **other).items() if value is not None}


def write_coco(folder, images, annotations=(), categories=CATEGORIES, name="instances_train.json"):
    """Write ``folder/name`` and, where it is not there, each image in ``folder/images``.

    The images are grey noise with the squares, discs and bars of the annotations painted by
    the box and category, so that a network can learn them.  Returns the path of the json.
    """
    folder = Path(folder)
    for entry in images:
        path = folder / "images" / entry["file_name"]
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            own = [a for a in annotations if a["image_id"] == entry["id"]]
            cv2.imencode(".png", paint(entry, own))[1].tofile(str(path))
    content = {"images": list(images), "annotations": list(annotations),
               "categories": list(categories)}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder / name


def read_coco(folder, annotations, images=None, categories=CATEGORIES, **options):
    """CocoDataset of these annotations (on image 1 alone, unless ``images`` says more)."""
    path = write_coco(folder, images or [image(1)], annotations, categories)
    return CocoDataset(path, Path(folder) / "images", **options)


def read_square(folder, **other):
    """(sample, report) of ``square_annotation(5, **other)`` on its image."""
    dataset = read_coco(folder, [square_annotation(5, **other)])
    return dataset[0], dataset.report


def paint(entry, annotations):
    """(H, W, 3) BGR uint8: noise, and the polygons of the annotations in their colours."""
    noise = np.random.RandomState(len(annotations) + entry["width"])
    picture = noise.randint(90, 150, (entry["height"], entry["width"], 3)).astype(np.uint8)
    for item in annotations:
        parts = item.get("segmentation")
        for part in parts if isinstance(parts, list) else []:
            points = _points(part)
            if points is not None:
                colour = COLOURS.get(item.get("category_id"), (200, 200, 0))
                cv2.fillPoly(picture, [points], colour)
    return picture


def _points(part):
    """(n, 1, 2) int32 of a polygon part, None for one of the faulty parts that tests write."""
    try:
        points = np.array(part, np.float64).reshape(-1, 1, 2)
    except (TypeError, ValueError, OverflowError):
        return None
    drawable = len(points) and (np.abs(points) < 1e4).all()
    return points.round().astype(np.int32) if drawable else None


def tiny_dataset(folder):
    """Write a valid data set as ``--data DIR`` expects it and return ``folder`` as a Path.

    ``instances_train.json``: 6 images 100x80; 9 objects of three classes (ids 0, 7, 90 in
    disorder), one of two parts, one crowd RLE beside objects, one image without objects.
    ``instances_val.json``: 3 images, 4 objects.
    """
    train = [
        annotation(1, 1, 0, [square(10, 10, 30)], [10, 10, 30, 30]),
        annotation(2, 1, 7, [disc(70, 40, 18)], [52, 22, 36, 36]),
        annotation(3, 2, 90, [rectangle(10, 30, 70, 16)], [10, 30, 70, 16]),
        annotation(4, 2, 7, list_rle(60, 52, 30, 24), [60, 52, 30, 24], iscrowd=1),
        annotation(5, 3, 0, [square(5, 40, 24), square(45, 40, 24)], [5, 40, 64, 24]),
        annotation(6, 4, 7, [disc(30, 40, 24)], [6, 16, 48, 48]),
        annotation(7, 4, 0, [square(24, 34, 12)], [24, 34, 12, 12]),
        annotation(8, 5, 90, [rectangle(40, 5, 18, 68)], [40, 5, 18, 68]),
        annotation(9, 5, 0, [square(68, 30, 26)], [68, 30, 26, 26]),
    ]
    val = [
        annotation(1, 11, 0, [square(20, 20, 36)], [20, 20, 36, 36]),
        annotation(2, 12, 7, [disc(50, 40, 26)], [24, 14, 52, 52]),
        annotation(3, 13, 90, [rectangle(8, 50, 80, 18)], [8, 50, 80, 18]),
        annotation(4, 13, 0, [square(30, 8, 28)], [30, 8, 28, 28]),
    ]
    write_coco(folder, [image(i) for i in range(1, 7)], train)
    write_coco(folder, [image(i) for i in range(11, 14)], val, name="instances_val.json")
    return Path(folder)
