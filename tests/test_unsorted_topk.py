"""unsorted_topk against NumPy."""
import mxnet as mx
import numpy as np
import pytest
from gluon_checks import assert_gradient, exported, outputs
from mxnet import autograd, gluon, nd

from yolact_mx.nn import unsorted_topk


class TopK(gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__()
        self._options = options

    def hybrid_forward(self, F, x):
        return unsorted_topk(F, x, **self._options)


def numpy_topk(x, k, axis):
    """Stable order: of equal elements the first; positions ascending."""
    order = np.argsort(-x.astype("float64"), axis=axis, kind="stable")
    return np.sort(np.take(order, np.arange(k), axis=axis), axis=axis)


@pytest.mark.parametrize("data, k, expected", [
    ([1, 2, 4, 10, 5, 3], 3, [4, 10, 5]),
    ([5, 1, 5, 5], 2, [5, 5]),
    ([-3, -1, -2], 1, [-1]),
    ([7], 1, [7]),
    ([0, -np.inf, np.inf, 2], 3, [0, np.inf, 2]),
])
def test_keeps_original_order(data, k, expected):
    assert unsorted_topk(nd, nd.array(data), k).asnumpy().tolist() == expected


def test_return_types():
    x = nd.array([[3, 9, 9, 9, 1], [2, 2, 2, 2, 2]])
    assert unsorted_topk(nd, x, 2, ret_typ="indices").asnumpy().tolist() == [[1, 2], [0, 1]]
    mask = unsorted_topk(nd, x, 2, ret_typ="mask")
    assert mask.asnumpy().tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    value, indices = unsorted_topk(nd, x, 3, ret_typ="both")
    assert value.asnumpy().tolist() == [[9, 9, 9], [2, 2, 2]]
    assert indices.asnumpy().tolist() == [[1, 2, 3], [0, 1, 2]]
    assert indices.dtype == np.int32


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape, axis", [
    ((6,), 0), ((6,), -1), ((3, 6), 1), ((6, 3), 0), ((2, 6, 3), -2), ((2, 3, 6), 2),
    ((2, 1, 6, 3), 2), ((2, 2, 1, 2, 6), -1)])
def test_any_shape_imperative_hybrid_exported(tmp_path, dtype, shape, axis):
    x = np.random.RandomState(0).randint(0, 4, shape).astype(dtype)      # many ties
    index = numpy_topk(x, 4, axis)
    mask = np.zeros(shape)
    np.put_along_axis(mask, index, 1, axis)
    for ret_typ, expected in (("both", [np.take_along_axis(x, index, axis), index]),
                              ("mask", [mask])):
        block = TopK(k=4, axis=axis, ret_typ=ret_typ)
        results = [outputs(block, nd.array(x, dtype=dtype))]
        block.hybridize(static_alloc=True, static_shape=True)
        results.append(outputs(block, nd.array(x, dtype=dtype)))
        loaded = exported(block, tmp_path / ret_typ, ["data"])
        loaded.cast(dtype)
        results.append(outputs(loaded, nd.array(x, dtype=dtype)))
        for result in results:
            assert result[0].dtype == dtype
            assert all(np.array_equal(*pair) for pair in zip(result, expected))


def test_ties_go_to_the_first_on_a_long_axis():
    x = np.random.RandomState(1).randint(0, 3, (2, 20000)).astype("float32")
    for k in (100, 7000, 20000):
        found = unsorted_topk(nd, nd.array(x), k, ret_typ="indices").asnumpy()
        assert np.array_equal(found, numpy_topk(x, k, 1))


def test_indices_are_exact_beyond_float32():
    n = 2 ** 24 + 4
    x = nd.zeros((n,))
    x[n - 3] = 1
    x[n - 1] = 2
    value, indices = unsorted_topk(nd, x, 2, ret_typ="both")
    assert indices.asnumpy().tolist() == [n - 3, n - 1]
    assert value.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradient_reaches_exactly_the_chosen(dtype):
    x = nd.array([[1, 2, 4, 10, 5, 3], [7, 7, 7, 0, 7, 7]], dtype=dtype)
    x.attach_grad()
    with autograd.record():
        loss = (unsorted_topk(nd, x, 3) * nd.array([1, 10, 100], dtype=dtype)).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [[0, 0, 1, 10, 100, 0], [1, 10, 100, 0, 0, 0]]


def test_topk_gradient_by_finite_differences():
    x = np.random.RandomState(2).permutation(24).reshape(2, 3, 4) / 7.0   # no ties within a step
    assert_gradient(lambda x: unsorted_topk(nd, x, 2, axis=1) ** 3, x)


def test_topk_errors():
    x = nd.zeros((2, 5))
    with pytest.raises(ValueError, match=r"axis -1 of shape \(2, 5\) must be at least k = 6"):
        unsorted_topk(nd, x, 6)
    with pytest.raises(ValueError, match="k must be at least 1, found 0"):
        unsorted_topk(nd, x, 0)
    with pytest.raises(ValueError, match="found 'values'"):
        unsorted_topk(nd, x, 2, ret_typ="values")
    block = TopK(k=6)
    block.hybridize()
    with pytest.raises(mx.MXNetError):
        block(x).wait_to_read()
