"""A generated instance-segmentation data set in COCO format: textured shapes on cluttered ground.

The five classes differ by shape only; colour, texture, size, rotation and proportions are drawn at
random.  Objects overlap, and a mask holds what is visible of one.  Every object stays at least
``MIN_VISIBLE`` visible (others are not drawn), so nothing in an image lacks its annotation.
"""
import json
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from pycocotools import mask as coco_mask

from ..errors import DatasetError
from .transforms import sample_rng

CLASSES = ("circle", "square", "triangle", "star", "ring")
MIN_VISIBLE = 0.75  # share of an object's pixels in the image that later ones leave uncovered
SIZES = (0.28, 0.7)  # diameter of the circle around an object, share of the image's side
CROWD_SIZES = (0.05, 0.08)
CROWD_RATE = 0.12  # share of the images that have a crowd

_SMALLEST = 48  # pixels; below, the smallest objects are specks
_SUBPIXELS = 16  # of the coordinates that OpenCV draws with, a power of two
_TRIALS = 20  # places tried for an object before it is given up


class Instance(NamedTuple):
    """What is visible of an object: class index, (H, W) bool mask, whether it is a crowd."""
    label: int
    mask: np.ndarray
    crowd: bool


def make_shapes(out_dir, num_train=600, num_val=100, size=160, seed=0):
    """Write ``instances_train.json``, ``instances_val.json`` and ``images/*.jpg``.

    Image i of a split depends on ``seed``, the split and i only: the same arguments give the same
    bytes, and a larger set begins with the smaller one.

    Parameters
    ----------
    out_dir : str or Path
        Folder, made if it does not exist; files of the same names are overwritten.
    num_train, num_val : int
        Images of each split.
    size : int
        Side of the square images in pixels, at least 48.
    seed : int
        Not negative.

    Raises
    ------
    DatasetError
        For a size that is too small, or an image that cannot be written.
    """
    if size < _SMALLEST:
        raise DatasetError("image size: expected at least {} pixels, found {}".format(
            _SMALLEST, size))
    out_dir = Path(out_dir)
    (out_dir / "images").mkdir(parents=True, exist_ok=True)
    for split, (name, count) in enumerate((("train", num_train), ("val", num_val))):
        images, annotations = [], []
        for i in range(count):
            image, instances = draw_scene(sample_rng(seed, split, i), size)
            file_name = "{}_{:05d}.jpg".format(name, i)
            _write_image(out_dir / "images" / file_name, image)
            # Ids are unique over both splits, so that the files can be merged
            image_id = 2 * i + split + 1
            images.append(dict(id=image_id, file_name=file_name, width=size, height=size))
            annotations += [dict(annotate(instance), id=100 * image_id + k, image_id=image_id)
                            for k, instance in enumerate(instances)]
        categories = [dict(id=k + 1, name=c, supercategory="shape") for k, c in enumerate(CLASSES)]
        content = dict(info=dict(description="shapes, seed {}".format(seed)), images=images,
                       categories=categories, annotations=annotations)
        path = out_dir / "instances_{}.json".format(name)
        path.write_text(json.dumps(content), encoding="utf-8")


def draw_scene(rng, size):
    """-> image (size, size, 3) uint8 BGR, list of Instance from back to front."""
    image = _background(rng, size)
    owner = np.zeros((size, size), np.int64)  # 0: background, k + 1: object k
    labels, crowds, areas = [], [], []
    plan = [False] * rng.randint(2, 4)
    if rng.uniform() < CROWD_RATE:
        plan.insert(0, True)
    for crowd in plan:
        label = rng.randint(len(CLASSES))
        for _ in range(_TRIALS):
            alpha = (_draw_crowd if crowd else _draw_object)(rng, CLASSES[label], size)
            if _leaves_visible(owner, alpha >= 128, areas):
                break
        else:
            continue
        _paint(rng, image, alpha)
        labels.append(label)
        crowds.append(crowd)
        areas.append(np.count_nonzero(alpha >= 128))
        owner[alpha >= 128] = len(labels)
    image = (image + rng.normal(0, 3, (size, size))).transpose(1, 2, 0)
    instances = [Instance(label, owner == k + 1, crowd)
                 for k, (label, crowd) in enumerate(zip(labels, crowds))]
    return np.clip(image, 0, 255).astype(np.uint8), instances


