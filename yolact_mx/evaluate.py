"""COCO box and mask AP of detections, image by image."""
import io
import json
import logging
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from .coco_files import GroundTruth, first_ids, read_results
from .errors import ConfigError, DatasetError
from .rle import encode_mask

logger = logging.getLogger(__name__)

IOU_TYPES = ("bbox", "segm")
AREAS = ("all", "small", "medium", "large")
# The 12 figures of COCO in their usual order: key, array, IoU threshold (None: mean of the ten,
# 0.50 to 0.95), area range, which of the three limits of detections per image.
SUMMARY = (
    ("AP", "precision", None, "all", 2),
    ("AP50", "precision", 0.5, "all", 2),
    ("AP75", "precision", 0.75, "all", 2),
    ("APs", "precision", None, "small", 2),
    ("APm", "precision", None, "medium", 2),
    ("APl", "precision", None, "large", 2),
    ("AR1", "recall", None, "all", 0),
    ("AR10", "recall", None, "all", 1),
    ("AR100", "recall", None, "all", 2),
    ("ARs", "recall", None, "small", 2),
    ("ARm", "recall", None, "medium", 2),
    ("ARl", "recall", None, "large", 2),
)


class CocoEvaluator:
    """Collects detections image by image and scores them: reset, process..., evaluate.

    ground_truth: COCO dict or path of a COCO json.
    category_ids: original category id of each contiguous class 0..C-1; by default the ids of
        the ground truth, sorted.
    max_dets: detections per image and class that count (COCO: 100).

    Masks are kept as RLE only.  ``results["bbox"]`` carries the box scores, ``results["segm"]``
    the (re-scored) mask scores.  After :meth:`evaluate`, ``metrics`` is what it returned and
    ``curves`` holds the precision, recall and score arrays of each type.
    """

    def __init__(self, ground_truth, category_ids=None, max_dets=100):
        if max_dets < 1:
            raise ConfigError("max_dets must be at least 1, found {}".format(max_dets))
        self.truth = GroundTruth(ground_truth)
        self.max_dets = max_dets
        self.category_ids = list(self.truth.categories if category_ids is None else category_ids)
        unknown = [key for key in self.category_ids if key not in self.truth.categories]
        if unknown:
            raise DatasetError("{} has no category {}, which the network detects".format(
                self.truth.name, first_ids(unknown)))
        self.reset()

    def reset(self):
        """Forget all detections."""
        self.results = {iou_type: [] for iou_type in IOU_TYPES}
        self.curves, self.metrics = {}, None
        self.empty_boxes = 0
        self._processed = set()

    def process(self, image_id, detections):
        """Add the detections of one image; boxes without area are left out and counted.

        detections: ``boxes`` (D, 4) xyxy in pixels, ``scores``, ``mask_scores``, ``classes``
        (D,), ``masks`` an array or a lazy sequence of D masks (H, W), 0 or 1, at the size of the
        image; they are taken one at a time.  D may be 0.
        Raises DatasetError for an image that the ground truth does not have, one that was
        processed before, or one of another size.
        """
        self._check_image(image_id, detections)
        image_id = self.truth.images[image_id]["id"]  # a plain number, whatever came in
        self._processed.add(image_id)
        boxes = np.asarray(detections.boxes).reshape(-1, 4)
        for i, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
            if x2 <= x1 or y2 <= y1:
                self.empty_boxes += 1
                continue
            common = {"image_id": image_id,
                      "category_id": self.category_ids[int(detections.classes[i])]}
            self.results["bbox"].append(dict(common, bbox=[x1, y1, x2 - x1, y2 - y1],
                                             score=float(detections.scores[i])))
            self.results["segm"].append(dict(common, segmentation=encode_mask(detections.masks[i]),
                                             score=float(detections.mask_scores[i])))

    def load_results(self, path):
        """Take the detections from a COCO results file instead of a network."""
        self.reset()
        results = read_results(path, self.truth)
        keys = {"bbox": "bbox", "segm": "segmentation"}
        self.results = {iou_type: results for iou_type, key in keys.items()
                        if not results or results[0].get(key)}
        self._processed = {result["image_id"] for result in results}

    def evaluate(self):
        """Metrics of all detections so far, as fractions in [0, 1].

        Returns ``{"bbox": {...}, "segm": {...}, "per_class": [...], "max_dets": ...}`` with the
        12 COCO figures of ``SUMMARY`` for each type.  "AR100" is the recall at ``max_dets``.  A
        figure without any ground truth (a size range, a class) is None and enters no mean;
        without detections the others are 0.
        """
        if self.empty_boxes:
            logger.info("%d detections without area left out", self.empty_boxes)
        metrics = {}
        for iou_type, results in self.results.items():
            self.curves[iou_type] = _accumulate(self.truth, results, iou_type, self.max_dets)
            metrics[iou_type] = _summary(self.curves[iou_type])
        metrics["per_class"] = self._per_class()
        metrics.update(max_dets=self.max_dets, images=len(self.truth.images),
                       images_with_detections=len({r["image_id"] for r in self._any_results()}),
                       detections=len(self._any_results()), empty_boxes=self.empty_boxes)
        self.metrics = metrics
        return metrics

    def write_results(self, folder):
        """Write ``results_bbox.json`` and ``results_segm.json`` (COCO results, original category
        ids) into ``folder``, which is made if needed; returns their paths."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = []
        for iou_type, results in self.results.items():
            paths.append(Path(folder) / "results_{}.json".format(iou_type))
            paths[-1].write_text(json.dumps(results), encoding="utf-8")
        return paths

    def _any_results(self):
        return next(iter(self.results.values()))

    def _check_image(self, image_id, detections):
        if image_id not in self.truth.images:
            raise DatasetError("image {} is not in {}".format(image_id, self.truth.name))
        if image_id in self._processed:
            raise DatasetError("image {} was evaluated twice".format(image_id))
        if not len(detections.classes):
            return
        if max(detections.classes) >= len(self.category_ids):
            raise DatasetError("the network detects class {}, but {} has {} categories".format(
                max(detections.classes), self.truth.name, len(self.category_ids)))
        found, expected = detections.masks[0].shape, self.truth.mask_size(image_id)
        if expected not in (None, found):
            raise DatasetError("image {} is {}x{} pixels (width x height), {} says {}x{}".format(
                image_id, found[1], found[0], self.truth.name, expected[1], expected[0]))

    def _per_class(self):
        """One dict a category, in the order of the category ids."""
        objects = Counter(entry["category_id"] for entry in self.truth.objects
                          if not entry["iscrowd"])
        detections = Counter(result["category_id"] for result in self._any_results())
        rows = []
        for k, (key, category) in enumerate(self.truth.categories.items()):
            row = {"category_id": key, "name": str(category.get("name", key)),
                   "objects": objects[k + 1], "detections": detections[key]}
            for iou_type, curves in self.curves.items():
                precision = curves["precision"][:, :, k, 0, -1]
                row[iou_type] = {"AP": _mean(precision), "AP50": _mean(precision[0])}
            rows.append(row)
        return rows


def score_results(ground_truth, results_file, max_dets=100):
    """Metrics of an existing COCO results file; see :meth:`CocoEvaluator.evaluate`.

    "bbox" and "segm" are there as far as the results hold boxes and masks.  The figures are
    those of pycocotools, bit for bit.
    """
    evaluator = CocoEvaluator(ground_truth, max_dets=max_dets)
    evaluator.load_results(results_file)
    return evaluator.evaluate()


def format_table(metrics):
    """The 12 lines of COCO for boxes and masks side by side, then AP by class."""
    types = [iou_type for iou_type in IOU_TYPES if iou_type in metrics]
    names = {"bbox": "box", "segm": "mask"}
    limits = detection_limits(metrics["max_dets"])
    lines = [" " * 69 + "".join("{:>8}".format(names[t]) for t in types)]
    for key, measure, iou, area, limit in SUMMARY:
        title = {"precision": "Average Precision (AP)", "recall": "Average Recall    (AR)"}[measure]
        lines.append("{} @[ IoU={:<9} | area={:>6} | maxDets={:>3} ]".format(
            title, "0.50:0.95" if iou is None else "{:.2f}".format(iou), area, limits[limit])
            + "".join("{:>8}".format(figure_text(metrics[t][key])) for t in types))
    rows = metrics["per_class"]
    width = max([len("class")] + [len(row["name"]) for row in rows])
    lines += ["", "{:<{}} {:>8} {:>10}".format("class", width, "objects", "detections")
              + "".join(" {:>8} {:>9}".format(names[t] + " AP", names[t] + " AP50")
                        for t in types)]
    for row in rows:
        lines.append("{:<{}} {:>8} {:>10}".format(row["name"], width, row["objects"],
                                                  row["detections"])
                     + "".join(" {:>8} {:>9}".format(figure_text(row[t]["AP"]),
                                                     figure_text(row[t]["AP50"]))
                               for t in types))
    if any(row["objects"] == 0 for row in rows):
        lines += ["", "n/a: no ground truth of this class or size; left out of every mean"]
    return "\n".join(lines)


def figure_text(value):
    """A fraction with three digits; "n/a" for None."""
    return "n/a" if value is None else "{:.3f}".format(value)


def detection_limits(max_dets):
    """The three limits of detections per image and class: 1, 10 and ``max_dets``, ascending."""
    return [min(1, max_dets), min(10, max_dets), max_dets]


def coco_backend():
    """The classes (COCO, COCOeval) that do the matching.

    hotcoco's where it is installed: its arrays equal those of pycocotools bit for bit in a
    tenth of the time.
    """
    try:
        from hotcoco import COCO, COCOeval
    except ImportError:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    return COCO, COCOeval


def _accumulate(truth, results, iou_type, max_dets):
    """``COCOeval.eval``: precision (10, 101, K, 4, 3), recall (10, K, 4, 3), scores."""
    coco_class, eval_class = coco_backend()

    def indexed(dataset):
        coco = coco_class()
        coco.dataset = dataset
        coco.createIndex()
        return coco

    with redirect_stdout(io.StringIO()):
        evaluation = eval_class(indexed(truth.dataset(iou_type)),
                                indexed(truth.detections(results)), iou_type)
        evaluation.params.maxDets = detection_limits(max_dets)
        evaluation.evaluate()
        evaluation.accumulate()
    return {key: np.asarray(evaluation.eval[key]) for key in ("precision", "recall", "scores")}


def _summary(curves):
    """The 12 figures, with the very selections and means of ``COCOeval.summarize``."""
    thresholds = np.linspace(0.5, 0.95, 10)
    figures = {}
    for key, measure, iou, area, limit in SUMMARY:
        values = curves[measure][..., AREAS.index(area), limit]
        if iou is not None:
            values = values[np.isclose(thresholds, iou)]
        figures[key] = _mean(values)
    return figures


def _mean(values):
    # -1 marks what has no ground truth.
    present = values[values > -1]
    return float(np.mean(present)) if len(present) else None
