"""From network outputs to instances: decode, NMS, mask assembly, re-scoring.

:class:`Detect` is the part inside the (exportable) graph; the functions at the end take its
outputs to the size of an image with NumPy and OpenCV.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from mxnet.gluon import HybridBlock

from . import boxes as box_ops
from .anchors import build_anchors, input_sizes
from .nn.select import gather_rows

_GREEDY_CANDIDATES = 4096
OUTPUTS = ("boxes", "scores", "mask_scores", "classes", "masks")


class Detect(HybridBlock):
    """Network outputs -> the best instances of each image.

    Parameters
    ----------
    anchors : (N, 4) float32, cx cy w h, relative
    num_classes : int
        Foreground classes C.
    image_size : (H, W)
        Network input in pixels (greedy NMS counts in pixels, as its reference does).
    settings : DetectConfig
    mask_iou : HybridBlock or None
        With it, mask scores are class scores times the predicted mask IoU.

    forward: class_logits (B, N, C + 1), box_deltas (B, N, 4), mask_coefs (B, N, P),
    proto (B, P, Hp, Wp) ->
        boxes (B, D, 4) xyxy relative, not clipped to the image
        scores (B, D), in descending order; -1 in the rows that hold no detection
        mask_scores (B, D)
        classes (B, D), 0..C-1; -1 in the rows that hold no detection
        masks (B, D, Hp, Wp) probabilities, 0 outside the box
    """

    def __init__(self, anchors, num_classes, image_size, settings, mask_iou=None, **kwargs):
        super().__init__(**kwargs)
        self._num_classes, self._image_size, self._settings = num_classes, image_size, settings
        self._candidates = min(settings.top_k, len(anchors))
        self._suppress = {
            "fast": self._fast,
            "cross_class": self._cross_class,
            "greedy": self._greedy,
        }[settings.nms]
        with self.name_scope():
            self.anchors = self.params.get_constant("anchors", np.asarray(anchors)[None])
        self.mask_iou = mask_iou

    def hybrid_forward(self, F, class_logits, box_deltas, mask_coefs, proto, anchors):
        boxes = box_ops.decode(F, box_deltas, anchors)
        probs = F.slice_axis(F.softmax(class_logits, axis=-1), axis=-1, begin=1, end=None)
        scores, classes, anchor = self._suppress(F, F.transpose(probs, (0, 2, 1)), boxes)
        classes = F.where(scores >= 0, classes, -F.ones_like(classes))
        boxes = gather_rows(F, boxes, anchor)
        masks = assemble_masks(
            F, gather_rows(F, mask_coefs, anchor), proto, boxes, self._settings.crop_masks
        )
        return boxes, scores, self._rescore(F, scores, classes, masks), classes, masks

    def _rescore(self, F, scores, classes, masks):
        """YOLACT++ section 5.1.  Padding keeps its -1."""
        if self.mask_iou is None:
            return F.identity(scores)
        quality = self.mask_iou(F.expand_dims(F.reshape(masks, (-3, 0, 0)), axis=1))  # (B * D, C)
        quality = F.pick(quality, F.reshape(F.relu(classes), (-1,)), axis=-1)
        return F.where(scores >= 0, scores * F.reshape_like(quality, scores), scores)

    def _fast(self, F, probs, boxes):
        """Fast NMS (YOLACT section 3.4): all pairs at once, suppressed boxes suppress too."""
        t = self._candidates
        best = F.max(probs, axis=1, keepdims=True)  # (B, 1, N)
        alive = F.broadcast_like(best > self._settings.score_threshold, probs)
        alive = F.where(alive, probs, alive - 1)
        scores, anchor = F.topk(alive, axis=2, k=t, ret_typ="both")  # (B, C, T)
        anchor = F.reshape(anchor, (0, -1))
        candidates = F.reshape(gather_rows(F, boxes, anchor), (0, -4, self._num_classes, t, 0))
        scores = F.reshape(
            _without_overlapping(F, scores, candidates, self._settings.nms_iou), (0, -1)
        )
        most = min(self._settings.max_detections, t * self._num_classes)
        scores, order = F.topk(scores, axis=1, k=most, ret_typ="both")
        return scores, F.floor((order + 0.5) / t), gather_rows(F, anchor, order)

    def _cross_class(self, F, probs, boxes):
        """Fast NMS over the best class of each anchor; as many detections as candidates."""
        best = F.max(probs, axis=1)  # (B, N)
        scores, anchor = F.topk(
            F.where(best > self._settings.score_threshold, best, -F.ones_like(best)),
            axis=1,
            k=self._candidates,
            ret_typ="both",
        )
        scores = _without_overlapping(
            F, scores, gather_rows(F, boxes, anchor), self._settings.nms_iou
        )
        scores, order = F.topk(scores, axis=1, k=self._candidates, ret_typ="both")
        anchor = gather_rows(F, anchor, order)
        return scores, gather_rows(F, F.argmax(probs, axis=1), anchor), anchor

    def _greedy(self, F, probs, boxes):
        """Per-class greedy NMS of the reference: areas in pixels with its "+ 1", IoU >= threshold.

        Its cost is quadratic, so the ``_GREEDY_CANDIDATES`` best (anchor, class) pairs enter.
        """
        s = self._settings
        n = len(self.anchors.value[0])
        candidates = min(_GREEDY_CANDIDATES, n * self._num_classes)
        scores, pair = F.topk(
            F.reshape(probs, (0, -1)),
            axis=1,
            ret_typ="both",
            dtype="int32",
            k=candidates,
        )  # (B, k)
        pair = F.cast(pair, "int32")
        anchor = pair % n
        classes = F.cast((pair - anchor) / n, "float32")
        height, width = self._image_size
        x1, y1, x2, y2 = box_ops.split(F, gather_rows(F, boxes, anchor))
        columns = [F.expand_dims(c, axis=2) for c in (classes, scores, F.cast(anchor, "float32"))]
        rows = F.concat(*columns, x1 * width, y1 * height, x2 * width + 1, y2 * height + 1, dim=-1)
        kept = F.contrib.box_nms(
            rows,
            valid_thresh=s.score_threshold,
            coord_start=3,
            score_index=1,
            id_index=0,
            # box_nms suppresses above its threshold, the reference from it on
            overlap_thresh=float(np.nextafter(np.float32(s.nms_iou), np.float32(0))),
        )
        classes, scores, anchor = (
            F.squeeze(F.slice_axis(kept, axis=-1, begin=i, end=i + 1), axis=-1) for i in range(3)
        )
        scores, order = F.topk(scores, axis=1, k=min(s.max_detections, candidates), ret_typ="both")
        return scores, gather_rows(F, classes, order), F.relu(gather_rows(F, anchor, order))


def assemble_masks(F, coefs, proto, boxes, crop=True):
    """Mask probabilities sigmoid(coefs . proto) (YOLACT equation 1), 0 outside the boxes.

    coefs (B, D, P), proto (B, P, Hp, Wp), boxes (B, D, 4) xyxy relative -> (B, D, Hp, Wp).
    """
    masks = F.batch_dot(coefs, F.reshape(proto, (0, 0, -1)))
    masks = F.Activation(masks, act_type="sigmoid")  # far faster than F.sigmoid on CPUs
    masks = F.reshape_like(masks, proto, lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)
    return masks * box_ops.crop_mask(F, proto, boxes) if crop else masks


def _without_overlapping(F, scores, boxes, threshold):
    """-1 for the score of each box that overlaps a better one of its group.

    scores (..., T), descending, boxes (..., T, 4).  A pair without area has no IoU (NaN), and
    is dropped.
    """
    overlap, union = box_ops.overlap_and_union(F, boxes)
    rank = F.contrib.arange_like(scores, axis=-1)
    better = F.broadcast_lesser(F.expand_dims(rank, 0), F.expand_dims(rank, 1))  # column of row
    # pairs the other way round get 0 / (something above 0), never NaN
    above = F.broadcast_mul(overlap, better) / F.broadcast_add(union, 1 - better)
    keep = (F.max(above, axis=-1) <= threshold) * (scores >= 0)
    return F.where(keep, scores, -F.ones_like(scores))


class Detector(HybridBlock):
    """Picture in, instances out: the graph that is exported.

    forward: images (B, 3, H, W), RGB, 0..255, resized to the network's input -> the outputs of
    :class:`Detect`.
    """

    def __init__(self, net, detect, mean, std, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.mean = self.params.get_constant("mean", np.reshape(mean, (1, 3, 1, 1)))
            self.std = self.params.get_constant("std", np.reshape(std, (1, 3, 1, 1)))
        self.net, self.detect = net, detect

    def hybrid_forward(self, F, images, mean, std):
        images = F.broadcast_div(F.broadcast_sub(images, mean), std)
        outputs = self.detect(*self.net(images)[:4])
        return tuple(F.identity(value, name=name) for name, value in zip(OUTPUTS, outputs))


@dataclass
class Detections:
    """Instances of one image, relative to it; best first.

    boxes (D, 4) float32 xyxy relative; scores, mask_scores (D,); classes (D,) int 0..C-1;
    masks (D, Hp, Wp) float32 probabilities at prototype size.
    """

    boxes: np.ndarray
    scores: np.ndarray
    mask_scores: np.ndarray
    classes: np.ndarray
    masks: np.ndarray

    def __len__(self):
        return len(self.scores)

    def keep(self, index):
        return Detections(*(getattr(self, name)[index] for name in OUTPUTS))


@dataclass
class ImageDetections:
    """Instances of one image in its pixels.

    boxes (D, 4) int32 xyxy; scores, mask_scores (D,); classes (D,); masks: a sequence of D
    uint8 arrays (height, width), 0 or 1 (see :class:`ResizedMasks`).
    """

    boxes: np.ndarray
    scores: np.ndarray
    mask_scores: np.ndarray
    classes: np.ndarray
    masks: object

    def __len__(self):
        return len(self.scores)


class ResizedMasks:
    """Masks at image size, made one at a time: a hundred of a large picture would fill memory."""

    def __init__(self, probs, width, height):
        self._probs, self._size = probs, (width, height)

    def __len__(self):
        return len(self._probs)

    def __getitem__(self, index):
        mask = cv2.resize(self._probs[index], self._size, interpolation=cv2.INTER_LINEAR)
        return (mask > 0.5).view(np.uint8)


def split_batch(outputs):
    """Outputs of the graph (NDArrays or NumPy arrays) -> a list of :class:`Detections`."""
    arrays = [a.asnumpy() if hasattr(a, "asnumpy") else np.asarray(a) for a in outputs]
    boxes, scores, mask_scores, classes, masks = arrays
    found = scores >= 0
    return [
        Detections(
            boxes[b][row],
            scores[b][row],
            mask_scores[b][row],
            classes[b][row].astype(np.int64),
            masks[b][row],
        )
        for b, row in enumerate(found)
    ]


def to_image_size(detections, width, height, score_threshold=0.0):
    """:class:`Detections` -> :class:`ImageDetections` of an image of ``width`` x ``height``.

    Boxes are ordered, clipped to the image and truncated to whole pixels; masks are resized
    bilinearly before the threshold, so their edges are as smooth as the image allows.
    ``score_threshold``: keep only higher scores (0: all).
    """
    if score_threshold > 0:
        detections = detections.keep(detections.scores > score_threshold)
    size = np.array([width, height], np.float32)
    corners = detections.boxes.reshape(-1, 2, 2) * size
    low = np.maximum(corners.min(axis=1), 0)
    high = np.minimum(corners.max(axis=1), size)
    return ImageDetections(
        np.concatenate([low, high], axis=1).astype(np.int32),
        detections.scores,
        detections.mask_scores,
        detections.classes,
        ResizedMasks(detections.masks, width, height),
    )


def build_detector(config, net, num_classes, network=None, image_size=None):
    """The inference graph of a network for an input of (H, W), by default the square.

    network: block that takes the place of ``net``, whose re-scoring is still used (see
    ``deploy.compile_network``).
    """
    anchors, (image_size, _, _) = build_anchors(config, image_size), input_sizes(config, image_size)
    detect = Detect(anchors, num_classes, image_size, config.detect, net.mask_iou)
    # no prefix: the exported outputs are called what they are
    detector = Detector(network or net, detect, config.input.mean, config.input.std, prefix="")
    detector.collect_params(".*(anchors|(?<!running_)mean|std)$").initialize(ctx=_contexts(net))
    return detector


def _contexts(net):
    return next(iter(net.collect_params().values())).list_ctx()
