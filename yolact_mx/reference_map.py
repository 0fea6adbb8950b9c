"""The mAP that the original YOLACT code prints, for comparison with its logs.

It is not COCO's metric (:mod:`yolact_mx.evaluate`): matches need an IoU above, not at, the
threshold, there is no limit of detections, and classes that were only predicted count as 0.
"""
from collections import defaultdict

import numpy as np
from pycocotools import mask as mask_utils

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))


class ReferenceMap:
    """Collects images, then averages: reset, process..., evaluate.

    reference_compatible: repeat two faults of the original.  There an image without detections
    is skipped, so that its objects are missing from the recall, and crowds, whose class is lost
    on the way, excuse no detection.  By default both are right.
    """

    def __init__(self, reference_compatible=False):
        self.reference_compatible = reference_compatible
        self.reset()

    def reset(self):
        """Forget all images."""
        self._num_gt = defaultdict(int)  # by class
        # by (kind, threshold index, class): scores of the detections, and which are right
        self._scores, self._correct = defaultdict(list), defaultdict(list)

    def process(self, detections, ground_truth):
        """Match the detections of one image.

        detections: ``boxes`` (D, 4) xyxy pixels, ``scores``, ``mask_scores``, ``classes`` (D,),
        ``masks`` a sequence of D masks (H, W), 0 or 1.
        ground_truth: a Sample or its like: ``boxes`` (n, 4) xyxy pixels, ``labels``, ``crowd``
        (n,), ``masks`` (n, H, W).  D and n may be 0.
        """
        classes = np.asarray(detections.classes)
        if self.reference_compatible and not len(classes):
            return
        crowd = np.asarray(ground_truth.crowd, bool)
        labels = np.asarray(ground_truth.labels)
        for label in labels[~crowd]:
            self._num_gt[int(label)] += 1
        by_box = np.argsort(-np.asarray(detections.scores), kind="stable")
        by_mask = by_box[np.argsort(-np.asarray(detections.mask_scores)[by_box], kind="stable")]
        for kind, order, scores, overlaps in (
                ("box", by_box, detections.scores,
                 _box_overlaps(detections.boxes, ground_truth.boxes, crowd)),
                ("mask", by_mask, detections.mask_scores,
                 _mask_overlaps(detections.masks, ground_truth.masks, crowd))):
            for c in np.unique(classes):
                rows = order[classes[order] == c]
                targets = overlaps[rows][:, ~crowd & (labels == c)]
                ignored = overlaps[rows][:, crowd & (labels == c)]
                for t, threshold in enumerate(THRESHOLDS):
                    correct, counted = self._match(targets, ignored, threshold)
                    self._scores[kind, t, int(c)].extend(np.asarray(scores)[rows][counted])
                    self._correct[kind, t, int(c)].extend(correct[counted])

    def evaluate(self):
        """``{"box": {"all": .., "50": .., ..., "95": ..}, "mask": {...}}`` in percent, rounded
        to two digits; the mean over all classes that have an object or a detection (0 if none).
        """
        classes = set(self._num_gt) | {c for _, _, c in self._scores}
        result = {}
        for kind in ("box", "mask"):
            values = []
            for t in range(len(THRESHOLDS)):
                precisions = [average_precision(self._scores[kind, t, c],
                                                self._correct[kind, t, c],
                                                self._num_gt.get(c, 0)) for c in sorted(classes)]
                values.append(100 * float(np.mean(precisions)) if precisions else 0.0)
            keys = ["all"] + ["{:.0f}".format(100 * threshold) for threshold in THRESHOLDS]
            result[kind] = dict(zip(keys, (round(v, 2) for v in [float(np.mean(values))] + values)))
        return result

    def _match(self, targets, ignored, threshold):
        """Which detections are right, and which count at all; both (D,) bool.

        targets: (D, n) IoU with the objects of the class, detections by falling score.
        ignored: (D, m) share of each detection that lies in a crowd of the class.
        """
        correct = np.zeros(len(targets), bool)
        free = np.ones(targets.shape[1], bool)
        for i, overlaps in enumerate(targets):
            candidates = np.where(free, overlaps, 0)
            if candidates.size and candidates.max() > threshold:
                correct[i] = True
                free[candidates.argmax()] = False
        if self.reference_compatible:
            return correct, np.ones(len(targets), bool)
        return correct, correct | ~(ignored > threshold).any(axis=1)


def average_precision(scores, correct, num_gt):
    """Mean of the precision at the recalls 0, 0.01, ... 1, each the best at that recall or above.

    scores, correct: (D,) of one class over all images.  Without objects or detections: 0.
    """
    if num_gt == 0 or len(scores) == 0:
        return 0.0
    hits = np.asarray(correct, bool)[np.argsort(-np.asarray(scores), kind="stable")]
    found = np.cumsum(hits)
    precision = found / np.arange(1, len(hits) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    positions = np.searchsorted(found / num_gt, np.arange(101) / 100, side="left")
    return float(np.append(envelope, 0.0)[positions].mean())


# The overlaps are rounded to float32 as in the original: an IoU of exactly 11/20 lies above the
# threshold of 0.55 there, and would not in float64.

def _box_overlaps(boxes, gt_boxes, crowd):
    """(D, n) intersection over union; for crowds, over the area of the detection."""
    a = np.asarray(boxes, np.float32).reshape(-1, 1, 4)
    b = np.asarray(gt_boxes, np.float32).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    intersection = np.clip(sides, 0, None).prod(axis=2)  # (D, n)
    area = (a[..., 2:] - a[..., :2]).prod(axis=2)  # (D, 1)
    gt_area = (b[..., 2:] - b[..., :2]).prod(axis=2)  # (1, n)
    whole = np.where(crowd, area, area + gt_area - intersection)
    return (intersection / np.maximum(whole, np.finfo(np.float32).tiny)).astype(np.float64)


def _mask_overlaps(masks, gt_masks, crowd):
    """The same of masks (D, H, W) and (n, H, W); run by run, so it needs no memory."""
    if not len(masks) or not len(gt_masks):
        return np.zeros((len(masks), len(gt_masks)))
    a, b = ([mask_utils.encode(np.asfortranarray(mask, dtype=np.uint8)) for mask in group]
            for group in (masks, gt_masks))
    return mask_utils.iou(a, b, crowd.astype(np.uint8)).astype(np.float32).astype(np.float64)
