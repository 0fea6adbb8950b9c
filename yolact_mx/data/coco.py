"""Reading any COCO-format data set: json + images -> samples, with a report of every fault.

The rules, in short.  Categories are numbered 0..C-1 in the order of their ids.  An object is
kept with whatever of it is usable: its box alone (``has_mask`` False), its mask alone (the box
is computed), the good parts of its polygon.  What is not usable is counted in ``report``, by
reason and id.  ``iscrowd``, ``area``, ``bbox`` and ``info`` may be missing.  Polygons are united
into one mask per object; COCO polygons cannot express holes, an RLE can.  ``width`` and
``height`` of the json decide the orientation of an image (see ``images.read_image``); an image
of any other size is an error, for its annotations would be shifted.
"""
import copy
import os
from collections import defaultdict
from dataclasses import replace

import numpy as np
from pycocotools import mask as mask_utils

from ..errors import DatasetError
from . import annotations as ann
from .coco_json import match_classes, plain_id, read_categories, read_coco_json, read_images
from .images import UnreadImage, read_image
from .report import DatasetReport
from .sample import Sample
from .views import View, see_masks, whole

MISSES_SHOWN = 5


class CocoDataset:
    """A COCO annotation file and its images; ``dataset[i]`` is a :class:`Sample`.

    Parameters
    ----------
    ann_file : path of the json file.
    image_dir : folder that its ``file_name`` entries are relative to.  None when no image will
        be read, as for scoring a results file.
    classes : names the labels shall follow, e.g. those a network was trained with; the file
        must have the same names, in any order.  None takes the file's own.
    keep_empty : keep images without an object to learn (none at all, or crowds only) as
        negatives.  Evaluation needs them.

    Attributes
    ----------
    classes : list of C names; the label of an object is its position here.
    category_ids : list of C ids of the file: contiguous label -> original category id.
    image_ids : list of ids, one per image, in the order of the file.
    report : DatasetReport of the whole file.

    Raises
    ------
    DatasetError
        When the file as a whole cannot be used, or images are missing.
    """

    def __init__(self, ann_file, image_dir=None, classes=None, keep_empty=True):
        self.ann_file, self.image_dir = str(ann_file), image_dir
        self.report = DatasetReport()
        content = read_coco_json(ann_file)
        names = read_categories(content, ann_file, self.report)
        self._set_classes(names, classes)
        images, ambiguous = read_images(content, ann_file, self.report)
        if image_dir is not None:
            self._require_files(images.values())
        images = {image.id: self._with_size(image) for image in images.values()}
        entries = _entries_by_image(content["annotations"], images, ambiguous, names, self.report)
        for identity, image in images.items():
            image.annotations.extend(_usable(entries[identity], image, self.report))
        _warn_repeated_ids(images.values(), self.report)
        self._images = self._select(images.values(), keep_empty)

    def _set_classes(self, names, classes):
        labels = range(len(names))
        if classes is not None:
            labels = match_classes(list(names.values()), classes, self.ann_file)
        self._label_of = dict(zip(names, labels))
        self.category_ids = sorted(names, key=self._label_of.get)
        self.classes = [names[identity] for identity in self.category_ids]

    def _require_files(self, images):
        missing = [image.file_name for image in images
                   if not os.path.isfile(os.path.join(self.image_dir, image.file_name))]
        if missing:
            raise DatasetError("{}: {} of {} images are not in {}: {}{}".format(
                self.ann_file, len(missing), len(images), self.image_dir,
                ", ".join(missing[:MISSES_SHOWN]), ", ..." if len(missing) > MISSES_SHOWN else ""))

    def _with_size(self, image):
        if image.width and image.height:
            return image
        if self.image_dir is None:
            raise DatasetError("{}: image id {} has no usable width and height".format(
                self.ann_file, image.id))
        self.report.warn("image_size_missing", image.id)
        height, width = read_image(self._path(image)).shape[:2]
        return image._replace(width=width, height=height)

    def _select(self, images, keep_empty):
        """The images to serve; those without anything to learn are counted first."""
        report, selected = self.report, []
        for image in images:
            crowds = sum(a.crowd for a in image.annotations)
            report.crowds += crowds
            if crowds == len(image.annotations):
                kind = report.crowd_only_images if crowds else report.empty_images
                kind.append(image.id)
            if keep_empty or crowds < len(image.annotations):
                selected.append(image)
        report.images_left_out = report.images - len(selected)
        return selected

    def __len__(self):
        return len(self._images)

    @property
    def image_ids(self):
        return [image.id for image in self._images]

    def file_name(self, index):
        """Path of an image relative to ``image_dir``."""
        return self._images[index].file_name

    def size(self, index):
        """(width, height) of an image in pixels."""
        return self._images[index].width, self._images[index].height

    def annotations(self, index):
        """The usable objects of an image, crowds included, as a list of ``Annotation``."""
        return self._images[index].annotations

    def subset(self, indices):
        """The data set of only these images; the report stays that of the whole file."""
        part = copy.copy(self)
        part._images = [self._images[index] for index in indices]
        return part

    def read_image(self, index):
        """(H, W, 3) uint8 BGR; DatasetError when the file is damaged or of another size."""
        return read_image(self._path(self._images[index]), self.size(index))

    def __getitem__(self, index):
        """The image and its objects; an image without objects has arrays of length 0."""
        sample = self.unread(index)
        view = View(whole(sample.image))
        return replace(sample, image=sample.image.read(), masks=see_masks(sample.masks, view))

    def unread(self, index):
        """The same Sample, but its ``image`` an UnreadImage and its ``masks`` MaskParts: read and
        rasterised as far as they are needed."""
        image = self._images[index]
        objects, size = image.annotations, (image.width, image.height)
        boxes = [ann.to_xyxy(a.bbox, *size) for a in objects]
        segmentations = [a.segmentation for a in objects]
        return Sample(
            image=UnreadImage(self._path(image), size),
            boxes=np.array(boxes, np.float32).reshape(-1, 4),
            labels=np.array([self._label_of[a.category_id] for a in objects], np.int64),
            masks=ann.MaskParts(segmentations, *size),
            crowd=np.array([a.crowd for a in objects], bool),
            has_mask=np.array([s is not None for s in segmentations], bool), image_id=image.id)

    def _path(self, image):
        return os.path.join(self.image_dir, image.file_name)

    def coco_ground_truth(self):
        """The usable objects as a COCO dict that pycocotools evaluates correctly.

        All images of this data set are listed, also empty ones, since detections there count.
        Annotations are numbered from 1, as pycocotools takes the id 0 for "no match"; boxes and
        areas are the file's own where those are right.  Objects known by their box alone have
        no ``segmentation`` key: leave them out when masks are scored.
        """
        return {
            "info": {},
            "images": [{"id": image.id, "file_name": image.file_name,
                        "width": image.width, "height": image.height} for image in self._images],
            "categories": [{"id": identity, "name": name}
                           for identity, name in zip(self.category_ids, self.classes)],
            "annotations": [_ground_truth(a, number, image) for number, (a, image) in enumerate(
                ((a, image) for image in self._images for a in image.annotations), start=1)],
        }


