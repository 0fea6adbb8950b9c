"""The network of a training step: cheaper, and equal; 16 bits; the scale of the loss."""
import logging

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn
from native_library import usable
from tiny import CLASSES, losses, write_config

from yolact_mx import train_step
from yolact_mx.config import load_config
from yolact_mx.errors import NonFiniteLoss
from yolact_mx.graph_passes import content_of
from yolact_mx.loss_scale import LossScale
from yolact_mx.models import build_yolact
from yolact_mx.nn.native_ops import processor
from yolact_mx.options import TrainConfig
from yolact_mx.train_step import training_dtype, training_network
from yolact_mx.updater import Updater

pytest_plugins = ("tiny_fixtures",)
needs_bfloat16 = pytest.mark.skipif("avx512_bf16" not in processor(), reason="no bfloat16 here")


def network(folder, sampler="composed", freeze_bn=True):
    """A small YOLACT++; its statistics and offsets are not trivial."""
    mx.random.seed(0)
    net = build_yolact(load_config(write_config(folder)), len(CLASSES), training=True,
                       freeze_bn=freeze_bn, dcn_sampler=sampler)
    rng = np.random.RandomState(0)
    for name, parameter in net._collect_params_with_prefix().items():
        if name.endswith(("gamma", "beta", "running_var", "bias")):
            parameter.set_data(mx.nd.array(rng.uniform(0.5, 1.5, parameter.shape)))
    offsets = net.backbone.layer4[0].conv2.conv_offset_mask.weight
    offsets.set_data(mx.nd.array(rng.normal(0, 0.02, offsets.shape)))
    return net


def run(block, net):
    """Outputs, and the gradients of a weighted sum of them."""
    rng, trained = np.random.RandomState(1), {
        name: p for name, p in net.collect_params(".*(?<!mask_iou)").items()
        if p.grad_req != "null" and "maskiou" not in name}
    images = mx.nd.array(rng.normal(size=(2, 3, 64, 64)))
    with mx.autograd.record():
        outputs = block(images)
        total = sum((out * mx.nd.array(rng.normal(size=out.shape))).mean() for out in outputs)
    total.backward()
    return ([out.asnumpy() for out in outputs],
            {name: p.grad().asnumpy() for name, p in trained.items()})


def operators(block):
    return [node["op"] for node in content_of(block(mx.sym.var("data"))[0])["nodes"]]


def errors(found, wanted):
    return [np.abs(a - b).max() / max(np.abs(b).max(), 1e-9) for a, b in zip(found, wanted)]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("sampler", ["composed", "library"])
def test_outputs_and_gradients_are_those_of_the_network(tmp_path, sampler, static):
    """Also of the bias before a folded BatchNorm, whose gradient a static graph once spoilt."""
    usable(sampler)
    net = network(tmp_path, sampler)
    net.hybridize()
    outputs, gradients = run(net, net)
    twin = training_network(net)
    twin.hybridize(static_alloc=static)
    assert twin.collect_params().keys() <= net.collect_params().keys()
    for _ in range(2):
        found, others = run(twin, net)
        assert max(errors(found, outputs)) < 1e-5
        assert max(errors(others.values(), gradients.values())) < 1e-4


def test_only_fixed_statistics_are_folded(tmp_path):
    fixed, trained = (network(tmp_path, freeze_bn=freeze) for freeze in (True, False))
    assert "BatchNorm" in operators(fixed)
    assert "BatchNorm" not in operators(training_network(fixed))
    assert operators(training_network(trained)) == operators(trained)


@needs_bfloat16
def test_bfloat16(tmp_path):
    """8 bits of mantissa: outputs to a percent or two, gradients in the same direction.

    So too on P6 and P7 of one pixel here, where oneDNN would take them from unwritten memory.
    """
    net = network(tmp_path)
    outputs, gradients = run(net, net)
    low, others = run(training_network(net, "bfloat16"), net)
    assert 1e-4 < max(errors(low, outputs)) < 0.15
    for found, wanted in zip(low, outputs):
        assert np.abs(found - wanted).mean() < 0.02 * np.abs(wanted).mean()
    for name, gradient in gradients.items():
        assert others[name].dtype == np.float32
        cosine = (gradient * others[name]).sum() / np.sqrt(
            (gradient ** 2).sum() * (others[name] ** 2).sum())
        assert cosine > 0.98, name


