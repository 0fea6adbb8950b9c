"""What the golden tests of the loss units and of training share."""
from dataclasses import replace

import mxnet as mx
import numpy as np

from yolact_mx import detect
from yolact_mx.losses import YolactLoss, hard_negatives, mask_iou_targets
from yolact_mx.models import build_anchors
from yolact_mx.models.yolact import input_sizes

# The reference's letters
TERMS = {"B": "box", "M": "mask", "C": "class", "S": "semantic", "I": "mask_iou"}
NEAR = 1e-5  # to 0.5, of a mask probability with float noise


def nd(array):
    return mx.nd.array(array, dtype=array.dtype)


def l2(array):
    """The norm, summed in float64: MXNet's own loses five digits over a large tensor."""
    return np.linalg.norm(array.astype(np.float64))


def loss_of(config, num_classes, mask_iou, **changes):
    """The loss, with settings changed; it takes the first positives where there are too many."""
    _, _, proto_size = input_sizes(config)
    loss = YolactLoss(build_anchors(config), proto_size, num_classes, mask_iou,
                      replace(config.loss, **changes), random_subset=False,
                      reference_compatible=config.reference_compatible)
    loss.collect_params(".*anchors").initialize()
    return loss


def check_terms(figures, key, names, values, tolerance):
    """The terms of the loss under ``key``, and their sum."""
    values = dict(zip(names, (float(value.asscalar()) for value in values)))
    letters = [letter for letter in figures.under(key) if letter in TERMS]
    # the reference leaves out the mask-IoU term when no mask is large enough
    assert all(values[name] == 0 for name in set(names) - {TERMS[key] for key in letters})
    for letter in letters:
        figures.close("losses", values[TERMS[letter]], figures[key + letter], tolerance,
                      what=key + letter)
    figures.close("losses", sum(values.values()), figures[key + "total"], tolerance, what=key)


def check_matches(figures, batch, key=""):
    positive = batch["match"] > 0
    figures.exact("matches", positive.sum(1), figures[key + "num_pos"])
    figures.exact("matches", (batch["match"] < 0).sum(1), figures[key + "num_neutral"])


def check_picks(figures, key, logits, batch, ratio, tolerance):
    """Anchors that the class loss takes, their targets and cross-entropies.

    Which negatives are hard enough may differ only where float noise decides between them.
    """
    match = batch["match"]
    positive = match > 0
    log_probs = mx.nd.log_softmax(nd(logits), axis=-1)
    hardness = -log_probs[:, :, 0]
    hard = hard_negatives(mx.nd, hardness, nd(match.astype(np.float32)), ratio,
                          match.shape[1]).asnumpy()
    picked = np.flatnonzero(positive | (hard > 0))
    labels = np.take_along_axis(batch["gt_labels"], np.maximum(match - 1, 0), axis=1) + 1
    targets = np.where(positive, labels, 0).ravel()[picked].astype(int)
    each = -log_probs.asnumpy().reshape(match.size, -1)[picked, targets]
    if key + "flat_idx" in figures and not np.array_equal(picked, figures[key + "flat_idx"]):
        expected = figures[key + "flat_idx"]
        disputed = hardness.asnumpy().ravel()[np.setxor1d(picked, expected)]
        assert np.ptp(disputed) <= tolerance * disputed.max(), "other hard negatives"
        common = np.intersect1d(picked, expected)
        ours, theirs = np.searchsorted(picked, common), np.searchsorted(expected, common)
    else:
        ours = theirs = np.arange(len(picked))
    figures.exact("hard negatives", len(picked), figures[key + "n"])
    figures.exact("hard negatives", targets[ours], figures[key + "targets"][theirs])
    figures.close("cross-entropies", each[ours], figures[key + "each"][theirs], tolerance)


def check_mask_iou(figures, key, config, mask_iou, coefs, proto, batch, tolerance):
    """Masks that the mask-IoU net learns from: targets, labels, predictions, inputs."""
    found = {"target": [], "label": [], "pred": [], "input_sum": [], "near": [], "union": []}
    for image, match in enumerate(batch["match"]):
        rows = np.flatnonzero(match > 0)
        objects = match[rows] - 1
        if not len(rows):
            continue
        boxes, gt_masks = batch["gt_boxes"][image][objects], batch["gt_masks"][image][objects]
        masks = detect.assemble_masks(mx.nd, nd(coefs[image][rows][None]), nd(proto[image][None]),
                                      nd(boxes[None]))
        iou, area = mask_iou_targets(mx.nd, masks, nd(gt_masks[None].astype(np.float32)))
        wanted = area.asnumpy()[0] > config.loss.mask_iou_min_area
        labels = batch["gt_labels"][image][objects].astype(int)
        predicted = mask_iou(masks.reshape((-3, 0, 0)).expand_dims(1)).asnumpy()
        masks = masks.asnumpy()[0]
        for name, values in (
                ("target", iou.asnumpy()[0]), ("label", labels),
                ("pred", predicted[np.arange(len(rows)), labels]),
                ("input_sum", masks.sum((1, 2), dtype=np.float64)),
                ("near", (np.abs(masks - 0.5) < NEAR).sum((1, 2))),
                ("union", np.maximum(masks > 0.5, gt_masks).sum((1, 2)))):
            found[name].extend(values[wanted])
    figures.exact("mask-IoU labels", found["label"], figures[key + "label"])
    figures.close("mask-IoU inputs", found["pred"], figures[key + "pred"], tolerance)
    # A pixel that is next to the threshold may fall on its other side
    stated = key + "input_near_half"
    near = figures[stated] if stated in figures else np.array(found["near"])
    expected = figures[key + "target"]
    error = np.abs(np.array(found["target"]) - expected)
    figures.count("mask-IoU targets", len(error), error.max(initial=0), tolerance)
    assert (error <= tolerance + near / np.maximum(found["union"], 1)).all()
    if key + "input_sum" in figures:
        figures.close("mask-IoU inputs", found["input_sum"], figures[key + "input_sum"], tolerance)
