"""DynamicConv2D against a loop over samples with mixed kernels."""
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from gluon_checks import assert_gradient, exported, outputs
from mxnet import autograd, gluon, nd

from yolact_mx.nn import DynamicConv2D, set_temperature, temperature_at

CASES = [
    dict(kernel_size=3, padding=1),
    dict(kernel_size=3, strides=2, padding=1, groups=2),
    dict(kernel_size=3, padding=2, dilation=2, use_bias=False, activation="relu"),
    dict(kernel_size=(3, 2), strides=(1, 2), padding=(1, 0), dilation=(2, 1), num_kernels=3),
    dict(kernel_size=1, groups=4, temperature=0.5, reduction=100),
    dict(kernel_size=5, strides=3),
]


def layer(in_channels=4, channels=8, seed=0, **options):
    """An initialised layer whose attention and biases are far from uniform and from zero."""
    conv = DynamicConv2D(channels, in_channels=in_channels, **options)
    conv.initialize()
    rng = np.random.RandomState(seed)
    for name, parameter in conv.collect_params().items():
        if not name.endswith("temperature"):
            parameter.set_data(nd.array(rng.standard_normal(parameter.shape) / 2))
    conv.attention[1].bias.set_data(nd.ones(conv.attention[1].bias.shape))  # no dead ReLU
    return conv


def loop_over_samples(conv, x, strides=1, padding=0, dilation=1, groups=1, activation=None,
                      temperature=30.0, **_):
    """The definition: mix the kernels of one sample, convolve that sample, next sample."""
    def pair(value):
        return (value, value) if isinstance(value, int) else value

    outs = []
    for b in range(x.shape[0]):
        sample = x[b:b + 1]
        share = nd.softmax(conv.attention(sample) / temperature)[0]
        weight = sum(share[k] * w.data() for k, w in enumerate(conv.weights))
        bias = [] if conv.bias is None else [nd.dot(share, conv.bias.data())]
        out = nd.Convolution(sample, weight, *bias, kernel=weight.shape[2:],
                             stride=pair(strides), pad=pair(padding), dilate=pair(dilation),
                             num_filter=weight.shape[0], num_group=groups, no_bias=not bias)
        outs.append(nd.relu(out) if activation else out)
    return nd.concat(*outs, dim=0)


def value_and_gradients(function, conv, x):
    """Output, and the gradients of the input and of every parameter that has one."""
    x = x.copy()
    x.attach_grad()
    with autograd.record():
        out = function(x)
        loss = (out * nd.sin(nd.arange(out.size).reshape(out.shape))).sum()
    loss.backward()
    grads = {name: parameter.grad().asnumpy() for name, parameter in
             conv.collect_params().items() if parameter.grad_req != "null"}
    return out.asnumpy(), dict(grads, x=x.grad.asnumpy())


@pytest.mark.parametrize("options", CASES)
def test_equals_a_loop_over_samples(options):
    conv = layer(**options)
    x = nd.array(np.random.RandomState(1).standard_normal((3, 4, 9, 8)))
    expected, expected_grads = value_and_gradients(
        lambda x: loop_over_samples(conv, x, **options), conv, x)
    for hybrid in (False, True):
        conv.hybridize(hybrid, static_alloc=hybrid, static_shape=hybrid)
        value, grads = value_and_gradients(conv, conv, x)
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
        assert grads.keys() == expected_grads.keys()
        for name in grads:
            scale = abs(expected_grads[name]).max()
            assert scale > 0, name
            np.testing.assert_allclose(grads[name], expected_grads[name], atol=1e-5 * scale,
                                       err_msg=name)


@pytest.mark.parametrize("options", CASES)
def test_any_batch_hybrid_and_exported(tmp_path, options):
    conv = layer(**options)
    conv.hybridize(static_alloc=True, static_shape=True)
    x = nd.array(np.random.RandomState(1).standard_normal((5, 4, 9, 8)))
    expected = loop_over_samples(conv, x, **options).asnumpy()
    conv(x)
    loaded = None
    for batch in (5, 1, 3, 5):
        np.testing.assert_allclose(outputs(conv, x[:batch])[0], expected[:batch], atol=1e-5)
        if loaded is None:
            loaded = exported(conv, tmp_path / "conv", ["data"])
            loaded.load_parameters(str(tmp_path / "conv-0000.params"))
        np.testing.assert_allclose(outputs(loaded, x[:batch])[0], expected[:batch], atol=1e-5)


def test_one_kernel_is_a_plain_convolution():
    conv = layer(kernel_size=3, strides=2, padding=1, num_kernels=1)
    plain = gluon.nn.Conv2D(8, 3, 2, 1, in_channels=4)
    plain.initialize()
    plain.weight.set_data(conv.weight0.data())
    plain.bias.set_data(conv.bias.data()[0])
    x = nd.random.normal(shape=(2, 4, 7, 6))
    np.testing.assert_allclose(outputs(conv, x)[0], outputs(plain, x)[0], atol=1e-5)


def test_gradient_by_finite_differences():
    conv = layer(in_channels=2, channels=2, kernel_size=2, num_kernels=2, temperature=1.0)
    conv.cast("float64")
    x = np.random.RandomState(3).standard_normal((2, 2, 3, 3))
    assert_gradient(lambda x: conv(x) ** 2, x)