def require_trainable(dataset):
    """Raise DatasetError, in one sentence, when no image has an object to learn."""
    objects = [a for index in range(len(dataset)) for a in dataset.annotations(index)]
    if any(not a.crowd for a in objects):
        return
    report, path = dataset.report, dataset.ann_file
    if not report.images:
        raise DatasetError("{}: 'images' is empty, nothing to train on".format(path))
    if not report.annotations:
        raise DatasetError("{}: none of the {} images has an annotation, nothing to train on"
                           .format(path, report.images))
    if report.crowds == report.annotations:
        raise DatasetError("{}: all {} annotations are crowds (iscrowd=1), which are regions to "
                           "ignore; nothing to train on".format(path, report.crowds))
    reasons = ["{} {}".format(len(ids), reason) for reason, ids in sorted(report.dropped.items())]
    if report.crowds:
        reasons.append("{} crowds (iscrowd=1)".format(report.crowds))
    raise DatasetError("{}: none of its {} annotations can be learnt: {}".format(
        path, report.annotations, ", ".join(reasons) or "none in the images in use"))


def _entries_by_image(entries, images, ambiguous, names, report):
    """``{image id: [(annotation id, entry)]}`` of the entries whose ids are all known."""
    report.annotations = len(entries)
    by_image = defaultdict(list)
    for position, entry in enumerate(entries):
        identity = "#{}".format(position)
        if not isinstance(entry, dict):
            report.drop("annotation_not_an_object", identity)
            continue
        given, image_id = plain_id(entry.get("id")), plain_id(entry.get("image_id"))
        identity = identity if given is None else given
        if image_id in ambiguous:
            report.drop("ambiguous_image_id", identity)
        elif image_id not in images:
            report.drop("unknown_image_id", identity)
        elif plain_id(entry.get("category_id")) not in names:
            report.drop("unknown_category_id", identity)
        else:
            by_image[image_id].append((identity, entry))
            if given is None:
                report.warn("annotation_id_missing", identity)
    return by_image


def _usable(entries, image, report):
    """Annotations of one image, each checked; faults go to the report."""
    earlier = defaultdict(list)
    for identity, entry in entries:
        # Comparing whole polygons is dear, so only objects with the same box are compared.
        content = [entry.get(key) for key in ("category_id", "bbox", "segmentation", "iscrowd")]
        twins = earlier[str(content[:2])]
        if content in twins:
            report.drop("duplicate_annotation", identity)
            continue
        twins.append(content)
        annotation, reasons = ann.check_annotation(
            entry, identity, plain_id(content[0]), image.width, image.height)
        if annotation is None:
            report.drop(reasons[0], identity)
            continue
        for reason in reasons:
            report.warn(reason, identity)
        yield annotation


def _warn_repeated_ids(images, report):
    seen = set()
    for image in images:
        for annotation in image.annotations:
            if annotation.id in seen:
                report.warn("duplicate_annotation_id", annotation.id)
            seen.add(annotation.id)


def _ground_truth(annotation, number, image):
    entry = {"id": number, "image_id": image.id, "category_id": annotation.category_id,
             "bbox": list(annotation.bbox), "iscrowd": int(annotation.crowd),
             "area": annotation.area}
    if annotation.segmentation is not None:
        rle = ann.to_rle(annotation.segmentation, image.width, image.height)
        entry["segmentation"] = {"size": rle["size"], "counts": rle["counts"].decode("ascii")}
        if annotation.area is None:
            entry["area"] = float(mask_utils.area(rle))
    elif annotation.area is None:
        entry["area"] = annotation.bbox[2] * annotation.bbox[3]
    return entry
