"""COCO annotation and result files in the form that the evaluators need.

pycocotools takes much for granted: that annotation ids start at 1 (a ground truth with id 0
counts as unmatched), that ``iscrowd`` and ``area`` are there, that a result list is not empty.
Here a file is rewritten so that all of this holds; where pycocotools works on the file as it
is, the rewritten one gives the same numbers, bit for bit.
"""
import json
import logging
from numbers import Real
from pathlib import Path

from pycocotools import mask as mask_utils

from .errors import DatasetError
from .rle import is_number, to_rle

logger = logging.getLogger(__name__)


class GroundTruth:
    """Images, categories and objects of an annotation file, ids renumbered from 1.

    source: a COCO dict, or the path of a COCO json (a byte order mark is allowed).

    Attributes
    ----------
    images, categories: {original id: the record of the file}, sorted by id.
    objects: list of annotation dicts with ``id``, ``image_id`` and ``category_id`` renumbered,
        ``bbox`` xywh in pixels, ``area`` in square pixels, ``iscrowd``, and ``segmentation`` as
        compressed RLE (None when only the box is known).

    Annotations of unknown images or categories, and those with neither box nor mask, are left
    out and logged.  Raises DatasetError when the file is unusable or holds no object at all
    (crowds do not count): a metric of nothing would only look like one.
    """

    def __init__(self, source):
        self.name = "the annotations" if isinstance(source, dict) else str(source)
        content = source if isinstance(source, dict) else read_json(source)
        if not isinstance(content, dict):
            raise DatasetError("{}: expected a JSON object with images, annotations and "
                               "categories, found {}".format(self.name, type(content).__name__))
        self.images = _by_id(self._records(content, "images", ("id",)))
        self.categories = _by_id(self._records(content, "categories", ("id",)))
        self._image_number = _numbers(self.images)
        self._category_number = _numbers(self.categories)
        annotations = self._records(content, "annotations", ("image_id", "category_id"))
        self.objects = self._usable_objects(annotations)
        if all(entry["iscrowd"] for entry in self.objects):
            raise DatasetError("{}: no object to score against ({} annotations, {} of them usable "
                               "crowd regions)".format(self.name, len(annotations),
                                                       len(self.objects)))

    def dataset(self, iou_type):
        """COCO dict of the ground truth for "bbox" or "segm".

        For "segm" an object whose mask is unknown becomes an ignore region as large as its box:
        detections there are neither right nor wrong.
        """
        complete = dict if iou_type == "bbox" else self._with_mask
        return self._dataset([complete(entry) for entry in self.objects])

    def detections(self, results):
        """COCO dict of a result list; image, category, box and mask as in a result file."""
        return self._dataset([self._detection(number, result)
                              for number, result in enumerate(results, 1)])

    def objects_of(self, image_id):
        """The objects of one image, by its original id."""
        number = self._image_number[image_id]
        return [entry for entry in self.objects if entry["image_id"] == number]

    def mask_size(self, image_id):
        """(height, width) of an image, or None when the file does not say."""
        size = stated_size(self.images[image_id])
        return size and size[::-1]

    def _dataset(self, annotations):
        images = []
        for image_id, number in self._image_number.items():
            height, width = self.mask_size(image_id) or (0, 0)
            images.append({"id": number, "height": height, "width": width})
        return {"info": {}, "images": images, "annotations": annotations,
                "categories": [{"id": number, "name": str(number)}
                               for number in self._category_number.values()]}

    def _with_mask(self, entry):
        if entry["segmentation"] is not None:
            return dict(entry)
        image_id = list(self.images)[entry["image_id"] - 1]
        size = self.mask_size(image_id)
        if size is None:
            raise DatasetError("{}: image {} has no height and width, which the mask AP needs"
                               .format(self.name, image_id))
        x, y, w, h = entry["bbox"]
        left, right = min(max(x, 0), size[1]), min(max(x + w, 0), size[1])
        top, bottom = min(max(y, 0), size[0]), min(max(y + h, 0), size[0])
        rectangle = [[left, top, right, top, right, bottom, left, bottom]]
        return dict(entry, iscrowd=1, segmentation=to_rle(rectangle, *size))

    def _detection(self, number, result):
        entry = {"id": number, "image_id": self._image_number[result["image_id"]],
                 "category_id": self._category_number[result["category_id"]],
                 "score": result["score"], "iscrowd": 0}
        if result.get("segmentation"):
            entry["segmentation"] = result["segmentation"]
        # As pycocotools does: where a box is given, its area decides the size class of a mask.
        entry["bbox"] = result.get("bbox") or mask_utils.toBbox(result["segmentation"]).tolist()
        entry["area"] = (entry["bbox"][2] * entry["bbox"][3] if result.get("bbox")
                         else float(mask_utils.area(result["segmentation"])))
        return entry

    def _records(self, content, key, fields):
        records = content.get(key)
        if not isinstance(records, list):
            raise DatasetError("{}: '{}' is missing or not a list".format(self.name, key))
        for position, record in enumerate(records):
            for field in fields:
                if not isinstance(record, dict) or not _is_id(record.get(field)):
                    found = record.get(field) if isinstance(record, dict) else record
                    raise DatasetError("{}: {}[{}] needs a number or text as '{}', found {!r}"
                                       .format(self.name, key, position, field, found))
        return records

    def _usable_objects(self, annotations):
        objects, left_out, box_only = [], {}, []
        for annotation in annotations:
            entry, fault = self._object(annotation, number=len(objects) + 1)
            if fault:
                left_out.setdefault(fault, []).append(annotation.get("id"))
                continue
            objects.append(entry)
            if entry["segmentation"] is None:
                box_only.append(annotation.get("id"))
        for fault, ids in left_out.items():
            logger.warning("%s: %d annotations left out (%s): ids %s", self.name, len(ids), fault,
                           first_ids(ids))
        if box_only:
            logger.info("%s: %d objects without a usable mask are ignore regions for the mask "
                        "AP: ids %s", self.name, len(box_only), first_ids(box_only))
        return objects

    def _object(self, annotation, number):
        """The annotation as a complete entry and None, or None and the reason against it."""
        image_id, category_id = annotation["image_id"], annotation["category_id"]
        if image_id not in self.images:
            return None, "unknown image"
        if category_id not in self.categories:
            return None, "unknown category"
        size = self.mask_size(image_id)
        rle = to_rle(annotation.get("segmentation"), *size) if size else None
        box = annotation.get("bbox")
        if not _is_box(box):
            if rle is None:
                return None, "neither box nor mask"
            box = mask_utils.toBbox(rle).tolist()
        area = annotation.get("area")
        if not is_number(area):
            area = box[2] * box[3] if rle is None else float(mask_utils.area(rle))
        return {"id": number, "image_id": self._image_number[image_id],
                "category_id": self._category_number[category_id], "bbox": box, "area": area,
                "iscrowd": int(bool(annotation.get("iscrowd"))), "segmentation": rle}, None


