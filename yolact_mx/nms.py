"""Non-maximum suppression inside the graph: which anchors become detections, of which class."""

import numpy as np

from . import boxes as box_ops
from .nn.native_ops import load
from .nn.select import gather_rows

GREEDY_CANDIDATES = 4096


class Suppression:
    """The kind of NMS that the settings ask for.

    Parameters
    ----------
    settings : DetectConfig
    anchors, num_classes : int
        N and C, the foreground classes.
    image_size : (H, W)
        Network input in pixels.
    native : bool
        ``fast`` by the operator of csrc/, on CPUs in float32, once :func:`.nn.native_ops.load`
        has found it; the same figures many times faster.  A graph with it needs the library,
        too.

    Called with F, probs (B, N, C), boxes (B, N, 4) xyxy relative ->
        scores (B, D), in descending order; -1 in the rows that hold no detection
        classes (B, D), anchor (B, D); anything that exists in the rows that hold no detection
    """

    def __init__(self, settings, anchors, num_classes, image_size, native=False):
        if native and not load():
            raise ValueError("native: expected the C++ operators (run yolact-mx build-ops)")
        self._settings, self._anchors, self._num_classes = settings, anchors, num_classes
        self._image_size = image_size
        self._candidates = min(settings.top_k, anchors)
        self._native = native and settings.nms == "fast"
        self._composed = {
            "fast": self._fast,
            "cross_class": self._cross_class,
            "greedy": self._greedy,
        }[settings.nms]

    def __call__(self, F, probs, boxes):
        if self._native:
            return F.yolact_fast_nms(
                probs,
                boxes,
                top_k=self._candidates,
                max_detections=self._settings.max_detections,
                score_threshold=self._settings.score_threshold,
                iou_threshold=self._settings.nms_iou,
            )
        return self._composed(F, F.transpose(probs, (0, 2, 1)), boxes)

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

        Its cost is quadratic, so the ``GREEDY_CANDIDATES`` best (anchor, class) pairs enter.
        """
        s = self._settings
        n = self._anchors
        candidates = min(GREEDY_CANDIDATES, n * self._num_classes)
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
