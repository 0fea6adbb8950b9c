"""Matching of anchors against the figures of the reference."""
import mxnet as mx
import numpy as np
import pytest
from golden_support import configuration, load

from yolact_mx import boxes
from yolact_mx.models import build_anchors
from yolact_mx.targets import match_anchors

# float32 throughout; the logarithm of a quotient near 1 loses the last two digits
TARGET = 3e-6


@pytest.fixture(scope="module")
def figures(golden):
    return load(golden, "match.npz")


def test_match(figures, evaluate):
    thresholds = [figures.meta[key] for key in ("pos_thresh", "neg_thresh", "crowd_iou_threshold")]
    assert figures.meta["cases"]
    for case in figures.meta["cases"]:
        key = "case{}/".format(case["case"])
        anchors = build_anchors(configuration(case["config"], case["max_size"]))
        assert len(anchors) == case["n_priors"]
        (target,), _, (crowds,) = evaluate(case["gts"])
        figures.exact("inputs", target, figures[key + "gt"])
        figures.exact("inputs", crowds, figures[key + "num_crowds"])
        objects = len(target) - crowds
        gt_boxes, crowd_boxes = target[:objects, :4], target[objects:, :4]
        match = match_anchors(anchors, gt_boxes, crowd_boxes, *thresholds)

        positive = match > 0
        labels = np.where(positive, target[match - 1, 4] + 1, match)
        figures.exact("classes", labels, figures[key + "conf_t"])
        figures.exact("objects", match[positive] - 1, figures[key + "idx_t"][positive])
        figures.exact("positives", np.flatnonzero(positive), figures[key + "pos_idx"])
        figures.exact("counts", [positive.sum(), (match < 0).sum(), (match == 0).sum()],
                      figures[key + "counts_pos_neutral_neg"])
        without = match_anchors(anchors, gt_boxes, crowd_boxes[:0], *thresholds)
        figures.exact("counts", (match != without).sum(), figures[key + "n_changed_by_crowd"])

        targets = boxes.encode(mx.nd, mx.nd.array(gt_boxes[np.maximum(match - 1, 0)]),
                               mx.nd.array(anchors)).asnumpy()
        figures.close("box targets", targets[positive], figures[key + "loc_t_pos"], TARGET)
        # Elsewhere nothing is learnt, and which object it would be hangs on ties
        rows = figures[key + "loc_t_rows_idx"]
        figures.close("box targets", targets[rows][positive[rows]],
                      figures[key + "loc_t_rows"][positive[rows]], TARGET)
