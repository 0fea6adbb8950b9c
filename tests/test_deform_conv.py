"""DCNv2: its forms against each other, finite differences, residual branches, AMP."""
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from native_library import usable
from tiny import ROOT

from yolact_mx.nn import deform_conv
from yolact_mx.nn.deform_conv import ModulatedDeformConv2D, default_sampler
from yolact_mx.nn.widened_conv import WidenedConv2D


def layer(sampler, strides=1, seed=0):
    mx.random.seed(seed)
    block = ModulatedDeformConv2D(5, 3, strides, 1, in_channels=4, sampler=usable(sampler))
    block.initialize(mx.init.Normal(0.5))
    block.conv_offset_mask.weight.set_data(mx.nd.random.normal(0, 0.1, shape=(27, 4, 3, 3)))
    block.conv_offset_mask.bias.set_data(mx.nd.random.normal(0, 0.5, shape=(27,)))
    return block


def data(shape=(2, 4, 7, 9)):
    return mx.nd.array(np.random.RandomState(1).standard_normal(shape))


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("sampler", ["composed", "library"])
def test_equals_mxnets_operator(sampler, strides, hybrid):
    results = []
    for name in (sampler, "mxnet"):
        block = layer(name, strides)
        if hybrid:
            block.hybridize()
        results.append(block(data()).asnumpy())
    assert results[0].shape == results[1].shape
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


@pytest.mark.parametrize("kernel, strides, padding, channels, shape", [
    (3, 1, 1, 4, (2, 5, 7, 9)), (3, 2, 1, 6, (3, 20, 9, 6)), (3, 1, 1, 3, (1, 33, 1, 1)),
    (1, 1, 0, 4, (2, 3, 5, 4)), (5, 2, 2, 2, (1, 4, 11, 8)), (3, 1, 0, 2, (2, 2, 6, 5))])
