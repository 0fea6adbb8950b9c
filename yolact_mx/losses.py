"""The five losses of YOLACT++ as one HybridBlock, all inside the static graph.

term       the reference's letter   paper
class      C                        softmax with hard negative mining (SSD section 2.2)
box        B                        smooth L1
mask       M                        YOLACT section 3.3
semantic   S                        YOLACT section 4
mask_iou   I                        YOLACT++ section 5.1
"""

import numpy as np
from mxnet.gluon import HybridBlock

from . import boxes as box_ops
from .anchors import build_anchors, input_sizes
from .nn.select import gather_rows, select_positives

UNKNOWN = 255  # value of ground-truth mask pixels about which nothing is known
# What the reference's clamped logarithm charges for a mask pixel outside the crop
_CLAMPED_LOG = 100.0


class YolactLoss(HybridBlock):
    """Weighted loss terms of a batch.

    Parameters
    ----------
    anchors : (N, 4) float32, cx cy w h, relative
    proto_size : (Hp, Wp)
    num_classes : int
        Foreground classes C.
    mask_iou : HybridBlock or None
        :class:`MaskIoUNet` of the network; None leaves the mask_iou term out.
    settings : LossConfig
    random_subset : bool
        Which ``masks_to_train`` positives get a mask loss where there are more: a random
        subset drawn in the graph, or the first in anchor order (for tests).
    reference_compatible : bool
        Add the constant that the reference charges for ground-truth pixels outside the crop
        (100 each, without gradient).  By default the mask loss is that of the crop alone.

    forward inputs
        class_logits (B, N, C + 1), box_deltas (B, N, 4), mask_coefs (B, N, P),
        proto (B, P, Hp, Wp), semantic_logits (B, C, Hs, Ws): the network's outputs;
        match (B, N): -1 ignore, 0 background, g + 1 for object g;
        gt_boxes (B, M, 4) xyxy relative; gt_labels (B, M) 0..C-1, -1 for padding;
        gt_masks (B, M, Hp, Wp) and gt_semantic (B, M, Hs, Ws) uint8: 0, 1 or UNKNOWN;
        totals (2,): positives and images of the whole step, over all devices.
    returns
        One (1,) tensor per entry of ``terms``; their sum is what is minimised.

    Everything is divided by the positives of the step (the semantic term by its images), so
    several devices or workers add up to one.  Without any positive the box, mask and mask_iou
    terms are 0; the class term keeps the hardest negatives of each image as if it had one
    positive, and the divisor is max(1, positives).
    """

    def __init__(
        self,
        anchors,
        proto_size,
        num_classes,
        mask_iou,
        settings,
        random_subset=True,
        reference_compatible=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._num_anchors, self._num_classes = len(anchors), num_classes
        self._proto_pixels = float(np.prod(proto_size))
        self._settings, self._random_subset = settings, random_subset
        self._reference_compatible = reference_compatible
        self.terms = loss_terms(mask_iou)
        with self.name_scope():
            self.anchors = self.params.get_constant("anchors", np.asarray(anchors)[None])
        self.mask_iou = mask_iou

    def hybrid_forward(
        self,
        F,
        class_logits,
        box_deltas,
        mask_coefs,
        proto,
        semantic_logits,
        match,
        gt_boxes,
        gt_labels,
        gt_masks,
        gt_semantic,
        totals,
        anchors,
    ):
        s = self._settings
        positives = F.clip(F.slice_axis(totals, axis=0, begin=0, end=1), 1, 1e9)
        images = F.slice_axis(totals, axis=0, begin=1, end=2)
        match = F.cast(match, "float32")
        positive = match > 0  # (B, N)
        gt = F.relu(match - 1)  # (B, N) object of each anchor, 0 where there is none
        gt_labels = F.cast(gt_labels, "float32")
        terms = [
            s.class_weight
            * self._class(F, class_logits, match, gather_rows(F, gt_labels, gt))
            / positives,
            s.box_weight
            * self._box(F, box_deltas, positive, gather_rows(F, gt_boxes, gt), anchors)
            / positives,
        ]
        masks, mask_iou = self._masks(
            F, positive, gt, mask_coefs, proto, gt_boxes, gt_labels, gt_masks
        )
        terms.append(s.mask_weight / self._proto_pixels * masks / positives)
        terms.append(
            s.semantic_weight
            * semantic_loss(F, semantic_logits, gt_labels, gt_semantic, self._num_classes)
            / images
        )
        if self.mask_iou is not None:
            terms.append(s.mask_iou_weight * mask_iou / positives)
        return tuple(terms)

    def _class(self, F, logits, match, labels):
        """Cross-entropy over positives and mined negatives, summed."""
        log_probs = F.log_softmax(logits, axis=-1)
        positive = match > 0
        hardness = -F.squeeze(F.slice_axis(log_probs, axis=-1, begin=0, end=1), axis=-1)
        hard = hard_negatives(
            F, F.BlockGrad(hardness), match, self._settings.negative_ratio, self._num_anchors
        )
        target = (labels + 1) * positive
        return F.reshape(F.sum(-F.pick(log_probs, target, axis=-1) * (positive + hard)), (1,))

    def _box(self, F, deltas, positive, gt_boxes, anchors):
        """Smooth L1 over positives, summed (Fast R-CNN equation 3)."""
        targets = F.BlockGrad(box_ops.encode(F, gt_boxes, anchors))
        loss = F.sum(F.smooth_l1(deltas - targets, scalar=1.0), axis=-1)
        return F.reshape(F.sum(loss * positive), (1,))

    def _masks(self, F, positive, gt, mask_coefs, proto, gt_boxes, gt_labels, gt_masks):
        """Mask and mask-IoU losses of the selected positives, each summed over the batch."""
        s = self._settings
        valid, _, coefs, gt = select_positives(
            F, positive, mask_coefs, gt, k=s.masks_to_train, random=self._random_subset
        )
        boxes, labels = gather_rows(F, gt_boxes, gt), gather_rows(F, gt_labels, gt)
        targets = F.cast(gather_rows(F, gt_masks, gt), "float32")  # (B, K, Hp, Wp)
        logits = F.reshape_like(F.batch_dot(coefs, F.reshape(proto, (0, 0, -1))), targets)
        crop = box_ops.crop_mask(F, F.slice(targets, begin=(0, 0), end=(1, 1)), boxes)
        known = targets < UNKNOWN
        targets = targets * known
        pixels = bce_with_logits(F, logits, targets) * (crop * known)
        if self._reference_compatible:
            pixels = pixels + _CLAMPED_LOG * targets * (1 - crop)
        per_mask = F.sum(pixels, axis=(2, 3)) / _relative_area(F, boxes) * valid
        # positives of an image beyond masks_to_train are represented by the selected ones
        represent = F.sum(positive, axis=1) / F.clip(F.sum(valid, axis=1), 1, 1e9)
        mask_loss = F.reshape(F.sum(F.sum(per_mask, axis=1) * represent), (1,))
        if self.mask_iou is None:
            return mask_loss, None
        return mask_loss, self._mask_iou(F, F.sigmoid(logits) * crop, targets, labels, valid)

    def _mask_iou(self, F, probs, targets, labels, valid):
        """Smooth L1 of the predicted mask IoU.  ``probs`` get its gradient, as in the reference."""
        iou, area = mask_iou_targets(F, probs, targets)
        predicted = self.mask_iou(F.expand_dims(F.reshape(probs, (-3, 0, 0)), axis=1))
        predicted = F.pick(predicted, F.reshape(labels, (-1,)), axis=-1)  # (B * K,)
        wanted = F.reshape(valid * (area > self._settings.mask_iou_min_area), (-1,))
        loss = F.smooth_l1(predicted - F.reshape(iou, (-1,)), scalar=1.0)
        return F.reshape(F.sum(loss * wanted), (1,))


def loss_terms(mask_iou):
    """Names of the terms of a network with or without (None) mask re-scoring."""
    return ("class", "box", "mask", "semantic") + (("mask_iou",) if mask_iou else ())


def hard_negatives(F, hardness, match, ratio, num_anchors):
    """Online hard example mining: 1 for the background anchors that are trained.

    Per image the ``ratio`` * max(1, positives) hardest, at most N - 1.  Ranks, not a threshold:
    equal scores (a black image) never let more anchors in.

    hardness, match : (B, N); returns (B, N) float32 without gradient.
    """
    background = match == 0
    count = F.clip(
        ratio * F.clip(F.sum(match > 0, axis=1, keepdims=True), 1, 1e9), 0, num_anchors - 1
    )
    # hardness is not negative: with the others at -1 every background anchor ranks above them
    order = F.argsort(
        F.where(background, hardness, -F.ones_like(hardness)), axis=1, is_ascend=False
    )
    rank = F.argsort(order, axis=1, is_ascend=True)
    return F.BlockGrad(F.broadcast_lesser(rank, count) * background)


def mask_iou_targets(F, probs, targets):
    """IoU of thresholded masks with their targets, and the targets' areas in pixels.

    probs, targets : (B, K, H, W); returns two (B, K), without gradient.
    """
    mask = F.BlockGrad(probs) > 0.5
    overlap = F.sum(mask * targets, axis=(2, 3))
    union = F.sum(F.broadcast_maximum(mask, targets), axis=(2, 3))
    return overlap / F.clip(union, 1, 1e9), F.sum(targets, axis=(2, 3))


def semantic_loss(F, logits, gt_labels, masks, num_classes):
    """Binary cross-entropy per class, averaged over pixels and summed over classes and images.

    A pixel belongs to every class of which an object covers it.  Pixels covered only by
    UNKNOWN are left out for that class.  logits (B, C, H, W), masks (B, M, H, W) -> (1,).
    """
    of_class = F.one_hot(gt_labels, depth=num_classes)  # (B, M, C); padding (-1) is a zero row
    masks = F.cast(F.reshape(masks, (0, 0, -1)), "float32")
    target = F.batch_dot(of_class, masks == 1, transpose_a=True) > 0  # (B, C, H * W)
    unknown = F.batch_dot(of_class, masks == UNKNOWN, transpose_a=True) > 0
    loss = bce_with_logits(F, F.reshape(logits, (0, 0, -1)), target) * (1 - unknown * (1 - target))
    return F.reshape(F.sum(F.mean(loss, axis=2)), (1,))


def bce_with_logits(F, logits, targets):
    """Elementwise binary cross-entropy, stable for logits of any size; targets are 0 or 1."""
    # relu(logits) - logits * targets, with fewer arrays that have a gradient
    linear = logits * ((logits > 0) - targets)
    return linear + F.Activation(-F.abs(logits), act_type="softrelu")


def _relative_area(F, boxes):
    """(B, K, 4) xyxy -> (B, K) share of the image, never 0."""
    x1, y1, x2, y2 = box_ops.split(F, boxes)
    low, high = box_ops.MIN_SIDE, 1e6
    return F.squeeze(F.clip(x2 - x1, low, high) * F.clip(y2 - y1, low, high), axis=-1)


def build_loss(config, net, num_classes, image_size=None):
    """The loss of a configuration for its network and an input (H, W), by default the square."""
    _, _, proto_size = input_sizes(config, image_size)
    return YolactLoss(
        build_anchors(config, image_size),
        proto_size,
        num_classes,
        net.mask_iou,
        config.loss,
        reference_compatible=config.reference_compatible,
    )
