"""Detection and post-processing of crafted head outputs against the figures of the reference.

Order, classes and boxes in pixels are exact: no two scores are close enough for float noise (the
figures' own ``min_score_gap`` and ``min_margin_conf_thresh``).
Masks may differ in the pixels whose probability is within 1e-4 of the threshold.
"""
import re

import cv2
import mxnet as mx
import numpy as np
import pytest
from golden_support import (
    classes_of,
    coefficients,
    configuration,
    fill,
    load,
    names_of,
    with_detect,
)

from yolact_mx.detect import Detect, split_batch, to_image_size
from yolact_mx.models import build_anchors
from yolact_mx.models.mask_iou import MaskIoUNet

# Softmax, decoding, tanh: a few float32 operations
FLOAT = 1e-6
# Mask probabilities and five convolutions; the re-scored value also of the class score
MASK_IOU = 1e-5
VARIANTS = {"fast": "fast", "cc_fast": "cross_class", "trad": "greedy"}
NEAR = 1e-4


def pytest_generate_tests(metafunc):
    if "file" in metafunc.fixturenames:
        metafunc.parametrize("file", names_of(metafunc, "detect*.npz"), scope="module")


class Case:
    """The head outputs of a file, and detectors for them."""

    def __init__(self, figures, evaluate, weights_rule):
        meta = self.meta = figures.meta
        self.heads = evaluate(meta["heads"])
        self.num_classes = self.heads["logits"].shape[2] - 1
        assert self.num_classes == classes_of(meta["config"])
        self.config = configuration(meta["config"], meta["max_size"])
        self.anchors = build_anchors(self.config)
        self.mask_iou = None
        if meta["maskiou_weights"]:
            self.mask_iou = MaskIoUNet(self.num_classes, self.config.model.mask_iou)
            self.mask_iou.initialize()
            fill(self.mask_iou, weights_rule, "mask_iou.")

    def settings(self, **changes):
        meta = self.meta
        return with_detect(self.config, **dict(dict(
            score_threshold=meta["conf_thresh"], nms_iou=meta["nms_thresh"],
            top_k=meta["top_k"], max_detections=meta["max_num_detections"]), **changes))

    def run(self, proto=None, logits=None, mask_iou=None, **changes):
        """-> a list of Detections."""
        size = self.meta["max_size"]
        detect = Detect(self.anchors, self.num_classes, (size, size), self.settings(**changes),
                        mask_iou)
        detect.collect_params(".*anchors").initialize()
        heads = self.heads
        logits = heads["logits"] if logits is None else logits
        proto = heads["proto"].transpose(0, 3, 1, 2) if proto is None else proto
        return split_batch(detect(*[mx.nd.array(a) for a in
                                    (logits, heads["loc"], heads["mask"], proto)]))


@pytest.fixture(scope="module")
def figures(golden, file):
    return load(golden, file)


@pytest.fixture(scope="module")
def case(figures, evaluate, weights_rule):
    return Case(figures, evaluate, weights_rule)


def test_the_inputs_are_those_of_the_figures(figures, case):
    z = case.heads["logits"].astype(np.float64)
    best = (np.exp(z[..., 1:] - z.max(-1, keepdims=True)).max(-1)
            / np.exp(z - z.max(-1, keepdims=True)).sum(-1))
    figures.exact("inputs", (best > case.meta["conf_thresh"]).sum(1),
                  figures["n_over_conf_thresh"])


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_detections(figures, case, variant):
    found = case.run(mask_iou=case.mask_iou, nms=VARIANTS[variant])
    coefs = coefficients(lambda proto: case.run(proto, nms=VARIANTS[variant], crop_masks=False),
                         case.heads["mask"].shape[::2])
    assert found
    for image, detections in enumerate(found):
        key = "{}/img{}/".format(variant, image)
        figures.exact("classes", detections.classes, figures[key + "class"])
        figures.close("scores", detections.scores, figures[key + "score"], FLOAT)
        figures.close("boxes", detections.boxes, figures[key + "box"], FLOAT)
        first = figures[key + "mask_coef"]
        figures.close("coefficients", coefs[image][:len(first)], first, FLOAT)
        figures.close("coefficients", coefs[image].sum(1), figures[key + "mask_coef_sum"], FLOAT,
                      scale=np.abs(coefs[image]).sum(1).max())
        for post in sorted(set(figures.under(key + "post_"))):
            if not post.endswith("_nocrop"):
                check_at_image_size(figures, key + "post_" + post, detections)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_uncropped_masks(figures, case, variant):
    wanted = {image: [post for post in figures.under("{}/img{}/post_".format(variant, image))
                      if post.endswith("_nocrop")] for image in figures.numbers(variant + "/img")}
    if not any(wanted.values()):
        return  # the figures have them for fast NMS only
    found = case.run(mask_iou=case.mask_iou, nms=VARIANTS[variant], crop_masks=False)
    for image, posts in wanted.items():
        for post in posts:
            check_at_image_size(figures, "{}/img{}/post_{}".format(variant, image, post),
                                found[image])


