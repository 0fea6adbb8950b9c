"""Weights and training state on disk: whole or not at all, and never taken for something else."""
import os
import shutil

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

from yolact_mx.checkpoint import (
    latest_checkpoint,
    load_weights,
    read_state,
    restore,
    save_checkpoint,
    save_weights,
)
from yolact_mx.errors import CheckpointError


class Net(nn.HybridBlock):
    """Two dense layers whose parameters are body.* and head.*."""

    def __init__(self, outputs=2, **kwargs):
        super().__init__(**kwargs)
        self.body, self.head = nn.Dense(3, in_units=2), nn.Dense(outputs, in_units=3)

    def hybrid_forward(self, F, x):
        return self.head(self.body(x))


def build(outputs=2, seed=0):
    mx.random.seed(seed)
    net = Net(outputs)
    net.initialize(mx.init.Normal(1))
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=None,
                               update_on_kvstore=False)
    return net, trainer


def train(net, trainer):
    with mx.autograd.record():
        loss = (net(mx.nd.array([[1, -2], [3, 0.5]])) ** 2).mean()
    loss.backward()
    trainer.step(1)


def weights(net):
    return {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def save(folder, step, net=None, trainer=None):
    if net is None:
        net, trainer = build(seed=step)
        train(net, trainer)
    return save_checkpoint(folder, net, trainer, {"step": step, "classes": ["été", "b"]})


def refusal(call, *args, **kwargs):
    with pytest.raises(CheckpointError) as error:
        call(*args, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_round_trip_continues_as_if_never_stopped(tmp_path):
    net, trainer = build()
    for _ in range(3):
        train(net, trainer)
    path = save(tmp_path, 3, net, trainer)
    saved = weights(net)
    again, again_trainer = build(seed=1)
    assert restore(path, again, again_trainer) == {"step": 3, "classes": ["été", "b"]}
    assert_equal(weights(again), saved)
    train(net, trainer)
    train(again, again_trainer)  # with the momentum of the first three steps
    assert_equal(weights(again), weights(net))
    assert np.abs(weights(net)["head.weight"] - saved["head.weight"]).max() > 1e-3


def test_layout(tmp_path):
    path = save(tmp_path, 12)
    assert path == tmp_path / "step-00000012" == latest_checkpoint(tmp_path)
    assert sorted(os.listdir(str(path))) == ["model.params", "state.json", "trainer.states"]
    assert read_state(path)["step"] == 12


def test_no_checkpoint(tmp_path):
    (tmp_path / "step-1").mkdir()  # not one of ours
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_the_last_two_are_kept(tmp_path):
    for step in (10, 20, 100, 1000):
        save(tmp_path, step)
    assert sorted(os.listdir(str(tmp_path))) == ["step-00000100", "step-00001000"]


def test_saved_again_at_the_same_step(tmp_path):
    net, trainer = build()
    save(tmp_path, 5, net, trainer)
    train(net, trainer)
    path = save(tmp_path, 5, net, trainer)
    again, _ = build(seed=1)
    load_weights(again, path / "model.params")
    assert_equal(weights(again), weights(net))


def test_an_interrupted_write_leaves_the_one_before(tmp_path, monkeypatch):
    before = save(tmp_path, 1)

    def interrupted(*_):
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):  # in the middle, and at the very end
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, name, interrupted)
            save(tmp_path, 2)
    assert len(list(tmp_path.glob(".partial-*"))) == 2
    assert latest_checkpoint(tmp_path) == before
    save(tmp_path, 3)
    assert sorted(os.listdir(str(tmp_path))) == ["step-00000001", "step-00000003"]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name, damage, reason", [
    ("model.params", flip_a_byte, "model.params does not have the checksum"),
    ("trainer.states", flip_a_byte, "trainer.states does not have the checksum"),
    ("model.params", lambda path: path.write_bytes(b""), "model.params does not have the checksum"),
    ("trainer.states", os.remove, "trainer.states is missing"),
    ("state.json", os.remove, "state.json cannot be read"),
    ("state.json", lambda path: path.write_text('{"step": 2'), "state.json cannot be read"),
    ("state.json", lambda path: path.write_text('{"step": 2}'), "state.json cannot be read"),
])
def test_damage_is_named_and_the_one_before_offered(tmp_path, name, damage, reason):
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    damage(second / name)
    text = refusal(latest_checkpoint, tmp_path)
    assert "checkpoint {} is damaged: {}".format(second, reason) in text
    assert "the one before it is {}".format(first) in text
    assert refusal(restore, second, *build()) in text
    shutil.rmtree(str(second))
    assert latest_checkpoint(tmp_path) == first


