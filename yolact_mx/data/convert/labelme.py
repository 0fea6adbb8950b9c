"""labelme: a json beside each picture."""
import base64
import io
import json
import math
from functools import partial
from pathlib import PurePosixPath

import numpy as np
from pycocotools import mask as mask_utils

from ...errors import DatasetError
from ...rle import encode_mask, is_number
from ..annotations import check_segmentation, to_rle
from ..report import REASONS
from .common import Object, Picture, decode_with_pillow, name_below, read_text

RESERVED = ("__ignore__", "_background_")  # lines of labelme's label files that are no class
CIRCLE_TOLERANCE = 0.1  # pixels between a circle and the polygon that stands for it


def read_labelme(folder, names, faults):
    """Classes and ``{"train": pictures}`` of a folder of labelme files, those below included.

    Shapes of one label and one ``group_id`` are parts of one object.  The picture is the file
    ``imagePath``, else the embedded one; its size must be the one the json says.

    Parameters
    ----------
    folder : Path
    names : list of str or None
        Classes in their order; None takes all labels, sorted.
    faults : Faults
        Gets what is left out, while the pictures are consumed.

    Raises DatasetError when there is no json at all.
    """
    files = sorted(folder.rglob("*.json"))
    if not files:
        raise DatasetError("{}: expected labelme's .json files there, found none".format(folder))
    classes = None if names is None else [name for name in names if name not in RESERVED]
    return classes, {"train": _pictures(folder, files, faults)}


def _pictures(folder, files, faults):
    for path in files:
        where = name_below(path, folder)
        try:
            content = json.loads(read_text(path))
        except (DatasetError, ValueError, RecursionError) as error:
            faults.drop("file that is not json", "{} ({})".format(where, error))
            continue
        if not isinstance(content, dict) or "shapes" not in content:
            faults.note("json without 'shapes', so not of labelme: passed over", where)
        elif not isinstance(content["shapes"], list):
            faults.drop("file whose 'shapes' is not a list", where)
        else:
            try:
                name, image = _image(folder, path, content)
            except DatasetError as error:
                faults.drop("image that is missing", "{}: {}".format(where, error))
                continue
            size = content.get("imageWidth"), content.get("imageHeight")
            yield Picture(name, image, None if None in size else size,
                          partial(_objects, content["shapes"], where, faults))


def _image(folder, path, content):
    """(name below ``images/``, path or bytes of the picture)."""
    named = str(content.get("imagePath") or path.stem).replace("\\", "/")
    beside = path.parent / PurePosixPath(named).name  # where the path is another machine's
    for file in (path.parent / named, beside):
        if file.is_file():
            return name_below(file, folder), file
    data = content.get("imageData")
    if not data:
        raise DatasetError("{!r} does not exist, and none is embedded".format(named))
    return name_below(beside, folder), _decode_base64(data)


def _objects(shapes, where, faults, width, height):
    """The objects of a picture; parts of one object stand where its first one does."""
    groups = {}
    for number, shape in enumerate(shapes):
        place = "{} shapes[{}]".format(where, number)
        try:
            label, part = _label_and_part(shape, width, height)
        except DatasetError as error:
            faults.drop(error, place)
            continue
        group = shape.get("group_id")
        key = (number,) if group is None else (label, str(group))
        groups.setdefault(key, (label, [], place))[1].append(part)
    return [Object(label, _united(parts, width, height), place)
            for label, parts, place in groups.values()]


def _label_and_part(shape, width, height):
    """The label, and a checked polygon or an RLE; DatasetError gives the reason against it."""
    if not isinstance(shape, dict):
        raise DatasetError("shape that is not a json object")
    label = shape.get("label")
    if not isinstance(label, str) or not label.strip():
        raise DatasetError("shape without a label")
    part = _part(shape, width, height)
    segmentation, _, reasons = check_segmentation(
        part if isinstance(part, dict) else [part], width, height)
    if segmentation is None:
        raise DatasetError(REASONS[reasons[0]])
    return label.strip(), part


def _part(shape, width, height):
    """Polygon [x0, y0, ...] or RLE of one shape."""
    kind, points = shape.get("shape_type") or "polygon", _points(shape.get("points"))
    if kind in ("polygon", "oriented_rectangle") or (kind == "rectangle" and len(points) == 4):
        return [value for point in points for value in point]
    if kind not in ("rectangle", "circle", "mask"):
        raise DatasetError("shape of type {!r}, which has no area".format(kind))
    if len(points) != 2:
        raise DatasetError("{} that has not two points".format(kind))
    (x0, y0), (x1, y1) = points
    if kind == "rectangle":
        return [x0, y0, x1, y0, x1, y1, x0, y1]
    if kind == "circle":
        return _circle(x0, y0, math.hypot(x1 - x0, y1 - y0))
    return _mask(shape.get("mask"), round(min(x0, x1)), round(min(y0, y1)), width, height)


def _points(points):
    if not isinstance(points, list) or not all(
            isinstance(point, list) and len(point) == 2 and all(map(is_number, point))
            for point in points):
        raise DatasetError("shape whose points are not a list of [x, y]")
    return [[float(x), float(y)] for x, y in points]


def _circle(x, y, radius):
    if radius == 0:
        raise DatasetError("circle without a radius")
    sagitta = min(max(CIRCLE_TOLERANCE / radius, 1e-5), 0.1)  # of radius: 7 to 703 corners
    count = math.ceil(math.pi / math.acos(1 - sagitta))
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], 1).ravel().tolist()


def _mask(text, x, y, width, height):
    """RLE of a PNG that lies with its upper left pixel at x, y; what is outside is cut off."""
    data = _decode_base64(text)
    try:
        patch = np.asarray(decode_with_pillow(io.BytesIO(data)).convert("L")) != 0
    except Exception:  # whatever Pillow's plug-ins meet
        raise DatasetError("mask that is no image") from None
    canvas = np.zeros((height, width), bool)
    patch = patch[max(-y, 0):, max(-x, 0):]
    target = canvas[max(y, 0):, max(x, 0):][:patch.shape[0], :patch.shape[1]]
    target[:] = patch[:target.shape[0], :target.shape[1]]
    return encode_mask(canvas)


def _decode_base64(text):
    try:
        return base64.b64decode(text)
    except (TypeError, ValueError):
        raise DatasetError("embedded data that is not base64") from None


def _united(parts, width, height):
    """Polygons as they are; as soon as a part is a mask, one mask of all."""
    polygons = [part for part in parts if not isinstance(part, dict)]
    masks = [part for part in parts if isinstance(part, dict)]
    if not masks or (len(masks) == 1 and not polygons):
        return polygons or masks[0]
    checked = check_segmentation(polygons, width, height)[0]
    masks += [to_rle(checked, width, height)] if checked else []
    return encode_mask(mask_utils.decode(mask_utils.merge(masks)))
