"""Options of an update: clipping, parts of a batch, averaged weights, frozen parts."""
import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn
from tiny import write_config

from yolact_mx.config import load_config
from yolact_mx.errors import CheckpointError, ConfigError
from yolact_mx.options import TrainConfig
from yolact_mx.schedule import build_schedule, lr_at
from yolact_mx.updater import Updater, WeightAverage

CPU = [mx.cpu()]


class Net(nn.HybridBlock):
    """y = a x and z = b x."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(1, in_units=1, use_bias=False)
        self.second = nn.Dense(1, in_units=1, use_bias=False)
        self.norm = nn.BatchNorm(in_channels=1)

    def hybrid_forward(self, F, x):
        return self.first(x) + self.second(x) + self.norm(x)


def build(contexts=CPU, **settings):
    net = Net()
    net.initialize(mx.init.One(), ctx=contexts)
    settings = dict(dict(lr=1, momentum=0, weight_decay=0), **settings)
    return net, Updater(net, contexts, TrainConfig(**settings))


def set_gradients(net, first, second, contexts=CPU):
    with mx.autograd.record():
        losses = [
            (net.first.weight.data(ctx) * first + net.second.weight.data(ctx) * second).sum()
            + 0 * (net.norm.gamma.data(ctx) + net.norm.beta.data(ctx)).sum() for ctx in contexts]
    mx.autograd.backward(losses)


def weights(net, ctx=CPU[0]):
    return [p.data(ctx).asnumpy().item() for p in (net.first.weight, net.second.weight)]


@pytest.mark.parametrize("limit, expected", [
    (0, [-2, -3]),     # off
    (10, [-2, -3]),    # the gradient (3, 4) is 5 long
    (2.5, [-0.5, -1]),
])
def test_clipping_by_the_norm_of_all(limit, expected):
    net, updater = build(clip_norm=limit)
    set_gradients(net, 3, 4)
    updater.step(1)
    np.testing.assert_allclose(weights(net), expected, rtol=1e-6)


def test_clipping_of_the_sum_over_devices():
    contexts = [mx.cpu(0), mx.cpu(1)]
    net, updater = build(contexts, clip_norm=5)
    set_gradients(net, 3, 4, contexts)  # together (6, 8), 10 long
    updater.step(1)
    for ctx in contexts:
        np.testing.assert_allclose(weights(net, ctx), [-2, -3], rtol=1e-6)


def test_gradients_of_the_parts_are_added():
    net, updater = build(accumulate=2)
    for expected in (-4, -9):  # and forgotten after the update
        for value in (2, 3):
            set_gradients(net, value, 0)
        updater.step(1)
        assert weights(net)[0] == expected


@pytest.mark.parametrize("paths, trained", [
    (["first"], {"second.weight", "norm.gamma", "norm.beta"}),
    (["first", "norm"], {"second.weight"}),
])
def test_frozen_parts(paths, trained):
    net, updater = build(freeze=paths)
    before = {n: p.data().asnumpy() for n, p in net._collect_params_with_prefix().items()}
    net.hybridize(static_alloc=True)
    for _ in range(2):
        with mx.autograd.record():
            loss = (net(mx.nd.array([[1], [5]])) ** 2 * mx.nd.array([[1], [3]])).sum()
        loss.backward()
        updater.step(0.01)
    after = {n: p.data().asnumpy() for n, p in net._collect_params_with_prefix().items()}
    changed = {name for name in before if (before[name] != after[name]).any()}
    statistics = {"norm.running_mean", "norm.running_var"}
    assert changed == (trained if "norm" in paths else trained | statistics)


def test_what_cannot_be_frozen():
    with pytest.raises(ConfigError, match="train.freeze': no part 'fpn'; expected one of first, s"):
        build(freeze=["fpn"])
    with pytest.raises(ConfigError, match="no part 'first.layer1'"):
        build(freeze=["first.layer1"])
    with pytest.raises(ConfigError, match="train.freeze': nothing is left to be trained"):
        build(freeze=["first", "second", "norm"])


def test_average_by_hand(tmp_path):
    net, updater = build(ema=0.15)
    average = updater.average
    values = []
    for gradient in (1, -2, 4):  # first: 1 -> 0 -> 2 -> -2
        set_gradients(net, gradient, 0)
        updater.step(1)
        with average.applied():
            values.append(weights(net)[0])
    # d = 0, then 1/11, then the limit of 0.15 (2/12 is more)
    second = 0 / 11 + 2 * 10 / 11
    np.testing.assert_allclose(values, [0, second, 0.15 * second - 0.85 * 2], rtol=1e-6, atol=1e-7)
    assert weights(net) == [-2, 1]  # its own again


def test_average_continues_from_a_file(tmp_path):
    net, updater = build(ema=0.9)
    for _ in range(3):
        set_gradients(net, 1, 1)
        updater.step(1)
    updater.average.save(str(tmp_path / "average.params"))
    again = WeightAverage({"first.weight": net.first.weight}, 0.9)
    with pytest.raises(CheckpointError, match="not the average of the parameters that are trained"):
        again.load(str(tmp_path / "average.params"))
    other, other_updater = build(ema=0.9)
    other.first.weight.set_data(net.first.weight.data())
    other_updater.average.load(str(tmp_path / "average.params"))
    for n, u in ((net, updater), (other, other_updater)):
        set_gradients(n, 1, 1)
        u.step(1)
    with updater.average.applied(), other_updater.average.applied():
        assert weights(net)[0] == weights(other)[0] != -3


def test_state_of_another_optimizer(tmp_path):
    _, adam = build(optimizer="adam")
    adam.save_states(str(tmp_path / "trainer.states"))
    with pytest.raises(CheckpointError, match="state of 'adam', key 'train.optimizer' is 'sgd'"):
        build()[1].load_states(str(tmp_path / "trainer.states"))


def test_settings_of_the_optimizer_are_those_of_the_configuration(tmp_path):
    net, updater = build(momentum=0.9)
    set_gradients(net, 1, 0)
    updater.step(1)  # 1 -> 0, momentum -1
    updater.save_states(str(tmp_path / "trainer.states"))
    again, changed = build(momentum=0.5, weight_decay=0.25)
    changed.load_states(str(tmp_path / "trainer.states"))
    set_gradients(again, 0, 0)
    changed.step(1)  # from 1: 0.5 * -1 - 0.25 * 1
    assert weights(again)[0] == 0.25


def test_cosine(tmp_path):
    settings = load_config(write_config(tmp_path), [
        "train.lr_policy=cosine", "train.lr=2", "train.steps=110", "train.warmup_steps=10"]).train
    schedule = build_schedule(settings, 2)
    expected = {0: 1e-4, 10: 2, 35: 1 + np.sqrt(0.5), 60: 1, 110: 0, 120: 0}
    for step, lr in expected.items():
        assert lr_at(step, schedule) == pytest.approx(lr, abs=1e-12)
