"""select_positives against NumPy fancy indexing, and the literal gap shift it replaces."""
import json
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from gluon_checks import assert_gradient, exported, outputs
from mxnet import autograd, gluon, nd

from yolact_mx.nn import gap_shift_topk, select_positives, unsorted_topk


class Select(gluon.HybridBlock):
    def __init__(self, k, random):
        super().__init__()
        self._options = {"k": k, "random": random}

    def hybrid_forward(self, F, indicator, *tensors):
        return select_positives(F, indicator, *tensors, **self._options)


def example(positives, n=40, dtype="float32", scale=1.0, seed=0):
    """Indicator (B, n) with the given number of ones per image, values (B, n, 3), (B, n)."""
    rng = np.random.RandomState(seed)
    indicator = np.zeros((len(positives), n), "float32")
    for row, count in zip(indicator, positives):
        row[rng.choice(n, count, replace=False)] = 1
    b = (rng.standard_normal((len(positives), n, 3)) * scale).astype(dtype)
    c = (rng.standard_normal((len(positives), n)) * scale).astype(dtype)
    return indicator, b, c


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("dtype, scale", [
    ("float32", 1), ("float32", 1e4), ("float16", 1), ("float16", 1e4), ("float64", 1e4)])
def test_rows_and_gradients_are_bit_exact(dtype, scale, random):
    k, positives = 6, [6, 4, 0, 1]
    a, b, c = example(positives, dtype=dtype, scale=scale)
    data = [nd.array(x, dtype=dtype) for x in (b, c)]
    head = np.random.RandomState(3).standard_normal((4, k, 3)).astype(dtype)
    for x in data:
        x.attach_grad()
    with autograd.record():
        valid, index, rows_b, rows_c = select_positives(nd, nd.array(a), *data, k=k, random=random)
        rows = (rows_b * nd.array(head, dtype=dtype)).sum() + rows_c.sum()
    rows.backward()
    assert rows_b.dtype == rows_c.dtype == np.dtype(dtype)
    assert valid.dtype == np.float32 and index.dtype == np.int32
    valid, index, rows_b, rows_c = (x.asnumpy() for x in (valid, index, rows_b, rows_c))
    grad = np.zeros_like(b)
    for image, count in enumerate(positives):
        where = np.flatnonzero(a[image])
        assert valid[image].tolist() == [1] * count + [0] * (k - count)
        assert index[image].tolist() == where.tolist() + [0] * (k - count)
        assert np.array_equal(rows_b[image, :count], b[image][a[image] == 1])
        assert np.array_equal(rows_c[image, :count], c[image][a[image] == 1])
        assert not rows_b[image, count:].any() and not rows_c[image, count:].any()
        grad[image, where] = head[image, :count]
    assert np.array_equal(data[0].grad.asnumpy(), grad)
    assert np.array_equal(data[1].grad.asnumpy(), a.astype(dtype))


@pytest.mark.parametrize("random", [False, True])
def test_imperative_hybrid_exported_and_another_batch(tmp_path, random):
    block = Select(k=6, random=random)
    a, b, c = example([6, 3])
    expected = outputs(block, nd.array(a), nd.array(b), nd.array(c))
    block.hybridize(static_alloc=True, static_shape=True)
    inputs = [nd.array(x) for x in (a, b, c)]
    hybrid = outputs(block, *inputs)
    loaded = exported(block, tmp_path / "select", ["data0", "data1", "data2"])
    for result in (hybrid, outputs(loaded, *inputs)):
        assert all(np.array_equal(*pair) for pair in zip(result, expected))
    other = [nd.array(x) for x in example([1, 2, 6, 0, 5], n=17)]
    reference = outputs(Select(k=6, random=random), *other)
    for result in (outputs(block, *other), outputs(loaded, *other)):
        assert all(np.array_equal(*pair) for pair in zip(result, reference))


def test_fewer_anchors_than_k():
    a, b, _ = example([2, 3], n=3)
    valid, index, rows = outputs(Select(k=5, random=True), nd.array(a), nd.array(b))
    assert valid.sum(axis=1).tolist() == [2, 3]
    assert np.array_equal(rows[1, :3], b[1])
    assert index[1].tolist() == [0, 1, 2, 0, 0]


def test_more_than_k_first():
    a = nd.array([[0, 1, 1, 0, 1, 1]])
    valid, index = outputs(Select(k=3, random=False), a)
    assert index.tolist() == [[1, 2, 4]] and valid.tolist() == [[1, 1, 1]]


def test_more_than_k_random_subset_is_uniform_ascending_and_redrawn():
    mx.random.seed(0)
    a = np.zeros((500, 12), "float32")
    a[:, 1:11] = 1                                                          # 10 positives
    block = Select(k=4, random=True)
    block.hybridize()
    valid, index = outputs(block, nd.array(a))
    assert valid.all()
    assert (np.diff(index, axis=1) > 0).all() and index.min() == 1 and index.max() == 10
    counts = np.bincount(index.ravel(), minlength=12)[1:11]                 # 200 expected each
    assert abs(counts - 200).max() < 5 * np.sqrt(500 * 0.4 * 0.6)
    assert not np.array_equal(outputs(block, nd.array(a))[1], index)
    mx.random.seed(0)
    assert np.array_equal(outputs(block, nd.array(a))[1], index)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float64"])
def test_indicator_of_any_dtype_negative_is_not_marked(dtype):
    a = np.array([[0, 1, 0, 1]] if dtype in ("bool", "uint8") else [[0, 1, -1, 3]]).astype(dtype)
    valid, index = select_positives(nd, nd.array(a, dtype=dtype), k=3, random=False)
    assert index.asnumpy().tolist() == [[1, 3, 0]] and valid.asnumpy().tolist() == [[1, 1, 0]]


