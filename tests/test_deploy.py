"""Graphs made for inference compute what the network computes, in fewer operators."""
import json

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

from yolact_mx import graph_passes
from yolact_mx.config import load_config
from yolact_mx.deploy import block_of, compile_network, inference_graph
from yolact_mx.graph_passes import Graph, bake, graph_of
from yolact_mx.models import build_yolact
from yolact_mx.nn.widened_conv import WidenedConv2D


def operators(symbol):
    return [node["op"] for node in json.loads(symbol.tojson())["nodes"]]


def layers(*blocks):
    """An initialised sequence, its BatchNorm statistics not trivial."""
    net = nn.HybridSequential()
    net.add(*blocks)
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 3, 8, 8)))
    rng = np.random.RandomState(0)
    for name, parameter in net.collect_params().items():
        if "batchnorm" in name or "bias" in name:
            parameter.set_data(mx.nd.array(rng.uniform(0.5, 2, parameter.shape)))
    return net


def graph(net):
    return graph_of([net(mx.sym.var("data"))], net)


@pytest.fixture(scope="module")
def pictures():
    return mx.nd.array(np.random.RandomState(1).normal(size=(2, 3, 8, 8)))


def test_fold_by_hand():
    """1x1 kernel: w = 3, gamma = 2, mean = 1, var + eps = 4, beta = 5 -> y = 3 x + 4."""
    net = layers(nn.Conv2D(1, 1, use_bias=False, in_channels=3), nn.BatchNorm(epsilon=1.0))
    net[0].weight.set_data(mx.nd.array([3, 0, 0]).reshape((1, 3, 1, 1)))
    for name, value in (("gamma", 2), ("beta", 5), ("running_mean", 1), ("running_var", 3)):
        getattr(net[1], name).set_data(mx.nd.array([value]))
    folded = inference_graph(graph(net))
    weight, bias = (folded.params[name].asnumpy() for name in folded.symbol.list_inputs()[1:])
    assert weight.ravel().tolist() == [3, 0, 0]
    assert bias.tolist() == [4]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_fold(bias, scale, pictures):
    net = layers(
        nn.Conv2D(5, 3, use_bias=bias, in_channels=3), nn.BatchNorm(scale=scale),
        nn.Activation("relu"), nn.Conv2D(4, 3, in_channels=5), nn.BatchNorm(),
    )
    folded = inference_graph(graph(net))
    assert "BatchNorm" not in operators(folded.symbol)
    assert not folded.symbol.list_auxiliary_states()
    np.testing.assert_allclose(
        block_of(folded, mx.cpu())(pictures).asnumpy(), net(pictures).asnumpy(), atol=1e-5)


def test_what_cannot_be_folded_stays(pictures):
    """A BatchNorm after another layer, and a convolution that others read as well."""
    data = mx.sym.var("data")
    relu, conv = layers(nn.Activation("relu"), nn.BatchNorm()), layers(nn.Conv2D(4, 1))
    norm = layers(nn.BatchNorm(in_channels=3))
    first = graph(relu)
    assert operators(inference_graph(first).symbol).count("BatchNorm") == 1
    shared, norm = conv(data), nn.BatchNorm(in_channels=4)
    norm.initialize()
    params = {p.name: p.data() for b in (conv, norm) for p in b.collect_params().values()}
    second = Graph(mx.sym.Group([norm(shared), shared + 1]), params)
    assert operators(inference_graph(second).symbol).count("BatchNorm") == 1


@pytest.mark.parametrize("channels, widened", [(5, 10), (16, 16), (27, 32)])
def test_weights_are_worked_out(channels, widened, pictures):
    net = layers(WidenedConv2D(channels, 3, in_channels=3))
    result = bake(graph(net))
    assert [len(v) for v in result.params.values()] == [widened] * 2
    assert "Concat" not in operators(result.symbol)
    found = block_of(result, mx.cpu())(pictures)
    np.testing.assert_array_equal(found.asnumpy(), net(pictures).asnumpy())


def test_layers_that_share_weights_have_them_once(pictures):
    net = layers(WidenedConv2D(5, 1, in_channels=3))
    data = mx.sym.var("data")
    result = bake(graph_of([net(data), net(data + 1)], net))
    assert [len(v) for v in result.params.values()] == [10] * 2
    for found, shift in zip(block_of(result, mx.cpu())(pictures), (0, 1)):
        np.testing.assert_allclose(found.asnumpy(), net(pictures + shift).asnumpy(), atol=1e-6)


def test_names_become_unique():
    """Fusion once took the weights of one of two layers of a name for those of the other."""
    data = mx.sym.var("data")
    twice = mx.sym.relu(mx.sym.relu(data, name="same"), name="same")
    names = [n["name"] for n in json.loads(graph_passes._rebuild(twice, {}).tojson())["nodes"]]
    assert len(set(names)) == 3


@pytest.fixture(scope="module")
def network():
    config = load_config("shapes")
    mx.random.seed(0)
    net = build_yolact(config, 3)
    images = mx.nd.array(np.random.RandomState(2).normal(size=(3, 3, 128, 128)))
    return net, images, [output.asnumpy() for output in net(images)]


def relative(found, wanted):
    return [np.abs(a.asnumpy() - b).max() / np.abs(b).max() for a, b in zip(found, wanted)]


def test_float32_network(network):
    net, images, wanted = network
    fast = compile_network(net, mx.cpu())
    assert max(relative(fast(images), wanted)) < 1e-5
    assert max(relative(fast(images[:1]), [value[:1] for value in wanted])) < 1e-5


def test_bfloat16_network(network):
    """8 bits of mantissa: 2^-9 a rounding; but for the first layer all convolutions are rounded."""
    net, images, wanted = network
    worst = max(relative(compile_network(net, mx.cpu(), "bfloat16")(images), wanted))
    assert 1e-4 < worst < 0.05


def test_int8_network(network):
    net, images, wanted = network
    fast = compile_network(net, mx.cpu(), "int8", images.asnumpy())
    for found, value in zip(fast(images), wanted):
        correlation = np.corrcoef(found.asnumpy().ravel(), value.ravel())[0, 1]
        assert 0.98 < correlation < 1