def test_library_equals_composed(kernel, strides, padding, channels, shape):
    """With gradients; samples in the map, across its border and far outside."""
    rng = np.random.RandomState(4)
    size = [(n + 2 * padding - kernel) // strides + 1 for n in shape[2:]]
    taps = kernel * kernel
    offset = rng.standard_normal((shape[0], 2 * taps, *size)) * rng.choice([0.5, 3, 1e4], taps * 2
                                                                           )[:, None, None]
    arrays = [mx.nd.array(value) for value in (
        rng.standard_normal(shape), offset, rng.uniform(size=(shape[0], taps, *size)),
        rng.standard_normal((channels, shape[1], kernel, kernel)), rng.standard_normal(channels))]
    results = []
    for name in ("composed", "library"):
        block = ModulatedDeformConv2D(channels, kernel, strides, padding, in_channels=shape[1],
                                      sampler=usable(name))
        for array in arrays:
            array.attach_grad()
        with mx.autograd.record():
            out = block.sample(mx.nd, *arrays)
            loss = (out * out).sum()
        loss.backward()
        results.append([out.asnumpy()] + [array.grad.asnumpy() for array in arrays])
    for composed, library in zip(*results):
        np.testing.assert_allclose(library, composed, rtol=0, atol=1e-5 * abs(composed).max())


def test_initially_half_of_a_plain_convolution():
    block = ModulatedDeformConv2D(5, 3, 1, 1, in_channels=4)
    block.initialize(mx.init.Normal(0.5))
    plain = mx.nd.Convolution(data(), block.weight.data(), no_bias=True, kernel=(3, 3), pad=(1, 1),
                              num_filter=5)
    np.testing.assert_allclose(block(data()).asnumpy(), plain.asnumpy() / 2, atol=1e-5)


@pytest.mark.parametrize("name", ["x", "weight", "bias", "offset_weight", "offset_bias"])
def test_gradients_match_finite_differences(name):
    block, x = layer("composed"), data().astype("float64")
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

    def __init__(self, sampler):
        super().__init__()
        with self.name_scope():
            self.first = mx.gluon.nn.Conv2D(4, 3, padding=1, in_channels=4)
            self.second = ModulatedDeformConv2D(4, 3, 1, 1, in_channels=4, sampler=usable(sampler))

    def hybrid_forward(self, F, x):
        x = F.relu(self.first(x))
        return self.second(x) + x


@pytest.mark.parametrize("sampler", ["composed", "library"])
def test_in_a_residual_branch(sampler):
    """oneDNN refuses the sum when a convolution's output was reshaped before it."""
    block = Residual(sampler)
    block.initialize(mx.init.Normal(0.3))
    imperative = block(data()).asnumpy()
    block.hybridize(static_alloc=True)
    with mx.autograd.record():
        out = block(data())
    out.backward()
    np.testing.assert_allclose(out.asnumpy(), imperative, atol=1e-5)


@pytest.mark.parametrize("sampler", ["composed", "library", "mxnet"])
def test_inference_leaves_the_weights_as_they_are(sampler):
    """The weights are reshaped and widened: what the operators do must not show."""
    block = layer(sampler)
    parameters = (block.weight, block.conv_offset_mask.weight)
    before = [parameter.data().asnumpy().copy() for parameter in parameters]
    block.hybridize(static_alloc=True, static_shape=True)
    first = block(data()).asnumpy()
    for _ in range(3):
        again = block(data()).asnumpy()
    np.testing.assert_array_equal(first, again)
    for parameter, value in zip(parameters, before):
        np.testing.assert_array_equal(parameter.data().asnumpy(), value)


@pytest.mark.parametrize("sampler", ["composed", "library"])
def test_one_pixel_map(sampler):
    block = layer(sampler)
    assert np.isfinite(block(data((1, 4, 1, 1))).asnumpy()).all()


@pytest.mark.parametrize("sampler", ["composed", "library"])
@pytest.mark.parametrize("channel", [0, 1, 18])
def test_a_nan_shows(sampler, channel):
    """An offset or a mask that is no number does not count as a sample outside the map."""
    block = layer(sampler)
    block.conv_offset_mask.bias.data()[channel] = np.nan
    assert np.isnan(block(data()).asnumpy()).any(axis=1).all()


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("sampler", ["composed", "library"])
def test_gradients_are_added(sampler, hybrid):
    """grad_req="add" on parameters, as train.accumulate sets it, and on the input itself."""
    block, x = layer(sampler), data()
    arrays = [parameter.data() for parameter in block.collect_params().values()] + [x]
    if hybrid:
        block.hybridize(static_alloc=True, static_shape=True)
    grads = []
    for grad_req, times in (("write", 1), ("add", 3)):
        block.collect_params().setattr("grad_req", grad_req)
        block.collect_params().zero_grad()
        x.attach_grad(grad_req)
        for _ in range(times):
            with mx.autograd.record():
                loss = (block(x) ** 2).sum()
            loss.backward()
        grads.append([array.grad.asnumpy() for array in arrays])
    for once, thrice in zip(*grads):
        np.testing.assert_allclose(thrice, 3 * once, rtol=0, atol=1e-5 * abs(thrice).max())


@pytest.mark.parametrize("frozen", ["weight|bias", ".*offset_weight", None])
def test_library_with_frozen_parts(frozen):
    """Gradients that nobody asks for are not written anywhere."""
    results = []
    for sampler in ("composed", "library"):
        block = layer(sampler)
        own = [block.weight, block.bias]
        predicted = [block.conv_offset_mask.weight, block.conv_offset_mask.bias]
        trained = {"weight|bias": predicted, ".*offset_weight": own, None: own + predicted}[frozen]
        for parameter in own + predicted:
            parameter.grad_req = "write" if parameter in trained else "null"
        block.hybridize(static_alloc=True, static_shape=True)
        for _ in range(2):
            with mx.autograd.record():
                loss = (block(data()) ** 2).sum()
            loss.backward()
        results.append([parameter.grad().asnumpy() for parameter in trained])
    for composed, library in zip(*results):
        np.testing.assert_allclose(library, composed, rtol=0, atol=1e-5 * abs(composed).max())


@pytest.mark.parametrize("sampler", ["composed", "library", "mxnet"])
def test_input_channels_are_found(sampler):
    blocks = [ModulatedDeformConv2D(5, in_channels=n, sampler=usable(sampler)) for n in (0, 4)]
    for hybrid, block in enumerate(blocks):
        mx.random.seed(1)
        block.initialize(mx.init.Normal(1))
        block.hybridize(bool(hybrid))
    outs = [block(data()).asnumpy() for block in blocks]
    assert blocks[0].conv_offset_mask.weight.shape == (27, 4, 3, 3)
    assert blocks[0].weight.shape == (5, 4, 3, 3) and outs[0].shape == outs[1].shape


@pytest.mark.parametrize("channels", [3, 27, 32, 50])
def test_widened_convolution_is_a_convolution(channels):
    grads, outs = [], []
    mx.random.seed(3)
    plain = mx.gluon.nn.Conv2D(channels, 3, 2, 1, in_channels=4)
    plain.initialize(mx.init.Normal(1))
    plain.bias.set_data(mx.nd.arange(channels))
    for block in (plain, WidenedConv2D(channels, 3, 2, 1, in_channels=4,
                                       params=plain.collect_params(), prefix=plain.prefix)):
        with mx.autograd.record():
            out = block(data())
            loss = (out ** 2).sum()
        loss.backward()
        outs.append(out.asnumpy())
        grads.append(block.weight.grad().asnumpy())
    np.testing.assert_allclose(outs[1], outs[0], atol=1e-5 * abs(outs[0]).max())
    np.testing.assert_allclose(grads[1], grads[0], atol=1e-5 * abs(grads[0]).max())


@pytest.mark.parametrize("built, kinds, training, expected", [
    (True, "gpu", True, "mxnet"), (True, "cpu", True, "library"), (True, "cpu", False, "library"),
    (False, "cpu", True, "composed"), (False, "cpu", False, "mxnet"), (False, "gpu", True, "mxnet"),
    (True, "cpu gpu", True, "composed"), (True, "cpu gpu", False, "mxnet")])
def test_default_sampler(monkeypatch, built, kinds, training, expected):
    monkeypatch.setattr(deform_conv, "load", lambda: built)
    contexts = [mx.Context(kind) for kind in kinds.split()]
    assert default_sampler(contexts, training) == expected


def test_unknown_samplers(monkeypatch):
    with pytest.raises(ValueError, match="expected one of composed, mxnet, library, found 'x'"):
        ModulatedDeformConv2D(5, sampler="x")
    monkeypatch.setattr(deform_conv, "load", lambda: False)
    with pytest.raises(ValueError, match="'library' .run yolact-mx build-ops"):
        ModulatedDeformConv2D(5, sampler="library")


AMP_SCRIPT = """
import sys
sys.path.insert(0, "tests")
import numpy as np
from native_library import usable
import mxnet as mx
from mxnet import autograd, nd
from mxnet.contrib import amp
from yolact_mx.nn import ModulatedDeformConv2D

def network(sampler):
    net = mx.gluon.nn.HybridSequential()
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(8, 3, in_channels=3),
                ModulatedDeformConv2D(8, in_channels=8, sampler=sampler),
                mx.gluon.nn.Conv2D(4, 3, in_channels=8))
    return net

mx.random.seed(0)
first = network("composed")
first.initialize(mx.init.Xavier())
first[1].conv_offset_mask.initialize(mx.init.Normal(0.05), force_reinit=True)
x = nd.random.normal(shape=(2, 3, 12, 12))
expected = first(x).asnumpy()
first.save_parameters("{path}")
amp.init(target_dtype="bfloat16")
for sampler in "composed", usable("library"):  # loaded after AMP has wrapped all operators
    net = network(sampler)
    net.load_parameters("{path}")
    net.hybridize(static_alloc=True, static_shape=True)
    with autograd.record():
        raw = net(x)
        out = raw.astype("float32")
    out.backward()
    assert raw.dtype != np.float32, raw.dtype
    assert abs(out.asnumpy() - expected).max() < 0.03 * abs(expected).max()
    assert all(np.isfinite(p.grad().asnumpy()).all() for p in net.collect_params().values())
"""


def test_under_amp(tmp_path):
    usable("library")
    script = AMP_SCRIPT.format(path=(tmp_path / "net.params").as_posix())
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=str(ROOT),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()[-800:]
