"""Multiply-adds and parameters of graphs, against numbers worked out by hand."""
import importlib
import re
import sys

import mxnet as mx
import pytest
from mxnet.gluon import nn
from tiny import ROOT

from yolact_mx.errors import ConfigError
from yolact_mx.graph_cost import count
from yolact_mx.nn import DynamicConv2D
from yolact_mx.nn.deform_conv import ModulatedDeformConv2D

X = mx.sym.var("x")


def test_convolutions():
    # 8 x 8 -> stride 2, padding 1 -> 4 x 4 positions, 6 channels of 3 * 3 * 3 products
    plain = nn.Conv2D(6, 3, 2, 1, in_channels=3)(X)
    assert count(plain, x=(1, 3, 8, 8)) == ({"Convolution": 16 * 6 * 27}, 6 * 27 + 6)
    assert count(plain, x=(5, 3, 8, 8)).multiply_adds == {"Convolution": 5 * 16 * 6 * 27}
    assert count(plain, x=(1, 3, 8, 8)).flops == 2 * 16 * 6 * 27
    # two groups: each output channel sees 2 of 4 channels
    grouped = nn.Conv2D(6, 1, groups=2, use_bias=False, in_channels=4)(X)
    assert count(grouped, x=(1, 4, 5, 5)) == ({"Convolution": 25 * 6 * 2}, 12)


def test_products():
    dense = nn.Dense(10, in_units=12)(X)  # of a flattened (3, 4)
    assert count(dense, x=(2, 3, 4)) == ({"FullyConnected": 2 * 10 * 12}, 130)
    y = mx.sym.var("y")
    for a, b, options in (((2, 3, 4), (2, 4, 5), {}), ((2, 4, 3), (2, 4, 5), {"transpose_a": True}),
                          ((2, 3, 4), (2, 5, 4), {"transpose_b": True})):
        assert count(mx.sym.batch_dot(X, y, **options), x=a, y=b) == ({"batch_dot": 2 * 15 * 4}, 0)
    for a, options in (((3, 4), {}), ((4, 3), {"transpose_a": True})):
        assert count(mx.sym.dot(X, y, **options), x=a, y=(4, 5)) == ({"dot": 15 * 4}, 0)


def test_a_layer_that_runs_twice_has_its_parameters_once():
    conv = nn.Conv2D(2, 1, in_channels=2, use_bias=False)
    batch_norm = nn.BatchNorm(in_channels=2)  # gamma and beta; its statistics do not count
    twice = batch_norm(conv(mx.sym.Pooling(conv(X), kernel=(2, 2), stride=(2, 2))))
    assert count(twice, x=(1, 2, 4, 4)) == ({"Convolution": (16 + 4) * 2 * 2}, 4 + 2 + 2)


def test_operators_with_several_outputs():
    first, second = mx.sym.split(X, num_outputs=2, axis=1)
    graph = mx.sym.Group([first, nn.Conv2D(1, 1, in_channels=3, use_bias=False)(second)])
    assert count(graph, x=(1, 6, 2, 2)) == ({"Convolution": 4 * 3}, 3)


def test_deformable_convolutions():
    """MXNet's and the composed one: the same products; the latter masks with a batch_dot."""
    names = ("offset", "mask", "weight", "bias")
    shapes = dict(x=(1, 2, 5, 5), offset=(1, 18, 5, 5), mask=(1, 9, 5, 5), weight=(4, 2, 3, 3))
    main, masks = 25 * 4 * 18, 25 * 9 * 2
    for sampler, expected in (("mxnet", {"_contrib_ModulatedDeformableConvolution": main}),
                              ("composed", {"Convolution": main, "batch_dot": masks})):
        layer = ModulatedDeformConv2D(4, 3, 1, 1, in_channels=2, sampler=sampler)
        graph = layer.sample(mx.sym, X, *map(mx.sym.var, names))
        assert count(graph, **shapes) == (expected, 4)  # the weight is an input here
    first = mx.sym.contrib.DeformableConvolution(
        X, mx.sym.var("offset"), kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
    assert count(first, x=(1, 2, 5, 5), offset=(1, 18, 5, 5)) == (
        {"_contrib_DeformableConvolution": main}, 4 * 18)


def test_dynamic_convolution():
    layer = DynamicConv2D(4, 3, padding=1, in_channels=2)
    found = count(layer(X), x=(2, 2, 5, 5)).multiply_adds
    assert found["batch_dot"] == 2 * 25 * 4 * 18  # kernels times patches


def test_constants_are_no_parameters():
    graph = mx.sym.broadcast_add(X, mx.sym.var("mean"))
    assert count(graph, x=(1, 3, 2, 2), mean=(1, 3, 1, 1)) == ({}, 0)


@pytest.mark.parametrize("shapes, text", [
    ({"z": (1, 2)}, "the graph has no input 'z'; it has x, w"),
    ({}, "do not determine those of the whole graph"),
    ({"x": (1, 2, 4, 4), "w": (4, 3, 1, 1)}, "do not fit the graph: ")])
def test_shapes_that_will_not_do(shapes, text):
    graph = mx.sym.Convolution(X, mx.sym.var("w"), kernel=(1, 1), num_filter=4, no_bias=True)
    with pytest.raises(ConfigError, match=re.escape(text)):
        count(graph, **shapes)


@pytest.mark.parametrize("name", ["yolact_mobilenet", "yolact_resnet50", "yolact_plus_resnet50"])
def test_table_of_the_page(name, monkeypatch):
    """docs/configurations.md has the rows that the benchmark prints."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("configurations")
    sys.modules.pop("configurations")
    page = (ROOT / "docs" / "configurations.md").read_text(encoding="utf-8")
    row, = re.findall(r"^\| `{}` \|.*$".format(name), page, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == script.row(name)
