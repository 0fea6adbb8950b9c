"""Generated data sets in the formats that tools/convert_dataset.py reads, for tests.

A scene is (image (H, W, 3) uint8, list of (class name, (H, W) bool mask)).
"""
import base64
import io
import json
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from pycocotools import mask as mask_utils
from scipy.io import savemat

from yolact_mx.class_names import PASCAL
from yolact_mx.data import shapes
from yolact_mx.data.transforms import sample_rng

SIZE = 72
VOID = 255


def make_scenes(count, seed=3):
    """Scenes of textured shapes that overlap and have holes, their classes Pascal's first five."""
    for i in range(count):
        image, objects = shapes.draw_scene(sample_rng(seed, 0, i), SIZE)
        yield image[:SIZE - 8], [(PASCAL[o.label], o.mask[:SIZE - 8]) for o in objects
                                 if o.mask[:SIZE - 8].any()]


def polygons_of(mask):
    """Polygons [x0, y0, ...] around the parts of a mask, holes filled; corners of the pixels."""
    large = cv2.resize(mask.astype(np.uint8), None, fx=4, fy=4, interpolation=cv2.INTER_NEAREST)
    contours, _ = cv2.findContours(large, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [((c.reshape(-1, 2) + 0.5) / 4).ravel().tolist() for c in contours if len(c) > 2]


def rasterise(polygons, height=SIZE - 8, width=SIZE):
    """(H, W) bool of the union of polygons, by pycocotools."""
    return mask_utils.decode(mask_utils.merge(
        mask_utils.frPyObjects(polygons, height, width))).astype(bool)


def picture_bytes(image, kind=".png"):
    return cv2.imencode(kind, image)[1].tobytes()


def write(path, content):
    """Write bytes, text or what json holds, with the folders above; returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, (bytes, str)):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def number_maps(objects, shape, names=PASCAL):
    """(object numbers, class numbers), both (H, W) uint8."""
    numbers, kinds = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    for number, (name, mask) in enumerate(objects, 1):
        numbers[mask], kinds[mask] = number, names.index(name) + 1
    return numbers, kinds


def palette_png(values):
    file, picture = io.BytesIO(), Image.fromarray(values, "P")
    picture.putpalette(list(np.random.RandomState(0).randint(0, 256, 768)))
    picture.save(file, "PNG")
    return file.getvalue()


def write_voc(folder, splits, void=None, names=PASCAL):
    """splits: {"train": scenes, ...}; void: (H, W) bool, painted over both maps."""
    for split, scenes in splits.items():
        for i, (image, objects) in enumerate(scenes):
            name = "{}_{}".format(split, i)
            write(folder / "JPEGImages" / (name + ".jpg"), picture_bytes(image, ".jpg"))
            for part, values in zip(("SegmentationObject", "SegmentationClass"),
                                    number_maps(objects, image.shape[:2], names)):
                if void is not None:
                    values[void] = VOID
                write(folder / part / (name + ".png"), palette_png(values))
        names_of = ["{}_{}".format(split, i) for i in range(len(scenes))]
        write(folder / "ImageSets" / "Segmentation" / (split + ".txt"), "\n".join(names_of) + "\n")
    return folder


def write_sbd(folder, splits):
    for split, scenes in splits.items():
        for i, (image, objects) in enumerate(scenes):
            name = "{}_{}".format(split, i)
            write(folder / "img" / (name + ".jpg"), picture_bytes(image, ".jpg"))
            numbers, _ = number_maps(objects, image.shape[:2])
            write_inst(folder / "inst" / (name + ".mat"), numbers,
                       [PASCAL.index(label) + 1 for label, _ in objects])
        write(folder / (split + ".txt"), "".join(
            "{}_{}\n".format(split, i) for i in range(len(scenes))))
    return folder


def write_inst(path, numbers, kinds):
    """An ``inst`` file of SBD, with a column of classes as in the original ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(str(path), {"GTinst": {"Segmentation": numbers, "Categories": np.array(
        kinds, np.uint8).reshape(-1, 1), "Boundaries": np.zeros((1, 1))}})


def labelme_shape(label, points, kind="polygon", group=None, **other):
    """points: flat [x0, y0, x1, y1, ...]."""
    return dict(label=label, points=[list(p) for p in zip(points[::2], points[1::2])],
                shape_type=kind, group_id=group, flags={}, **other)


def labelme_mask(label, mask, group=None):
    """The shape type ``mask``: a PNG of the part inside the box of the mask."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    y0, y1, x0, x1 = rows[0], rows[-1], columns[0], columns[-1]
    file = io.BytesIO()
    Image.fromarray(mask[y0:y1 + 1, x0:x1 + 1]).save(file, "PNG")
    return labelme_shape(label, list(map(float, (x0, y0, x1, y1))), "mask", group,
                         mask=base64.b64encode(file.getvalue()).decode("ascii"))


def labelme_json(shape_list, image_path, width=SIZE, height=SIZE - 8, data=None):
    return dict(version="5.5.0", flags={}, shapes=shape_list, imagePath=image_path,
                imageData=data and base64.b64encode(data).decode("ascii"),
                imageHeight=height, imageWidth=width)


def write_labelme(folder, scenes):
    """Pictures beside their json; parts of one object share a group; masks where it has a hole."""
    for i, (image, objects) in enumerate(scenes):
        shape_list = []
        for number, (label, mask) in enumerate(objects):
            polygons = polygons_of(mask)
            group = number if len(polygons) > 1 else None
            shape_list += [labelme_shape(label, polygon, group=group) for polygon in polygons]
        write(folder / "{}.png".format(i), picture_bytes(image))
        write(folder / "{}.json".format(i), labelme_json(shape_list, "{}.png".format(i)))
    return folder


def yolo_line(number, polygon, height=SIZE - 8, width=SIZE):
    return " ".join([str(number)] + [repr(value / (height if k % 2 else width))
                                     for k, value in enumerate(polygon)])


def write_yolo(folder, places, settings):
    """places: {"images/train": scenes, ...}; one line for the largest part of each object."""
    for place, scenes in places.items():
        for i, (image, objects) in enumerate(scenes):
            lines = [yolo_line(PASCAL.index(label), max(polygons_of(mask), key=len))
                     for label, mask in objects]
            name = "{}_{}".format(place.replace("/", "_"), i)
            write(folder / place / (name + ".png"), picture_bytes(image))
            write(folder / place.replace("images", "labels") / (name + ".txt"),
                  "\n".join(lines) + "\n")
    if settings is not None:
        write(folder / "data.yaml", settings)
    return folder
