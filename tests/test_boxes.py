"""Box geometry on hand-worked numbers."""
import mxnet as mx
import numpy as np
import pytest

from yolact_mx import boxes as box_ops


def nd(values):
    return mx.nd.array(np.asarray(values, np.float32))


def test_iou_of_hand_worked_pairs():
    a = np.array([[0, 0, 2, 2], [0, 0, 1, 1]], np.float32)
    b = np.array([[1, 1, 3, 3], [5, 5, 6, 6], [0, 0, 2, 2]], np.float32)
    np.testing.assert_allclose(box_ops.iou(a, b), [[1 / 7, 0, 1], [0, 0, 1 / 4]], rtol=1e-6)


def test_encode_is_the_inverse_of_decode():
    rng = np.random.RandomState(0)
    low = rng.uniform(0, 0.5, (1, 20, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.1, 0.4, (1, 20, 2))], axis=2)
    anchors = np.concatenate([rng.uniform(0, 1, (1, 20, 2)), rng.uniform(0.1, 0.5, (1, 20, 2))], 2)
    deltas = box_ops.encode(mx.nd, nd(boxes), nd(anchors))
    decoded = box_ops.decode(mx.nd, deltas, nd(anchors)).asnumpy()
    np.testing.assert_allclose(decoded, boxes, atol=1e-6)


def test_encode_hand_worked():
    deltas = box_ops.encode(mx.nd, nd([[[0.4, 0.4, 0.8, 0.6]]]), nd([[[0.5, 0.5, 0.2, 0.2]]]))
    # centre (0.6, 0.5): 0.1 / (0.1 * 0.2) = 5, 0; size (0.4, 0.2): log 2 / 0.2, 0
    np.testing.assert_allclose(deltas.asnumpy()[0, 0], [5, 0, np.log(2) / 0.2, 0], atol=1e-5)


def test_a_box_without_width_has_a_finite_target():
    deltas = box_ops.encode(mx.nd, nd([[[0.5, 0.1, 0.5, 0.9]]]), nd([[[0.5, 0.5, 0.2, 0.2]]]))
    assert np.isfinite(deltas.asnumpy()).all()


def test_pairwise_iou_agrees_with_numpy_in_a_graph():
    rng = np.random.RandomState(1)
    low = rng.uniform(0, 1, (2, 3, 7, 2))
    boxes = np.concatenate([low, low + rng.uniform(0, 1, (2, 3, 7, 2))], 3).astype(np.float32)
    graph = box_ops.pairwise_iou(mx.sym, mx.sym.var("boxes"))
    found = graph.eval(boxes=nd(boxes))[0].asnumpy()
    for i in range(2):
        for j in range(3):
            expected = box_ops.iou(boxes[i, j], boxes[i, j])
            np.testing.assert_allclose(found[i, j], expected, rtol=1e-5)


@pytest.mark.parametrize("box, columns, rows", [
    ((0.25, 0.5, 0.75, 0.75), (1, 7), (2, 4)),    # one pixel of padding on each side
    ((0.75, 0.75, 0.25, 0.5), (1, 7), (2, 4)),    # corners in the wrong order
    ((-1.0, -1.0, 2.0, 2.0), (0, 8), (0, 4)),     # clipped to the map
])
def test_crop_mask(box, columns, rows):
    found = box_ops.crop_mask(mx.nd, mx.nd.zeros((1, 1, 4, 8)), nd([[box]])).asnumpy()[0, 0]
    expected = np.zeros((4, 8))
    # rows of 0.5..0.75 of 4 pixels: 2..3, padded 1..4
    r0 = {(2, 4): 1, (0, 4): 0}[rows]
    expected[r0:rows[1], columns[0]:columns[1]] = 1
    np.testing.assert_array_equal(found, expected)