def test_float16_is_within_the_network_only(tmp_path):
    """All convolutions but the first and that of P7.  CPUs have none: nothing is run."""
    net = network(tmp_path)
    outputs = training_network(net, "float16")(mx.sym.var("data"))
    content = content_of(mx.sym.Group(list(outputs)))
    nodes, exact = content["nodes"], []
    for node in nodes:
        if node["op"] == "Convolution":
            data, weight = (nodes[i] for i, *_ in node["inputs"][:2])
            if weight["op"] != "amp_cast" or weight["attrs"]["dtype"] != "float16":
                exact.append(data["name"] if data["op"] == "null" else weight["name"])
    assert exact == ["data", net.fpn.down7.weight.name]
    heads = [nodes[i] for i, *_ in content["heads"]]
    assert all(head["op"] != "Convolution" for head in heads)


def test_number_format_of_training(monkeypatch, caplog):
    on, off = TrainConfig(amp=True), TrainConfig()
    cpu, gpus = [mx.cpu()], [mx.gpu(0), mx.gpu(1)]
    monkeypatch.setattr(train_step, "processor", lambda: "x86_64 avx512f avx512_bf16")
    assert [training_dtype(s, c) for s in (off, on) for c in (cpu, gpus)] == [
        "float32", "float32", "bfloat16", "float16"]
    monkeypatch.setattr(train_step, "processor", lambda: "x86_64 avx2")
    assert not caplog.records
    assert training_dtype(on, cpu) == "float32" and training_dtype(off, cpu) == "float32"
    record, = caplog.records
    assert "no bfloat16 arithmetic" in record.getMessage()


@needs_bfloat16
def test_training_in_bfloat16_follows_float32(trainer, tmp_path):
    for name in ("false", "true"):
        trainer(tmp_path / name, "train.amp=" + name, steps=4).fit()
    exact, low = (losses(tmp_path / name) for name in ("false", "true"))
    assert (exact != low).any()
    np.testing.assert_allclose(low[0], exact[0], rtol=0.02, atol=0.02)
    np.testing.assert_allclose(low.sum(axis=1), exact.sum(axis=1), rtol=0.1)


# ------------------------------------------------------------------ scale of the loss

def test_scale_is_halved_and_doubled(caplog):
    scale = LossScale(8.0)
    with caplog.at_level(logging.INFO):
        assert [scale.accept(finite) for finite in (True, False, True)] == [True, False, True]
    record, = caplog.records
    assert (scale.value, scale.updates, scale.skipped) == (4, 1, 1)
    assert "(1 so far) is left out, the loss is scaled by 4" in record.getMessage()
    for _ in range(1999):
        assert scale.accept(True)
    assert (scale.value, scale.updates) == (8, 0)
    for value in (4, 2, 1):
        assert not scale.accept(False) and scale.value == value
    with pytest.raises(NonFiniteLoss):
        scale.accept(False)


def test_scale_has_a_limit():
    scale = LossScale(2.0 ** 24, updates=1999)
    assert scale.accept(True) and scale.value == 2 ** 24


def weight_after(scale, losses, clip_norm=0.0, accumulate=1):
    """Weight 1 after a step down the sum of ``losses``: factors of it."""
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    settings = TrainConfig(lr=1, momentum=0, weight_decay=0, clip_norm=clip_norm,
                           accumulate=accumulate)
    updater = Updater(net, [mx.cpu()], settings, loss_scale=scale)
    for factor in losses:
        with mx.autograd.record():
            loss = net(mx.nd.array([[factor]])).reshape((1,))
        updater.backward([loss])
    updater.step(1)
    return net.weight.data().asscalar(), net.weight.grad().asscalar()


@pytest.mark.parametrize("clip_norm, expected", [(0, -2), (1.5, -0.5)])
def test_update_does_not_depend_on_the_scale(clip_norm, expected):
    for scale in (None, LossScale(2.0 ** 10), LossScale(4.0)):
        assert weight_after(scale, [3], clip_norm)[0] == pytest.approx(expected)


@pytest.mark.parametrize("bad", [np.inf, np.nan, 3e38])
def test_update_is_left_out(bad):
    """3e38 is finite, 4 times as much is not."""
    scale = LossScale(4.0)
    assert weight_after(scale, [1, bad], accumulate=2) == (1, 0)
    assert scale.value == 2


def test_scale_is_resumed(trainer, tmp_path, monkeypatch):
    """Run in bfloat16 where there is no GPU; the scale does not show in losses."""
    def build(*settings, scaled=True, **options):
        run = trainer(tmp_path, *settings, **options)
        if scaled:
            run.updater.loss_scale = LossScale()
        return run

    first = build(steps=2)
    first.updater.loss_scale = LossScale(64.0, updates=5)
    first.fit()
    second = build(steps=4)
    second.resume()
    assert (second.updater.loss_scale.value, second.updater.loss_scale.updates) == (64, 7)
    second.fit()
    third = build(steps=6, scaled=False)
    third.resume()
    assert third.updater.loss_scale is None