def read_json(path):
    """Content of a JSON file in UTF-8, with or without a byte order mark."""
    try:
        return json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DatasetError("cannot read {}: {}".format(path, error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise DatasetError("{} is not valid JSON: {}".format(path, error)) from error


def read_results(path, truth):
    """List of COCO results, checked against a :class:`GroundTruth`; masks become compressed RLE.

    Every result needs image_id, category_id and score, and the same of bbox (xywh, pixels) and
    segmentation as the first one.  An empty list is a valid result: nothing was found.
    """
    results = read_json(path)
    if not isinstance(results, list):
        raise DatasetError("{}: expected a list of results, found {}"
                           .format(path, type(results).__name__))
    for position, result in enumerate(results):
        fault = _result_fault(result, results[0])
        if fault:
            raise DatasetError("{}: result {}: {}".format(path, position, fault))
    for key, known in (("image_id", truth.images), ("category_id", truth.categories)):
        unknown = [value for value in dict.fromkeys(result[key] for result in results)
                   if value not in known]
        if unknown:
            raise DatasetError("{}: {} {} not in {}".format(path, key, first_ids(unknown),
                                                            truth.name))
    return [_with_checked_mask(result, "{}: result {}".format(path, position), truth)
            for position, result in enumerate(results)]


def stated_size(image):
    """(width, height) in pixels of an image record, or None when it does not say."""
    size = image.get("width"), image.get("height")
    return size if all(isinstance(length, int) and length > 0 for length in size) else None


def first_ids(ids, limit=5):
    """"3, 8, 9" or, past the limit, "3, 8, 9, 12, 40, ... (17 in all)"."""
    ids = list(ids)
    text = ", ".join(str(value) for value in ids[:limit])
    return text if len(ids) <= limit else "{}, ... ({} in all)".format(text, len(ids))


def _result_fault(result, first):
    if not isinstance(result, dict):
        return "expected an object, found {!r}".format(result)
    for key in ("image_id", "category_id"):
        if not _is_id(result.get(key)):
            return "{} is missing or not an id".format(key)
    if not is_number(result.get("score")):
        return "score is missing or not a number"
    for key in ("bbox", "segmentation"):
        if bool(result.get(key)) != bool(first.get(key)):
            return "either all results have a {} or none".format(key)
    if not result.get("bbox") and not result.get("segmentation"):
        return "neither bbox nor segmentation"
    if result.get("bbox") and not _is_box(result["bbox"]):
        return "bbox must be four numbers, found {!r}".format(result["bbox"])
    return None


def _with_checked_mask(result, where, truth):
    segmentation = result.get("segmentation")
    if not segmentation:
        return result
    size = truth.mask_size(result["image_id"])
    if size is None:
        raise DatasetError("{}: image {} has no height and width in {}".format(
            where, result["image_id"], truth.name))
    rle = to_rle(segmentation, *size)
    if rle is None:
        raise DatasetError("{}: segmentation is not a mask of {} rows and {} columns (image {})"
                           .format(where, size[0], size[1], result["image_id"]))
    return dict(result, segmentation=rle)


def _is_box(box):
    return isinstance(box, (list, tuple)) and len(box) == 4 and all(map(is_number, box))


def _is_id(value):
    return isinstance(value, (Real, str))


def _by_id(records):
    # Numbers before texts, so that any mixture can be sorted.
    records = {record["id"]: record for record in records}
    return {key: records[key] for key in sorted(records, key=lambda k: (isinstance(k, str), k))}


def _numbers(records):
    return {key: number for number, key in enumerate(records, 1)}
