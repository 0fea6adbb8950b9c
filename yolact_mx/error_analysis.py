"""Which detections are right, which classes are confused, which images fare worst.

All of it at one IoU (0.5), image by image, from what a :class:`CocoEvaluator` has collected.
Matching is greedy by score as in COCO; figures that depend on a score threshold take the one
with the best F1.
"""
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from pycocotools import mask as mask_utils

IOU = 0.5


@dataclass
class ImageMatch:
    """Detections (D, by falling score) and objects (G, without crowds) of one image.

    image_id: original id.
    scores (D,); classes (D,), gt_classes (G,): positions among the sorted categories, 0..K-1.
    results: positions (D,) in the evaluator's list of results.
    iou: (D, G), 0 where there is nothing.
    partner: (D,) the object of the same class each detection finds, or -1.
    excused: (D,) True for a detection in a crowd of its class: neither right nor wrong.
    """
    image_id: object
    scores: np.ndarray
    classes: np.ndarray
    results: np.ndarray
    gt_classes: np.ndarray
    iou: np.ndarray
    partner: np.ndarray
    excused: np.ndarray


def match_images(evaluator, iou_type):
    """A list of :class:`ImageMatch`, one for every image of the ground truth, by masks ("segm")
    or boxes ("bbox")."""
    key = {"segm": "segmentation", "bbox": "bbox"}[iou_type]
    objects = _by_image(evaluator.truth.dataset(iou_type)["annotations"])
    found = _by_image(evaluator.truth.detections(evaluator.results[iou_type])["annotations"])
    return [_match(image_id, found[number], objects[number], key)
            for number, image_id in enumerate(evaluator.truth.images, 1)]


def best_threshold(matches):
    """(score threshold, F1) where F1 = 2 hits / (detections + objects) is highest.

    Detections with a score at or above the threshold count.  Nothing right at all: (1, 0).
    """
    scores, hits = scores_and_hits(matches)
    if not hits.any():
        return 1.0, 0.0
    order = np.argsort(-scores, kind="stable")
    num_objects = sum(len(match.gt_classes) for match in matches)
    f1 = 2 * np.cumsum(hits[order]) / (np.arange(1, len(order) + 1) + num_objects)
    # Equal scores stand or fall together: only the last of them is a possible threshold.
    last = np.append(scores[order][1:] < scores[order][:-1], True)
    best = np.argmax(np.where(last, f1, 0))
    return float(scores[order][best]), float(f1[best])


def scores_and_hits(matches):
    """(scores, hits) of all detections that count, over all images."""
    if not matches:
        return np.zeros(0), np.zeros(0, bool)
    return (np.concatenate([match.scores[~match.excused] for match in matches]),
            np.concatenate([(match.partner >= 0)[~match.excused] for match in matches]))


def confusion_matrix(matches, num_classes, threshold):
    """(K + 1, K + 1) int counts: row = class of the object, column = class detected.

    Here a detection may find an object of any class.  The last column counts objects missed,
    the last row detections where there is no object.
    """
    matrix = np.zeros((num_classes + 1, num_classes + 1), int)
    for match in matches:
        shown = (match.scores >= threshold) & ~match.excused
        partner = _greedy(match.iou[shown])
        truth = np.append(match.gt_classes, num_classes)[partner]  # -1: the last row
        np.add.at(matrix, (truth, match.classes[shown]), 1)
        missed = np.setdiff1d(np.arange(len(match.gt_classes)), partner)
        np.add.at(matrix, (match.gt_classes[missed], num_classes), 1)
    return matrix


def image_quality(match, threshold):
    """Panoptic quality of one image in [0, 1]: the IoUs of the hits, summed, over
    (hits + misses / 2 + false detections / 2).  None when there is nothing to see or to find."""
    shown = (match.scores >= threshold) & ~match.excused
    rows = np.flatnonzero(shown & (match.partner >= 0))
    parts = len(rows) + 0.5 * (shown.sum() - len(rows)) + 0.5 * (len(match.gt_classes) - len(rows))
    return float(match.iou[rows, match.partner[rows]].sum() / parts) if parts else None


def _by_image(annotations):
    groups = defaultdict(list)
    for annotation in annotations:
        groups[annotation["image_id"]].append(annotation)
    return groups


def _match(image_id, found, annotations, key):
    found = sorted(found, key=lambda result: -result["score"])
    classes, gt_classes = (np.array([entry["category_id"] - 1 for entry in entries], int)
                           for entries in (found, annotations))
    crowd = np.array([entry["iscrowd"] for entry in annotations], bool)
    iou = np.zeros((len(found), len(annotations)))
    if iou.size:
        iou[:] = mask_utils.iou([entry[key] for entry in found],
                                [entry[key] for entry in annotations], crowd.astype(np.uint8))
    same = classes[:, None] == gt_classes
    partner = _greedy(np.where(same, iou, 0)[:, ~crowd])
    excused = (partner < 0) & (np.where(same, iou, 0)[:, crowd] >= IOU).any(axis=1)
    return ImageMatch(image_id, np.array([entry["score"] for entry in found], float), classes,
                      np.array([entry["id"] - 1 for entry in found], int), gt_classes[~crowd],
                      iou[:, ~crowd], partner, excused)


def _greedy(iou):
    """(D,) for each detection in turn the free object it overlaps most, or -1 below the IoU."""
    partner = np.full(len(iou), -1)
    free = np.ones(iou.shape[1], bool)
    for i, overlaps in enumerate(np.where(iou >= IOU, iou, 0)):
        overlaps = overlaps * free
        if overlaps.any():
            partner[i] = overlaps.argmax()
            free[partner[i]] = False
    return partner