def test_temperature_changes_a_hybridized_graph_and_travels_with_the_weights(tmp_path):
    conv = layer(kernel_size=3)
    conv.hybridize(static_alloc=True, static_shape=True)
    x = nd.random.normal(shape=(2, 4, 5, 5))
    conv(x)
    for value in (1e6, 1.0, 0.25):
        conv.set_temperature(value)
        expected = loop_over_samples(conv, x, temperature=value).asnumpy()
        np.testing.assert_allclose(outputs(conv, x)[0], expected, atol=1e-5)
    mx.nd.waitall()
    loaded = exported(conv, tmp_path / "conv", ["data"])
    loaded.load_parameters(str(tmp_path / "conv-0000.params"))
    np.testing.assert_allclose(outputs(loaded, x)[0], expected, atol=1e-5)
    conv.save_parameters(str(tmp_path / "conv.params"))
    copy = DynamicConv2D(8, 3, in_channels=4)
    copy.load_parameters(str(tmp_path / "conv.params"))
    assert copy.temperature.data().asscalar() == 0.25
    np.testing.assert_allclose(outputs(copy, x)[0], expected, atol=1e-5)


def test_high_temperature_means_the_average_kernel():
    conv = layer(kernel_size=3, temperature=1e7)
    x = nd.random.normal(shape=(2, 4, 5, 5))
    weight = sum(w.data() for w in conv.weights) / 4
    expected = nd.Convolution(x, weight, conv.bias.data().mean(axis=0), kernel=(3, 3),
                              num_filter=8).asnumpy()
    np.testing.assert_allclose(outputs(conv, x)[0], expected, atol=1e-4)


def test_training_leaves_the_temperature_alone():
    conv = layer(kernel_size=3)
    trainer = gluon.Trainer(conv.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.1})
    before = {name: p.data().asnumpy() for name, p in conv.collect_params().items()}
    with autograd.record():
        loss = (conv(nd.random.normal(shape=(2, 4, 5, 5))) ** 2).sum()
    loss.backward()
    trainer.step(2)
    unchanged = [name for name, p in conv.collect_params().items()
                 if np.array_equal(p.data().asnumpy(), before[name])]
    assert unchanged == [conv.temperature.name]


def test_set_temperature_of_a_network():
    net = gluon.nn.HybridSequential()
    inner = gluon.nn.HybridSequential()
    inner.add(DynamicConv2D(4, 3, in_channels=3), gluon.nn.BatchNorm(in_channels=4))
    net.add(inner, DynamicConv2D(2, 1, in_channels=4))
    net.initialize()
    assert set_temperature(net, 7.5) == 2
    assert [conv.temperature.data().asscalar() for conv in (inner[0], net[1])] == [7.5, 7.5]
    assert set_temperature(gluon.nn.Dense(1), 7.5) == 0


@pytest.mark.parametrize("step, expected", [(0, 30), (25, 22.75), (50, 15.5), (100, 1), (101, 1)])
def test_schedule(step, expected):
    assert temperature_at(step, 100) == expected


def test_schedule_of_no_steps():
    assert temperature_at(0, 0) == 1


def test_initializers_see_a_plain_convolution():
    conv = DynamicConv2D(64, 3, in_channels=32, num_kernels=4)
    conv.initialize(mx.init.Xavier())
    bound = np.sqrt(2 * 3 / (32 * 9 + 64 * 9))
    for weight in conv.weights:
        assert 0.99 * bound < abs(weight.data().asnumpy()).max() <= bound * (1 + 1e-6)
    assert not np.array_equal(conv.weight0.data().asnumpy(), conv.weight1.data().asnumpy())
    assert not conv.bias.data().asnumpy().any()


def test_parameters_can_be_shared():
    conv = layer(kernel_size=3)
    twin = DynamicConv2D(8, 3, in_channels=4, params=conv.collect_params(), prefix=conv.prefix)
    x = nd.random.normal(shape=(2, 4, 5, 5))
    assert np.array_equal(outputs(twin, x)[0], outputs(conv, x)[0])


@pytest.mark.parametrize("options, message", [
    (dict(in_channels=0), "in_channels must be given"),
    (dict(in_channels=4, groups=3), "groups = 3 must divide in_channels = 4"),
    (dict(in_channels=4, num_kernels=0), "num_kernels and reduction must be at least 1"),
    (dict(in_channels=4, temperature=0), "temperature must be positive, found 0"),
])
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        DynamicConv2D(6, 3, **options)


def test_temperature_must_be_positive():
    with pytest.raises(ValueError, match="temperature must be positive, found -1"):
        layer(kernel_size=3).set_temperature(-1)


AMP_SCRIPT = """
import numpy as np
import yolact_mx
import mxnet as mx
from mxnet import autograd, gluon, nd
from yolact_mx.nn import DynamicConv2D

def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 3, in_channels=3), DynamicConv2D(4, 3, in_channels=8))
    return net

mx.random.seed(0)
net = network()
net.initialize(mx.init.Xavier())
x = nd.random.normal(shape=(3, 3, 8, 8))
expected = net(x).asnumpy()
net.save_parameters("{path}")
from mxnet.contrib import amp
amp.init(target_dtype="bfloat16")
net = network()
net.load_parameters("{path}")
net.hybridize(static_alloc=True, static_shape=True)
for _ in range(2):
    with autograd.record():
        out = net(x).astype("float32")
    out.backward()
    assert abs(out.asnumpy() - expected).max() < 0.03 * abs(expected).max()
    assert np.isfinite(net[0].weight.grad().asnumpy()).all()
"""


def test_under_amp(tmp_path):
    script = AMP_SCRIPT.format(path=(tmp_path / "net.params").as_posix())
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script],
                          cwd=str(Path(__file__).resolve().parent.parent),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()[-800:]
