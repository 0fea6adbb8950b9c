"""Fast NMS by the C++ operator: the figures of the composed form, bit for bit."""
import mxnet as mx
import numpy as np
import pytest
from native_library import assert_threads_do_not_show, require_library

from yolact_mx import boxes as box_ops
from yolact_mx import predict
from yolact_mx.export import export_network
from yolact_mx.nms import Suppression
from yolact_mx.nn import native_ops
from yolact_mx.options import DetectConfig
from yolact_mx.predict import find_weights, load_predictor

pytest_plugins = ("tiny_fixtures",)


def random_inputs(batch=2, anchors=700, classes=5, seed=0):
    """Probabilities (B, N, C) and boxes (B, N, 4), crowded; some have no area, some are equal."""
    rng = np.random.RandomState(seed)
    logits = rng.normal(size=(batch, anchors, classes + 1)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    corner = rng.uniform(-0.2, 1, (batch, anchors, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 0.3, corner.shape)], axis=-1)
    boxes[:, 10:40, 2:] = boxes[:, 10:40, :2]  # points
    boxes[:, 40:60] = boxes[:, 40:41]
    boxes[:, 60:70] = boxes[:, 60:70, [2, 3, 0, 1]]  # turned round
    return probs[..., 1:].astype(np.float32), boxes.astype(np.float32)


def suppressed(probs, boxes, native, **settings):
    """scores, classes, anchors; the two latter -1 in rows without a detection."""
    require_library()
    run = Suppression(DetectConfig(**settings), probs.shape[1], probs.shape[2], (100, 100), native)
    scores, classes, anchor = (
        value.asnumpy() for value in run(mx.nd, mx.nd.array(probs), mx.nd.array(boxes)))
    assert (anchor >= 0).all() and (anchor < probs.shape[1]).all()
    return scores, np.where(scores < 0, -1, classes), np.where(scores < 0, -1, anchor)


def assert_equal(probs, boxes, **settings):
    """Of both forms; returns the scores."""
    results = [suppressed(probs, boxes, native, **settings) for native in (False, True)]
    for composed, native in zip(*results):
        np.testing.assert_array_equal(native, composed)
    return results[1][0]


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("iou", [0.3, 0.5, 1.0])
def test_equals_the_composed_form(threshold, iou):
    scores = assert_equal(*random_inputs(), score_threshold=threshold, nms_iou=iou, top_k=50)
    assert (np.sort(scores)[:, ::-1] == scores).all() and (scores[:, 0] > threshold).all()


def test_no_candidates():
    assert (assert_equal(*random_inputs(), score_threshold=0.9999) == -1).all()


@pytest.mark.parametrize("anchors, top_k, detections", [
    (7, 200, 100),     # fewer anchors than top_k
    (7, 3, 100),       # fewer candidates than detections
    (3000, 200, 100),  # few of many are taken: the heap's way
    (300, 200, 10),    # nearly all: sorted
    (1, 1, 1)])
def test_any_numbers(anchors, top_k, detections):
    probs, boxes = (array[:, :anchors] for array in random_inputs(anchors=3000))
    scores = assert_equal(probs, boxes, top_k=top_k, max_detections=detections,
                          score_threshold=0.0)
    assert scores.shape == (2, min(detections, 5 * min(top_k, anchors)))


def test_equal_scores_are_taken_in_the_order_of_the_composed_form():
    probs, boxes = random_inputs(anchors=3000)
    assert_equal(np.round(probs, 1), boxes, score_threshold=0.0)
    assert_equal(np.full_like(probs, 0.125), boxes, score_threshold=0.0)
    for anchors in (159, 160, 161):  # from 8 * top_k on topk sorts in another way
        probs, boxes = random_inputs(anchors=anchors)
        probs = np.round(probs, 1)
        assert_equal(probs, boxes, score_threshold=0.0, top_k=20)
        probs[:, 5:] = 0.01  # few compete
        assert_equal(probs, boxes, top_k=20)


def test_by_hand():
    """Class 0: the second box overlaps the first by more than half, the third the second."""
    boxes = np.array([[[0, 0, 1, 1], [0.2, 0, 1.2, 1], [0.4, 0, 1.4, 1], [5, 5, 6, 6]]])
    probs = np.array([[[0.9, 0.01], [0.8, 0.02], [0.7, 0.03], [0.04, 0.6]]])
    found = suppressed(probs.astype(np.float32), boxes.astype(np.float32), True,
                       score_threshold=0.5, max_detections=6)
    # IoU of neighbours is 0.8 / 1.2, of the first and third 0.6 / 1.4; what is suppressed
    # suppresses, too: the third is left out by the second
    np.testing.assert_allclose(found[0], [[0.9, 0.6, 0.04, 0.03, -1, -1]], rtol=1e-6)
    assert found[1].tolist() == [[0, 1, 0, 1, -1, -1]]
    assert found[2].tolist() == [[0, 3, 3, 2, -1, -1]]


def test_what_is_no_number_is_no_candidate():
    """The rest is found as if such an anchor were not there."""
    probs, boxes = random_inputs()
    probs[:, 5] = -1
    wanted = suppressed(probs, boxes, True)
    probs[:, 5, 2] = np.nan
    for found, expected in zip(suppressed(probs, boxes, True), wanted):
        np.testing.assert_array_equal(found, expected)
    assert (suppressed(np.full_like(probs, np.nan), boxes, True)[0] == -1).all()