def check_at_image_size(figures, key, detections):
    """``key``: ".../post_<width>x<height>[_thr<score>][_nocrop]"."""
    width, height, _, threshold = re.search(r"post_(\d+)x(\d+)(_thr([\d.]+))?", key).groups()
    width, height, threshold = int(width), int(height), float(threshold or 0)
    found = to_image_size(detections, width, height, threshold)
    figures.exact("classes", found.classes, figures[key + "/class"])
    check_whole_boxes(figures, found.boxes, figures[key + "/box"],
                      detections.boxes[:len(found)] * np.float32([width, height, width, height]))
    if key + "/mask_score" in figures:
        figures.close("scores", found.scores, figures[key + "/box_score"], FLOAT)
        figures.close("mask scores", found.mask_scores, figures[key + "/mask_score"], MASK_IOU)
    else:
        figures.close("scores", found.scores, figures[key + "/score"], FLOAT)
    masks = np.array(found.masks, np.uint8).reshape(-1, height, width)
    near = slack(figures, key, detections, masks.shape[1:])[:len(masks)]
    difference = np.abs(masks.sum(axis=(1, 2)).astype(int) - figures[key + "/mask_sum"])
    figures.count("mask areas (pixels)", len(masks), difference.max(initial=0), near.max(initial=0))
    assert (difference <= near).all()
    if key + "/mask_bits10" in figures:
        bits = np.unpackbits(figures[key + "/mask_bits10"], axis=1)[:, :height * width]
        wrong = (masks[:len(bits)].reshape(len(bits), -1) != bits).sum(1)
        figures.count("masks (wrong pixels)", bits.size, wrong.max(initial=0),
                      near.max(initial=0))
        assert (wrong <= near[:len(bits)]).all()


def check_whole_boxes(figures, actual, expected, corners):
    """Equal, but where truncation to whole pixels met float noise of ``corners``."""
    wrong = actual != expected
    assert (np.abs(actual - expected)[wrong] <= 1).all()
    assert (np.abs(corners - np.round(corners))[wrong] < FLOAT * np.abs(corners).max()).all()
    figures.count("boxes in pixels", expected.size, wrong.sum(), 0)


def slack(figures, key, detections, size):
    """Pixels per mask that lie within 1e-4 of the threshold, as stated or else counted."""
    stated = [name for name in figures.under(key + "/") if name.startswith("near_half")]
    if stated:
        return figures["{}/{}".format(key, stated[0])]
    resized = (cv2.resize(mask, size[::-1], interpolation=cv2.INTER_LINEAR)
               for mask in detections.masks)
    return np.array([(np.abs(mask - 0.5) < NEAR).sum() for mask in resized])


def test_rescoring(figures, case):
    if case.mask_iou is None:
        return
    for image, detections in enumerate(case.run(mask_iou=case.mask_iou)):
        key = "fast/img{}/".format(image)
        figures.close("mask IoU net", detections.masks.sum(axis=(1, 2), dtype=np.float64),
                      figures[key + "maskiou_in_sum"], FLOAT)
        predicted = case.mask_iou(mx.nd.array(detections.masks[:, None])).asnumpy()
        figures.tensor("mask IoU net", predicted, key + "maskiou_out", MASK_IOU)
        figures.close("mask scores", detections.mask_scores, figures[key + "rescore_bbox/score"],
                      MASK_IOU)


def test_nothing_above_the_threshold(figures, case):
    logits = np.zeros_like(case.heads["logits"])
    logits[..., 0] = 20
    assert figures["empty/numel"].sum() == 0
    for detections in case.run(logits=logits, mask_iou=case.mask_iou):
        found = to_image_size(detections, 60, 40, 0.1)
        assert len(found) == len(found.masks) == 0
        assert found.boxes.shape == (0, 4)