def test_integer_tensor_keeps_its_dtype():
    labels = nd.array([[7, 8, 9]], dtype="int32")
    _, _, rows = select_positives(nd, nd.array([[1, 0, 1]]), labels, k=2)
    assert rows.dtype == np.int32 and rows.asnumpy().tolist() == [[7, 9]]


def test_non_finite_row_zero_stays_out_of_the_padding():
    b = nd.array([[[np.nan], [2.0], [np.inf]]])
    b.attach_grad()
    with autograd.record():
        _, _, rows = select_positives(nd, nd.array([[0, 1, 0]]), b, k=3)
        loss = (rows ** 2).sum()
    loss.backward()
    assert rows.asnumpy().tolist() == [[[2], [0], [0]]]
    assert b.grad.asnumpy().tolist() == [[[0], [4], [0]]]


def test_select_gradient_by_finite_differences():
    a, b, _ = example([3, 1], n=5, dtype="float64")
    assert_gradient(lambda x: select_positives(nd, nd.array(a), x, k=3)[2] ** 3, b)


def test_select_errors():
    with pytest.raises(ValueError, match=r"tensor 1 .* \(2, 4\), found shape \(2, 5, 3\)"):
        select_positives(nd, nd.zeros((2, 4)), nd.zeros((2, 4)), nd.zeros((2, 5, 3)), k=2)
    with pytest.raises(ValueError, match="k must be at least 1"):
        select_positives(nd, nd.zeros((2, 4)), k=0)


def gap_shift_error(dtype, scale):
    """Largest relative error of the literal formulation, and of ours (exactly 0)."""
    a, b, _ = example([10, 10], n=1000, dtype="float64")
    b = (b * scale).astype(dtype)
    indicator, data = nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)
    wanted = np.stack([rows[marks == 1] for rows, marks in zip(b, a)]).astype("float64")
    ours = select_positives(nd, indicator, data, k=10)[2].asnumpy().astype("float64")
    assert np.array_equal(ours, wanted)
    # Per channel the literal form restores the order of the anchors, so rows correspond.
    literal = gap_shift_topk(nd, indicator, data, 10).asnumpy().astype("float64")
    return abs(literal - wanted).max() / scale


def test_literal_gap_shift_is_right_up_to_rounding():
    # gap is about 8 * scale: its rounding unit is 2**-21 * scale (float32), 2**-8 (float16).
    for scale in (1, 1e4):
        assert 0 < gap_shift_error("float32", scale) <= 2.0 ** -20
        assert gap_shift_error("float64", scale) <= 2.0 ** -49
    assert 1e-3 < gap_shift_error("float16", 100) <= 2.0 ** -7


def test_literal_gap_shift_gradient():
    a, b, _ = example([4], n=9, dtype="float64")
    data = nd.array(b, dtype="float64")
    data.attach_grad()
    with autograd.record():
        loss = gap_shift_topk(nd, nd.array(a, dtype="float64"), data, 4).sum()
    loss.backward()
    assert np.array_equal(data.grad.asnumpy(), np.repeat(a[:, :, None], 3, axis=2))


# In company

def test_in_a_network_saved_and_loaded(tmp_path):
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = gluon.nn.Dense(5, flatten=False, in_units=3)

        def hybrid_forward(self, F, a, x):
            valid, index, rows = select_positives(F, a, self.dense(x), k=4, random=False)
            return unsorted_topk(F, rows, 2, axis=2)

    a, b, _ = (nd.array(x) for x in example([4, 2]))
    net, copy = Net(), Net()
    net.initialize()
    net.hybridize()
    expected = net(a, b).asnumpy()
    mx.nd.waitall()
    net.save_parameters(str(tmp_path / "net.params"))
    copy.load_parameters(str(tmp_path / "net.params"))
    assert np.array_equal(copy(a, b).asnumpy(), expected)


AMP_SCRIPT = """
import yolact_mx
from mxnet import autograd, gluon, nd
from mxnet.contrib import amp
amp.init(target_dtype="bfloat16")
from yolact_mx.nn import KMaxPool1D, select_positives

class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv = gluon.nn.Conv2D(2, 1, in_channels=1, use_bias=False)
        self.pool = KMaxPool1D(2)

    def hybrid_forward(self, F, a, x):
        y = F.reshape(self.conv(x), shape=(0, 0, -1))
        valid, index, rows = select_positives(F, a, F.transpose(y, axes=(0, 2, 1)), k=3)
        return self.pool(y), valid, index, rows

net = Net()
net.initialize("ones")
net.hybridize(static_alloc=True, static_shape=True)
x = nd.array([[[[1, 7, 3, 9]]]])
with autograd.record():
    out = net(nd.array([[1, 0, 0, 1]]), x)
    loss = out[0].astype("float32").sum() + out[3].astype("float32").sum()
loss.backward()
print([o.astype("float32").asnumpy().tolist() for o in out],
      net.conv.weight.grad().astype("float32").asnumpy().ravel().tolist())
"""


def test_under_amp():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", AMP_SCRIPT],
                          cwd=str(Path(__file__).resolve().parent.parent),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()[-800:]
    expected = [[[[7, 9], [7, 9]]], [[1, 1, 0]], [[0, 3, 0]], [[[1, 1], [9, 9], [0, 0]]]]
    assert json.loads("[{}]".format(done.stdout.decode().strip().replace("] [", "], ["))) == [
        expected, [26, 26]]
