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
from .nms import Suppression
from .nn.select import gather_rows

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
    native : bool
        Fast NMS by the operator of csrc/: see :class:`~yolact_mx.nms.Suppression`.

    forward: class_logits (B, N, C + 1), box_deltas (B, N, 4), mask_coefs (B, N, P),
    proto (B, P, Hp, Wp) ->
        boxes (B, D, 4) xyxy relative, not clipped to the image
        scores (B, D), in descending order; -1 in the rows that hold no detection
        mask_scores (B, D)
        classes (B, D), 0..C-1; -1 in the rows that hold no detection
        masks (B, D, Hp, Wp) probabilities, 0 outside the box
    """

    def __init__(self, anchors, num_classes, image_size, settings, mask_iou=None, native=False,
                 **kwargs):
        super().__init__(**kwargs)
        self._settings = settings
        self._suppress = Suppression(settings, len(anchors), num_classes, image_size, native)
        with self.name_scope():
            self.anchors = self.params.get_constant("anchors", np.asarray(anchors)[None])
        self.mask_iou = mask_iou

    def hybrid_forward(self, F, class_logits, box_deltas, mask_coefs, proto, anchors):
        boxes = box_ops.decode(F, box_deltas, anchors)
        probs = F.slice_axis(F.softmax(class_logits, axis=-1), axis=-1, begin=1, end=None)
        scores, classes, anchor = self._suppress(F, probs, boxes)
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


def assemble_masks(F, coefs, proto, boxes, crop=True):
    """Mask probabilities sigmoid(coefs . proto) (YOLACT equation 1), 0 outside the boxes.

    coefs (B, D, P), proto (B, P, Hp, Wp), boxes (B, D, 4) xyxy relative -> (B, D, Hp, Wp).
    """
    masks = F.batch_dot(coefs, F.reshape(proto, (0, 0, -1)))
    masks = F.Activation(masks, act_type="sigmoid")  # far faster than F.sigmoid on CPUs
    masks = F.reshape_like(masks, proto, lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)
    return masks * box_ops.crop_mask(F, proto, boxes) if crop else masks


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


def build_detector(config, net, num_classes, network=None, image_size=None, native=False):
    """The inference graph of a network for an input of (H, W), by default the square.

    network: block that takes the place of ``net``, whose re-scoring is still used (see
    ``deploy.compile_network``).
    native: see :class:`Detect`; a graph with it is not for export.
    """
    anchors, (image_size, _, _) = build_anchors(config, image_size), input_sizes(config, image_size)
    detect = Detect(anchors, num_classes, image_size, config.detect, net.mask_iou, native)
    # no prefix: the exported outputs are called what they are
    detector = Detector(network or net, detect, config.input.mean, config.input.std, prefix="")
    detector.collect_params(".*(anchors|(?<!running_)mean|std)$").initialize(ctx=_contexts(net))
    return detector


def _contexts(net):
    return next(iter(net.collect_params().values())).list_ctx()