def annotate(instance):
    """-> COCO annotation without ids; box and area are those of the stored segmentation.

    A polygon where the visible part is one piece without holes, else run lengths.
    """
    polygon = None if instance.crowd else _polygon(instance.mask)
    height, width = instance.mask.shape
    if polygon is None:
        segmentation = dict(counts=_run_lengths(instance.mask), size=[height, width])
        rle = coco_mask.frPyObjects(segmentation, height, width)
    else:
        segmentation = [polygon]
        rle = coco_mask.merge(coco_mask.frPyObjects(segmentation, height, width))
    return dict(category_id=instance.label + 1, iscrowd=int(instance.crowd),
                bbox=coco_mask.toBbox(rle).tolist(), area=float(coco_mask.area(rle)),
                segmentation=segmentation)


def outline(name):
    """-> list of (k, 2) contours of a class in the unit circle; the second one is a hole."""
    if name == "star":
        return [_points(10, np.array([1.0, 0.53] * 5))]
    corners = {"square": 4, "triangle": 3}.get(name, 48)
    return [_points(corners, 1.0)] + ([_points(corners, 0.55)] if name == "ring" else [])


def _write_image(path, image):
    if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 95]):
        raise DatasetError("{}: cannot be written".format(path))


def _points(count, radius):
    angle = 2 * np.pi * np.arange(count) / count
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _draw_object(rng, name, size):
    radius = size * np.exp(rng.uniform(*np.log(SIZES))) / 2
    # A part of the object may lie outside the image, its centre never does
    centre = rng.uniform(0.7 * radius, size - 0.7 * radius, 2)
    return _fill(rng, name, size, radius, centre)


def _draw_crowd(rng, name, size):
    """Many tiny shapes of one class around a point, as one mask."""
    centre = rng.uniform(0.2 * size, 0.8 * size, 2)
    alpha = np.zeros((size, size), np.uint8)
    for _ in range(rng.randint(12, 25)):
        radius = size * rng.uniform(*CROWD_SIZES) / 2
        alpha |= _fill(rng, name, size, radius, centre + rng.normal(0, 0.09 * size, 2))
    return alpha


def _fill(rng, name, size, radius, centre):
    """-> (size, size) uint8: coverage 0..255 of a randomly turned and squeezed shape."""
    angle = rng.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = radius * turn * (1, rng.uniform(0.8, 1))
    contours = [np.round((contour @ matrix.T + centre) * _SUBPIXELS).astype(np.int32)
                for contour in outline(name)]
    alpha = np.zeros((size, size), np.uint8)
    return cv2.fillPoly(alpha, contours, 255, cv2.LINE_AA, int(np.log2(_SUBPIXELS)))


def _leaves_visible(owner, mask, areas):
    """Whether every object drawn so far stays visible enough under ``mask``."""
    left = np.bincount(owner[~mask], minlength=len(areas) + 1)[1:]
    return bool((left >= MIN_VISIBLE * np.array(areas)).all()) and bool(mask.any())


def _paint(rng, image, alpha):
    """Draw a textured object and its soft shadow into ``image`` (3, size, size)."""
    size = len(alpha)
    colour = _colour(rng, saturation=(0.45, 1.0), value=(0.35, 1.0))
    second = colour * rng.uniform(0.35, 0.75) if rng.randint(2) else \
        _colour(rng, saturation=(0.1, 0.9), value=(0.5, 1.0))
    pattern = _pattern(rng, size)
    x, y, width, height = cv2.boundingRect(alpha)
    margin = size // 10  # of the shadow
    area = np.s_[max(y - margin, 0):y + height + margin, max(x - margin, 0):x + width + margin]
    coverage = alpha[area].astype(np.float32) / 255
    shift = np.float32([[1, 0, 0.015 * size], [0, 1, 0.02 * size]])
    shadow = cv2.warpAffine(coverage, shift, coverage.shape[::-1])
    shadow = cv2.GaussianBlur(shadow, (0, 0), 0.02 * size)
    part = image[(slice(None),) + area]
    part *= 1 - 0.45 * shadow
    part[:] = _blend(part, _blend(colour, second, pattern[area]), coverage)


