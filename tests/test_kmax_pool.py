"""KMaxPool1D and KMaxPool2D."""
import mxnet as mx
import numpy as np
import pytest
from gluon_checks import assert_gradient, exported, outputs
from mxnet import autograd, gluon, nd

from yolact_mx.nn import KMaxPool1D, KMaxPool2D


def test_keeps_the_order_and_the_first_of_equals():
    assert outputs(KMaxPool1D(3), nd.array([1, 2, 4, 10, 5, 3]))[0].tolist() == [4, 10, 5]
    assert outputs(KMaxPool1D(2), nd.array([[3, 8, 8, 8]]))[0].tolist() == [[8, 8]]


def test_shape_of_the_original_question():
    pool = KMaxPool1D(7)
    pool.hybridize()
    x = nd.random.normal(shape=(128, 512, 1, 125))
    assert pool(x).shape == (128, 512, 1, 7)


@pytest.mark.parametrize("axis, expected", [
    (1, [[[5, 2], [3, 4]]]), (-1, [[[1, 2], [5, 0], [3, 4]]]), (2, [[[1, 2], [5, 0], [3, 4]]])])
def test_axis(axis, expected):
    x = nd.array([[[1, 2], [5, 0], [3, 4]]])
    assert outputs(KMaxPool1D(2, axis=axis), x)[0].tolist() == expected


def test_2d_takes_the_largest_of_each_map_row_by_row():
    x = nd.array([[[[9, 1], [2, 7]], [[0, 3], [6, 3]]]])
    assert outputs(KMaxPool2D(2), x)[0].tolist() == [[[9, 7], [3, 6]]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("pool, shape", [(KMaxPool1D(3), (2, 4, 9)), (KMaxPool1D(3, 1), (2, 4, 9)),
                                         (KMaxPool2D(5), (2, 3, 4, 4))])
def test_imperative_hybrid_exported(tmp_path, pool, shape, dtype):
    x = nd.array(np.random.RandomState(0).standard_normal(shape), dtype=dtype)
    pool.hybridize(active=False)
    expected = outputs(pool, x)[0]
    pool.hybridize(static_alloc=True, static_shape=True)
    hybrid = outputs(pool, x)[0]
    loaded = exported(pool, tmp_path / "pool", ["data"])
    loaded.cast(dtype)
    assert expected.dtype == dtype
    assert np.array_equal(hybrid, expected)
    assert np.array_equal(outputs(loaded, x)[0], expected)


@pytest.mark.parametrize("hybrid", [False, True])
def test_gradient_reaches_exactly_the_chosen(hybrid):
    pool = KMaxPool2D(2)
    pool.hybridize(hybrid)
    x = nd.array([[[[9, 1], [2, 7]], [[6, 6], [6, 0]]]])
    x.attach_grad()
    with autograd.record():
        loss = (pool(x) * nd.array([[[1, 10], [100, 1000]]])).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [[[[1, 0], [0, 10]], [[100, 1000], [0, 0]]]]


def test_gradient_by_finite_differences():
    x = np.random.RandomState(1).permutation(24).reshape(2, 2, 2, 3) / 7.0
    assert_gradient(lambda x: KMaxPool1D(2)(x) ** 3, x)
    assert_gradient(lambda x: KMaxPool2D(4)(x) ** 3, x)


def test_in_a_network_saved_and_loaded(tmp_path):
    def network():
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Conv2D(4, 3, in_channels=2), KMaxPool2D(5), KMaxPool1D(3),
                gluon.nn.Dense(2, in_units=12))
        return net

    net, copy = network(), network()
    net.initialize()
    x = nd.random.normal(shape=(2, 2, 6, 6))
    expected = outputs(net, x)[0]
    net.save_parameters(str(tmp_path / "net.params"))
    copy.load_parameters(str(tmp_path / "net.params"))
    copy.hybridize()
    assert np.allclose(outputs(copy, x)[0], expected, atol=1e-6)


@pytest.mark.parametrize("pool, shape", [(KMaxPool1D(5), (2, 4)), (KMaxPool2D(5), (1, 1, 2, 2))])
def test_shorter_than_k(pool, shape):
    with pytest.raises(ValueError, match="at least k = 5"):
        pool(nd.zeros(shape))
    pool.hybridize()
    with pytest.raises(mx.MXNetError):
        pool(nd.zeros(shape)).wait_to_read()


@pytest.mark.parametrize("layer", [KMaxPool1D, KMaxPool2D])
def test_k_must_be_positive(layer):
    with pytest.raises(ValueError, match=layer.__name__ + ": k must be at least 1, found 0"):
        layer(0)
