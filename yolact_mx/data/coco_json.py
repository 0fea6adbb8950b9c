"""What a COCO json file says: its three lists, with ids and names checked."""
import json
from collections import Counter
from typing import List, NamedTuple

from ..errors import DatasetError

REQUIRED = ("images", "annotations", "categories")
MAX_SIDE = 1 << 20  # OpenCV reads no larger image


class ImageEntry(NamedTuple):
    """One image of the file; ``annotations`` are those of ``annotations.Annotation``.

    width, height: in pixels, None while unknown.
    """
    id: object
    file_name: str
    width: int
    height: int
    annotations: List


def read_coco_json(path):
    """The content of a COCO annotation file (UTF-8, with or without BOM) as a dict.

    Raises DatasetError for a file that cannot be read, is no json or lacks one of the lists
    ``images``, ``annotations`` and ``categories``.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = json.load(file)
    except OSError as error:
        raise DatasetError("{}: cannot open the annotation file ({})".format(
            path, error.strerror)) from None
    except UnicodeDecodeError as error:
        raise DatasetError("{}: not UTF-8 text ({})".format(path, error)) from None
    except (ValueError, RecursionError) as error:
        raise DatasetError("{}: not valid json ({})".format(path, error)) from None
    if not isinstance(content, dict):
        raise DatasetError("{}: expected a json object with {}; found a {}{}".format(
            path, ", ".join(REQUIRED), type(content).__name__,
            " (a results file?)" if isinstance(content, list) else ""))
    for key in REQUIRED:
        if key not in content:
            raise DatasetError("{}: the key {!r} is missing".format(path, key))
        if not isinstance(content[key], list):
            raise DatasetError("{}: {!r} must be a list, found {}".format(
                path, key, type(content[key]).__name__))
    return content


def plain_id(value):
    """An id as int or str (1.0 counts as 1); None for anything that cannot be an id."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) in (int, str) else None


def read_categories(content, path, report):
    """``{category id: name}``, sorted by id; names are unique.

    An entry given twice counts once.  Names that several ids share get their id appended, so
    that classes can be told apart by name.
    """
    names = {}
    for position, entry in enumerate(content["categories"]):
        identity, name = _id_and_text(entry, "name", "categories", position, path)
        if identity not in names:
            names[identity] = name
        elif names[identity] == name:
            report.warn("category_repeated", identity)
        else:
            raise DatasetError("{}: category id {} has two names, {!r} and {!r}".format(
                path, identity, names[identity], name))
    if not names:
        raise DatasetError("{}: 'categories' is empty, so there is no class to learn".format(path))
    _require_one_type(names, "category", path)
    uses = Counter(names.values())
    for identity, name in names.items():
        if uses[name] > 1:
            names[identity] = "{} (id {})".format(name, identity)
            report.warn("category_name_repeated", identity)
    return dict(sorted(names.items()))


def read_images(content, path, report):
    """``({image id: ImageEntry}, ids that several different files share)``, in file order."""
    images, ambiguous, owner = {}, set(), {}
    for position, entry in enumerate(content["images"]):
        identity, name = _id_and_text(entry, "file_name", "images", position, path)
        image = ImageEntry(identity, name.replace("\\", "/"), _side(entry.get("width")),
                           _side(entry.get("height")), [])
        known = images.setdefault(identity, image)
        if known.file_name != image.file_name:
            ambiguous.add(identity)
        elif known is not image:
            report.warn("image_repeated", identity)
        elif owner.setdefault(image.file_name, identity) != identity:
            report.warn("image_file_repeated", identity)
    _require_one_type(images, "image", path)
    report.images = len(images)
    for identity in ambiguous:
        report.warn("image_id_ambiguous", identity)
        del images[identity]
    return images, ambiguous


def match_classes(names, classes, path):
    """Positions in ``classes`` of the categories ``names``; both must hold the same names.

    The order may differ: labels follow ``classes``, the order the network was built with.
    """
    if isinstance(classes, str):
        raise DatasetError("classes must be a list of names, found the text {!r}".format(classes))
    missing = [name for name in classes if name not in names]
    extra = [name for name in names if name not in classes]
    if missing or extra:
        raise DatasetError("{}: its categories are not the expected classes; missing: {}; "
                           "not expected: {}".format(path, _listed(missing), _listed(extra)))
    return [list(classes).index(name) for name in names]


def _listed(names, shown=10):
    more = " and {} more".format(len(names) - shown) if len(names) > shown else ""
    return (", ".join(map(repr, names[:shown])) or "none") + more


def _id_and_text(entry, key, where, position, path):
    """The id and the text under ``key`` of an entry, both required."""
    if not isinstance(entry, dict):
        raise DatasetError("{}: {}[{}] is not a json object".format(path, where, position))
    identity, text = plain_id(entry.get("id")), entry.get(key)
    if identity is None:
        raise DatasetError("{}: {}[{}] has no usable id (a whole number or a text), found {!r}"
                           .format(path, where, position, entry.get("id")))
    if not isinstance(text, str) or not text.strip():
        raise DatasetError("{}: {}[{}] (id {}) has no {}, found {!r}".format(
            path, where, position, identity, key, text))
    return identity, text


def _require_one_type(ids, what, path):
    # Mixed ids cannot be sorted, and pycocotools would turn 1 into "1".
    if len(set(map(type, ids))) > 1:
        raise DatasetError("{}: {} ids must be all numbers or all texts, found both".format(
            path, what))


def _side(value):
    value = plain_id(value)
    return value if isinstance(value, int) and 0 < value < MAX_SIDE else None