def _background(rng, size):
    """(3, size, size) float32: a muted texture with lines and specks that belong to no class."""
    colours = [_colour(rng, saturation=(0.0, 0.45), value=(0.25, 0.9)) for _ in range(3)]
    contrast = rng.uniform(0.1, 0.7)  # of the pattern
    image = _blend(_blend(colours[0], colours[1], contrast * _pattern(rng, size)), colours[2],
                   0.6 * _noise(rng, size, 4))
    clutter = np.ascontiguousarray(image.transpose(1, 2, 0))
    for _ in range(rng.randint(2, 8)):
        colour = _clutter_colour(rng)
        path = rng.uniform(-0.2, 1.2, 2) * size + np.cumsum(rng.normal(0, 0.12 * size, (6, 2)), 0)
        cv2.polylines(clutter, [path.astype(np.int32)], False, colour, rng.randint(1, 3))
    for centre in rng.randint(0, size, (rng.randint(0, 40), 2)):
        cv2.circle(clutter, tuple(centre.tolist()), 1, _clutter_colour(rng), -1)
    return _blend(image, clutter.transpose(2, 0, 1), np.float32(0.55))


def _clutter_colour(rng):
    return _colour(rng, saturation=(0.0, 0.8), value=(0.2, 1.0)).ravel().tolist()


def _pattern(rng, size):
    """(size, size) float32 in 0..1: even, gradient, stripes, checks or noise."""
    kind = rng.randint(5)
    if kind == 0:
        return np.full((size, size), rng.uniform(), np.float32)
    if kind == 1:
        return _noise(rng, size, rng.randint(6, 24))
    x = np.arange(size, dtype=np.float32) / size
    y = x[:, None]
    angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi)
    along = x * np.cos(angle) + y * np.sin(angle)
    if kind == 2:
        return (along - along.min()) / np.ptp(along)
    frequency = 2 * np.pi * rng.uniform(5, 16)
    wave = np.sin(frequency * along + phase)
    if kind == 4:
        wave = wave * np.sin(frequency * (y * np.cos(angle) - x * np.sin(angle)))
    return np.clip(0.5 + 2 * wave, 0, 1)


def _noise(rng, size, cells):
    grid = rng.uniform(0, 1, (cells, cells)).astype(np.float32)
    return np.clip(cv2.resize(grid, (size, size), interpolation=cv2.INTER_CUBIC), 0, 1)


def _blend(first, second, share):
    """From ``first`` (share 0) to ``second``: images or colours, planes first."""
    return first + share * (second - first)


def _colour(rng, saturation, value):
    hsv = np.float32([[[rng.uniform(0, 360), rng.uniform(*saturation), rng.uniform(*value)]]])
    return 255 * cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR).reshape(3, 1, 1)


def _polygon(mask):
    """Outline [x, y, x, y, ...] of a mask that is one piece without holes, else None."""
    scale = 4  # contours run through pixel centres; those of a magnified mask nearly along edges
    large = cv2.resize(mask.astype(np.uint8), None, fx=scale, fy=scale,
                       interpolation=cv2.INTER_NEAREST)
    contours, _ = cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if len(contours) != 1:
        return None
    points = cv2.approxPolyDP(contours[0], 0.4 * scale, True).reshape(-1, 2)
    return ((points + 0.5) / scale).ravel().tolist() if len(points) > 2 else None


def _run_lengths(mask):
    """Uncompressed COCO counts: run lengths down the columns, beginning with zeros."""
    pixels = np.concatenate([[False], mask.ravel(order="F")])
    edges = np.flatnonzero(np.diff(pixels))
    return np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
