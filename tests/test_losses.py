"""The loss: hand-worked terms, batches with nothing to learn, and the static graph itself."""
import json

import mxnet as mx
import numpy as np
import pytest

from yolact_mx.losses import UNKNOWN, YolactLoss, hard_negatives
from yolact_mx.models.mask_iou import MaskIoUNet
from yolact_mx.options import LossConfig

CLASSES, PROTOTYPES, OBJECTS, SIDE = 3, 4, 8, 16
ANCHORS = np.stack(np.meshgrid([0.125, 0.375, 0.625, 0.875], [0.125, 0.375, 0.625, 0.875]), -1)
ANCHORS = np.concatenate([ANCHORS.reshape(-1, 2), np.full((16, 2), 0.25)], 1).astype(np.float32)


def build(masks_to_train=5, mask_iou=True, seed=0, **kwargs):
    mx.random.seed(seed)
    net = MaskIoUNet(CLASSES, (4, 8)) if mask_iou else None
    settings = LossConfig(masks_to_train=masks_to_train, mask_iou_min_area=2)
    loss = YolactLoss(ANCHORS, (SIDE, SIDE), CLASSES, net, settings, random_subset=False, **kwargs)
    loss.initialize(mx.init.Xavier())
    return loss


def predictions(batch=2, seed=0):
    rng = np.random.RandomState(seed)
    shapes = [(batch, 16, CLASSES + 1), (batch, 16, 4), (batch, 16, PROTOTYPES),
              (batch, PROTOTYPES, SIDE, SIDE), (batch, CLASSES, 8, 8)]
    return [mx.nd.array(rng.standard_normal(s)) for s in shapes]


def truth(match, objects=()):
    """Ground truth of a batch; each object: (image, slot, box, label)."""
    batch = len(match)
    gt_boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (batch, OBJECTS, 1))
    gt_labels = np.full((batch, OBJECTS), -1, np.float32)
    gt_masks = np.zeros((batch, OBJECTS, SIDE, SIDE), np.uint8)
    gt_semantic = np.zeros((batch, OBJECTS, 8, 8), np.uint8)
    for image, slot, box, label in objects:
        gt_boxes[image, slot], gt_labels[image, slot] = box, label
        for masks, side in ((gt_masks, SIDE), (gt_semantic, 8)):
            x1, y1, x2, y2 = (int(round(v * side)) for v in box)
            masks[image, slot, y1:y2, x1:x2] = 1
    match = np.asarray(match, np.int32)
    totals = np.array([(match > 0).sum(), batch], np.float32)
    return [mx.nd.array(a, dtype=a.dtype)
            for a in (match, gt_boxes, gt_labels, gt_masks, gt_semantic, totals)]


TWO = [(0, 0, (0.0, 0.0, 0.5, 0.5), 1), (1, 0, (0.25, 0.25, 1.0, 0.75), 2)]
MATCH = [[1, 1, 0, -1] + [0] * 12, [0] * 5 + [1, 1, 1, -1] + [0] * 7]


def run(loss, outputs, target):
    for value in outputs:
        value.attach_grad()
    with mx.autograd.record():
        terms = loss(*outputs, *target)
        total = mx.nd.add_n(*terms)
    total.backward()
    return [float(t.asscalar()) for t in terms], [v.grad.asnumpy() for v in outputs]