def test_boxes_that_are_no_numbers():
    """As composed: one box with a NaN leaves none of its class."""
    for seed in range(5):
        probs, boxes = random_inputs(anchors=300, seed=seed)
        boxes[0, ::60] = np.nan
        boxes[1, ::7, 2] = np.inf
        assert_equal(probs, boxes, top_k=20, score_threshold=0.0)


def test_iou_at_the_threshold():
    """One that is equal to it does not suppress, the next number above does."""
    for seed in range(40):
        probs, boxes = random_inputs(1, 80, 1, seed)
        boxes = 0.4 + boxes % 0.3 * [-1, -1, 1, 1]  # all of them overlap
        boxes = boxes.astype(np.float32)
        iou = box_ops.pairwise_iou(mx.nd, mx.nd.array(boxes)).asnumpy()[0]
        threshold = iou[seed % 5, 7]
        for value in (threshold, np.nextafter(threshold, np.float32(0))):
            assert_equal(probs, boxes, nms_iou=float(value), score_threshold=0.0)


def test_there_is_no_gradient():
    require_library()
    probs, boxes = map(mx.nd.array, random_inputs())
    probs.attach_grad()
    with mx.autograd.record():
        scores = mx.nd.yolact_fast_nms(probs, boxes, top_k=9, max_detections=9,
                                       score_threshold=0.1, iou_threshold=0.5)[0]
    with pytest.raises(mx.MXNetError, match="has no gradient"):
        scores.backward()
        probs.grad.wait_to_read()


def example():
    return suppressed(*random_inputs(), True, score_threshold=0.0)


def test_threads_do_not_show(tmp_path):
    assert_threads_do_not_show(example(), "test_native_nms.example()", (1, 5), tmp_path)


@pytest.mark.parametrize("change, text", [
    ({"boxes": (2, 699, 4)}, "one batch size and number of anchors"),
    ({"boxes": (2, 700, 3)}, "four numbers a box"), ({"probs": (2, 700)}, "three dimensions"),
    ({"probs": "float64"}, "float32"), ({"top_k": None}, "top_k is missing"),
    ({"top_k": 0}, "at least 1"), ({"iou_threshold": "half"}, "expected a number, found half")])
def test_wrong_use_is_an_error(change, text):
    require_library()
    arrays = dict(zip(("probs", "boxes"), map(mx.nd.array, random_inputs())))
    settings = dict(top_k=9, max_detections=9, score_threshold=0.1, iou_threshold=0.5)
    for name, value in change.items():
        if isinstance(value, tuple):
            arrays[name] = mx.nd.zeros(value)
        elif name in arrays:
            arrays[name] = arrays[name].astype(value)
        elif value is None:
            del settings[name]
        else:
            settings[name] = value
    with pytest.raises(mx.MXNetError) as caught:
        mx.nd.yolact_fast_nms(*arrays.values(), **settings)[0].wait_to_read()
    assert text in str(caught.value).strip().splitlines()[-1]  # above are those of earlier errors


def test_only_the_fast_kind_is_native():
    require_library()
    probs, boxes = random_inputs()
    for kind in ("cross_class", "greedy"):
        assert_equal(probs, boxes, nms=kind)


def test_without_a_library(monkeypatch):
    monkeypatch.setattr("yolact_mx.nms.load", lambda: False)
    with pytest.raises(ValueError, match="build-ops"):
        Suppression(DetectConfig(), 9, 2, (10, 10), native=True)


# ------------------------------------------------------------------ in a graph

def graph_of(predictor):
    return predictor.graph(mx.sym.var("data"))[0].tojson()


def test_a_predictor_finds_the_same_with_either(tiny_run, monkeypatch):
    require_library()
    pictures = list(np.random.RandomState(0).randint(0, 256, (2, 64, 64, 3), np.uint8))
    results = []
    for available in (True, False):
        monkeypatch.setattr(native_ops, "load", lambda value=available: value)
        predictor = load_predictor(tiny_run.folder, overrides=["detect.score_threshold=0.001"])
        assert ("yolact_fast_nms" in graph_of(predictor)) == available
        results.append(predictor(pictures))
    for native, composed in zip(*results):
        assert len(native)
        for name in ("scores", "classes", "boxes", "masks"):
            np.testing.assert_allclose(getattr(native, name), getattr(composed, name), atol=1e-6)


def test_exports_do_not_need_the_library(tiny_run, tmp_path):
    require_library()
    weights, config = find_weights(tiny_run.folder)
    export_network(config, weights, tmp_path / "model")
    assert "yolact_fast_nms" not in (tmp_path / "model-symbol.json").read_text()


def test_a_gpu_has_the_composed_form(tiny_run, monkeypatch):
    require_library()
    weights, config = find_weights(tiny_run.folder)
    net = predict.build_yolact(config, len(config.classes))
    # stands for any device that is no CPU: there is none here
    predictor = predict.predictor_of(config, net, config.classes, mx.Context("cpu_pinned"))
    assert "yolact_fast_nms" not in graph_of(predictor)