def test_damage_of_the_only_one(tmp_path):
    flip_a_byte(save(tmp_path, 1) / "model.params")
    assert "before" not in refusal(latest_checkpoint, tmp_path)


def test_a_checkpoint_of_another_network(tmp_path):
    path = save(tmp_path, 1)
    net, trainer = build(outputs=5)
    before = weights(net)
    assert "head.weight: expected shape (5, 3), found (2, 3)" in refusal(
        restore, path, net, trainer)
    assert_equal(weights(net), before)


def test_weights_round_trip(tmp_path):
    net, _ = build()
    save_weights(net, tmp_path / "a.params")
    assert os.listdir(str(tmp_path)) == ["a.params"]
    again, _ = build(seed=1)
    assert load_weights(again, tmp_path / "a.params") == []
    assert_equal(weights(again), weights(net))


def test_exported_names_are_understood(tmp_path):
    net, _ = build()
    mx.nd.save(str(tmp_path / "a.params"),
               {"arg:" + name: mx.nd.array(value) for name, value in weights(net).items()})
    again, _ = build(seed=1)
    load_weights(again, tmp_path / "a.params")
    assert_equal(weights(again), weights(net))


def test_partial_loads_what_fits_and_lists_the_rest(tmp_path):
    net, _ = build(outputs=5)
    saved = weights(net)
    content = {name: mx.nd.array(value) for name, value in saved.items() if name != "body.bias"}
    mx.nd.save(str(tmp_path / "a.params"), dict(content, extra=mx.nd.ones(3)))
    again, _ = build(seed=1)
    before = weights(again)
    assert load_weights(again, tmp_path / "a.params", partial=True) == [
        "body.bias: not in the file",
        "head.weight: expected shape (2, 3), found (5, 3)",
        "head.bias: expected shape (2,), found (5,)"]
    assert_equal(weights(again), dict(before, **{"body.weight": saved["body.weight"]}))


def test_weights_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    save_weights(build(outputs=5)[0], tmp_path / "a.params")
    net, _ = build(seed=1)
    before = weights(net)
    text = refusal(load_weights, net, tmp_path / "a.params")
    assert "2 of 4 parameters; head.weight: expected shape (2, 3), found (5, 3)" in text
    assert_equal(weights(net), before)


def test_missing_parameters_are_refused_and_more_are_allowed(tmp_path):
    content = {name: mx.nd.array(value) for name, value in weights(build()[0]).items()}
    mx.nd.save(str(tmp_path / "more.params"), dict(content, semantic=mx.nd.ones(3)))
    assert load_weights(build()[0], tmp_path / "more.params") == []
    del content["body.bias"]
    mx.nd.save(str(tmp_path / "less.params"), content)
    assert "body.bias: not in the file" in refusal(
        load_weights, build()[0], tmp_path / "less.params")


def test_files_that_hold_no_weights(tmp_path):
    net, _ = build()
    (tmp_path / "text.params").write_text("hello")
    mx.nd.save(str(tmp_path / "list.params"), [mx.nd.ones(2)])
    save_weights(net, tmp_path / "cut.params")
    content = (tmp_path / "cut.params").read_bytes()
    (tmp_path / "cut.params").write_bytes(content[:len(content) // 2])
    for name, reason in (("text", "cannot be read"), ("cut", "cannot be read"),
                         ("none", "No such file"), ("list", "no named parameters")):
        path = tmp_path / (name + ".params")
        text = refusal(load_weights, net, path)
        assert "'{}'".format(path) in text and reason in text