@pytest.mark.parametrize("match, objects", [
    ([[0] * 16, [0] * 16], []),  # images without objects
    ([[-1] * 16, [0] * 8 + [-1] * 8], []),  # crowds: everything ignored in one image
    ([[0] * 16, MATCH[1]], TWO[1:]),  # one image without objects
], ids=["empty", "crowds", "half"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_nothing_to_learn_is_finite(match, objects, hybrid):
    loss = build()
    if hybrid:
        loss.hybridize()
    terms, grads = run(loss, predictions(), truth(match, objects))
    named = dict(zip(loss.terms, terms))
    assert np.isfinite(terms).all() and all(np.isfinite(g).all() for g in grads)
    assert named["class"] > 0  # the hardest negatives are kept
    if not objects:
        assert named["box"] == named["mask"] == named["mask_iou"] == 0
        assert not grads[1].any() and not grads[2].any()


def test_without_positives_three_negatives_are_kept_for_each_image():
    _, grads = run(build(), predictions(), truth([[0] * 16, [0] * 16]))
    assert (np.abs(grads[0]).sum(2) > 0).sum(1).tolist() == [3, 3]


def test_hard_negatives_hand_worked():
    hardness = mx.nd.array([[5, 9, 1, 7, 3, 8]])
    match = mx.nd.array([[0, 1, 0, 0, 0, -1]])
    # one positive: three negatives, the hardest of the background anchors 0, 2, 3, 4
    assert hard_negatives(mx.nd, hardness, match, 3, 6).asnumpy().tolist() == [[1, 0, 0, 1, 1, 0]]


def test_ties_never_keep_more_negatives():
    hardness, match = mx.nd.ones((1, 50)), mx.nd.array([[1] + [0] * 49])
    assert hard_negatives(mx.nd, hardness, match, 3, 50).sum().asscalar() == 3


def test_box_term_hand_worked():
    outputs = predictions()
    anchor = ANCHORS[0]
    box = (anchor[0] - 0.125, anchor[1] - 0.125, anchor[0] + 0.125, anchor[1] + 0.125)
    target = truth([[1] + [0] * 15, [0] * 16], [(0, 0, box, 0)])
    outputs[1][:] = 0
    outputs[1][0, 0] = mx.nd.array([0.5, -2.0, 0, 0])  # the target is 0: 0.125 + 1.5
    terms, _ = run(build(), outputs, target)
    assert terms[1] == pytest.approx(1.5 * 1.625, rel=1e-5)


def test_mask_term_hand_worked():
    outputs = predictions()
    outputs[2][:], outputs[3][:] = 0, 0  # every probability is 0.5
    terms, _ = run(build(), outputs, truth([[1] + [0] * 15, [0] * 16], TWO[:1]))
    # crop: 8 pixels + 1 of padding, squared; log 2 each, over the box's share 1/4 and the map
    expected = 6.125 * 81 * np.log(2) / 0.25 / SIDE / SIDE
    assert terms[2] == pytest.approx(expected, rel=1e-5)


def test_reference_charges_100_for_pixels_outside_the_crop():
    outputs, target = predictions(), truth([[1] + [0] * 15, [0] * 16], TWO[:1])
    target[3][0, 0, 15, 10:15] = 1  # five pixels far from the box
    ours, grads = run(build(), outputs, target)
    theirs, grads_theirs = run(build(reference_compatible=True), outputs, target)
    assert theirs[2] - ours[2] == pytest.approx(6.125 * 5 * 100 / 0.25 / SIDE / SIDE, rel=1e-4)
    np.testing.assert_array_equal(grads[2], grads_theirs[2])


def test_more_positives_than_masks_to_train_are_represented():
    """Two equal positives, one of them trained: the sum is scaled by found / kept."""
    outputs = predictions()
    outputs[2][0, 1] = outputs[2][0, 0]
    target = truth([[1, 1] + [0] * 14, [0] * 16], TWO[:1])
    one, _ = run(build(masks_to_train=1), outputs, target)
    two, _ = run(build(masks_to_train=2), outputs, target)
    assert one[2] == pytest.approx(two[2], rel=1e-5)


def test_unknown_masks_teach_nothing():
    outputs, target = predictions(), truth([[1] + [0] * 15, [0] * 16], TWO[:1])
    for masks in target[3:5]:
        masks[0, 0] = UNKNOWN
    terms, grads = run(build(), outputs, target)
    assert terms[2] == 0 and terms[4] == 0 and not grads[3].any()
    assert not grads[4][0, 1].any() and grads[4][0, 0].all()  # semantic: class 1 only is left out


def test_semantic_term_hand_worked():
    outputs = predictions()
    outputs[4][:] = 0
    terms, _ = run(build(), outputs, truth(MATCH, TWO))
    assert terms[3] == pytest.approx(CLASSES * np.log(2), rel=1e-5)  # a mean over pixels and images


def test_totals_make_two_halves_a_whole():
    """Losses of the two images with the totals of both add up to the loss of the batch."""
    outputs, target = predictions(), truth(MATCH, TWO)
    loss = build()
    whole, _ = run(loss, outputs, target)
    halves = [run(loss, [o[i:i + 1] for o in outputs],
                  [t[i:i + 1] for t in target[:-1]] + target[-1:])[0] for i in range(2)]
    np.testing.assert_allclose(np.sum(halves, axis=0), whole, rtol=1e-5)


def test_hybridized_equals_imperative_in_values_and_gradients():
    results = []
    for hybrid in (False, True):
        loss = build()
        if hybrid:
            loss.hybridize(static_alloc=True)
        results.append(run(loss, predictions(), truth(MATCH, TWO)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    for a, b in zip(results[0][1], results[1][1]):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_exported_graph_holds_the_selection(tmp_path):
    """The selection is part of symbol.json: top-k and gathers, no Python, no dynamic shape."""
    loss = build()
    loss.hybridize()
    values = predictions() + truth(MATCH, TWO)
    live = [t.asscalar() for t in loss(*values)]
    loss.export(str(tmp_path / "loss"))
    ops = [n["op"] for n in json.loads((tmp_path / "loss-symbol.json").read_text())["nodes"]]
    assert "topk" in ops and "gather_nd" in ops and "SequenceMask" in ops
    assert "_contrib_boolean_mask" not in ops
    names = ["data{}".format(i) for i in range(len(values))]
    back = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "loss-symbol.json"), names, str(tmp_path / "loss-0000.params"))
    np.testing.assert_allclose([t.asscalar() for t in back(*values)], live, rtol=1e-6)


def test_gradients_match_finite_differences():
    loss, target = build(), truth(MATCH, TWO)
    outputs = predictions()
    _, grads = run(loss, outputs, target)
    rng = np.random.RandomState(3)
    for k, (value, grad) in enumerate(zip(outputs, grads)):
        direction = rng.standard_normal(value.shape).astype(np.float32)
        if k == 0:  # OHEM's choice must not change
            direction *= np.abs(grad).sum(2, keepdims=True) > 0
        step = 1e-3
        ends = []
        for sign in (1, -1):
            moved = list(outputs)
            moved[k] = value + sign * step * mx.nd.array(direction)
            ends.append(sum(float(t.asscalar()) for t in loss(*moved, *target)))
        numeric = (ends[0] - ends[1]) / (2 * step)
        assert numeric == pytest.approx(float((grad * direction).sum()), rel=2e-2, abs=2e-2)
