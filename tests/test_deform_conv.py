"""DCNv2: the composed form against MXNet's operator, finite differences, residual branches."""
import mxnet as mx
import numpy as np
import pytest

from yolact_mx.nn.deform_conv import ModulatedDeformConv2D


def layer(native, strides=1, seed=0):
    mx.random.seed(seed)
    block = ModulatedDeformConv2D(5, 3, strides, 1, in_channels=4, native=native)
    block.initialize(mx.init.Normal(0.5))
    block.conv_offset_mask.weight.set_data(mx.nd.random.normal(0, 0.1, shape=(27, 4, 3, 3)))
    block.conv_offset_mask.bias.set_data(mx.nd.random.normal(0, 0.5, shape=(27,)))
    return block


def data(shape=(2, 4, 7, 9)):
    return mx.nd.array(np.random.RandomState(1).standard_normal(shape))


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("hybrid", [False, True])
def test_composed_equals_native(strides, hybrid):
    results = []
    for native in (False, True):
        block = layer(native, strides)
        if hybrid:
            block.hybridize()
        results.append(block(data()).asnumpy())
    assert results[0].shape == results[1].shape
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


def test_initially_half_of_a_plain_convolution():
    block = ModulatedDeformConv2D(5, 3, 1, 1, in_channels=4)
    block.initialize(mx.init.Normal(0.5))
    plain = mx.nd.Convolution(data(), block.weight.data(), no_bias=True, kernel=(3, 3), pad=(1, 1),
                              num_filter=5)
    np.testing.assert_allclose(block(data()).asnumpy(), plain.asnumpy() / 2, atol=1e-5)


@pytest.mark.parametrize("name", ["x", "weight", "bias", "offset_weight", "offset_bias"])
def test_gradients_match_finite_differences(name):
    block, x = layer(native=False), data().astype("float64")
    block.cast("float64")
    parameters = {"weight": block.weight, "bias": block.bias,
                  "offset_weight": block.conv_offset_mask.weight,
                  "offset_bias": block.conv_offset_mask.bias}
    head = mx.nd.array(np.random.RandomState(2).standard_normal((2, 5, 7, 9)), dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        loss = (block(x) * head).sum()
    loss.backward()
    value = x if name == "x" else parameters[name].data()
    grad = (x.grad if name == "x" else parameters[name].grad()).asnumpy()
    rng, start = np.random.RandomState(3), value.copy()
    for _ in range(3):
        direction = rng.standard_normal(value.shape)
        step, ends = 1e-6, []  # so small that no sample crosses a pixel, where there is a kink
        for sign in (1, -1):
            value[:] = start + sign * step * mx.nd.array(direction, dtype="float64")
            ends.append((block(x) * head).sum().asscalar())
        value[:] = start
        numeric = (ends[0] - ends[1]) / (2 * step)
        assert numeric == pytest.approx(float((grad * direction).sum()), rel=1e-5, abs=1e-5)


class Residual(mx.gluon.HybridBlock):
    """A map that is added to its own deformable convolution, as in a ResNet block."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first = mx.gluon.nn.Conv2D(4, 3, padding=1, in_channels=4)
            self.second = ModulatedDeformConv2D(4, 3, 1, 1, in_channels=4)

    def hybrid_forward(self, F, x):
        x = F.relu(self.first(x))
        return self.second(x) + x


def test_in_a_residual_branch():
    """oneDNN refuses the sum when a convolution's output was reshaped before it."""
    block = Residual()
    block.initialize(mx.init.Normal(0.3))
    imperative = block(data()).asnumpy()
    block.hybridize(static_alloc=True)
    with mx.autograd.record():
        out = block(data())
    out.backward()
    np.testing.assert_allclose(out.asnumpy(), imperative, atol=1e-5)


def test_inference_leaves_the_weights_as_they_are():
    """The weight is reshaped for a 1x1 convolution: what the operator does must not show."""
    block = layer(native=False)
    before = block.weight.data().asnumpy().copy()
    block.hybridize(static_alloc=True, static_shape=True)
    first = block(data()).asnumpy()
    for _ in range(3):
        again = block(data()).asnumpy()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(block.weight.data().asnumpy(), before)


def test_one_pixel_map():
    block = layer(native=False)
    assert np.isfinite(block(data((1, 4, 1, 1))).asnumpy()).all()
