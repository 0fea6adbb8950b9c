"""What a run can be told to do, and that a killed one continues exactly."""
import json
import os
import signal
import subprocess
import sys
import time

import mxnet as mx
import numpy as np
import pytest
from tiny import ROOT, assert_close, log_lines, losses, weights

from yolact_mx.checkpoint import latest_checkpoint, read_state
from yolact_mx.errors import CheckpointError, UserError
from yolact_mx.predict import find_weights

pytest_plugins = ("tiny_fixtures",)


def test_a_batch_in_parts_equals_the_whole(trainer, tmp_path):
    whole = trainer(tmp_path / "whole", "train.batch_size=4", steps=3)
    parts = trainer(tmp_path / "parts", "train.batch_size=4", "train.accumulate=2", steps=3,
                    contexts=(mx.cpu(0), mx.cpu(1)))
    whole.fit(), parts.fit()
    np.testing.assert_allclose(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=1e-5)
    assert_close(weights(parts), weights(whole), 1e-5)
    with pytest.raises(UserError, match="multiple of 3 .*found 4"):
        trainer(tmp_path, "train.batch_size=4", "train.accumulate=3")


def test_a_frozen_backbone(trainer, tmp_path):
    run = trainer(tmp_path, "train.freeze=[backbone]", "train.freeze_bn=no", steps=2)
    before = weights(run)
    run.fit()
    for name, value in weights(run).items():
        frozen = name.startswith("backbone.")
        assert not frozen or (value == before[name]).all(), name
    name = "protonet.after.1.weight"
    assert (weights(run)[name] != before[name]).any()


def stub_scores(run, scores):
    """Validations that cost nothing and give these mask APs."""
    scores = iter(scores)

    class Evaluator:
        def reset(self):
            pass

        def process(self, *_):
            pass

        def evaluate(self):
            return {kind: {name: score for name in ("AP", "AP50", "AP75")}
                    for kind, score in zip(("bbox", "segm"), [next(scores)] * 2)}

    run.evaluator = Evaluator()


def validations(folder):
    return [(line["step"], line["val"]["segm"]["AP"]) for line in log_lines(folder)
            if "val" in line]


EVERY_STEP = ("train.validate_every=1", "train.batch_size=4", "train.checkpoint_every=1")


def test_patience(trainer, data, tmp_path):
    """An epoch is one step here: the best is step 2, and two more do not beat it."""
    run = trainer(tmp_path, *EVERY_STEP, "train.patience=2", steps=9, val_set=data[1])
    assert run.samples and len(data[0]) // 4 == 1
    stub_scores(run, [0.1, 0.3, 0.2, 0.3, 0.9])
    run.fit()
    assert validations(tmp_path) == [(1, 0.1), (2, 0.3), (3, 0.2), (4, 0.3)]
    state = read_state(latest_checkpoint(tmp_path / "checkpoints"))
    assert (state["step"], state["best"], state["stale"], state["validated"]) == (4, 0.3, 2, 4)
    with pytest.raises(CheckpointError, match=r"run of 9 steps has ended early \(train.patience\)"):
        trainer(tmp_path, *EVERY_STEP, "train.patience=2", steps=9, val_set=data[1]).resume()
    again = trainer(tmp_path, *EVERY_STEP, "train.patience=3", steps=9, val_set=data[1])
    again.resume()
    stub_scores(again, [0.1])
    again.fit()
    assert validations(tmp_path)[4:] == [(5, 0.1)]  # the two before count


def test_the_validation_that_was_missed_is_made_up_for(trainer, data, tmp_path):
    """Killed between a checkpoint and its validation: also where it was the last one."""
    run = trainer(tmp_path, *EVERY_STEP, steps=2, val_set=data[1])
    stub_scores(run, [0.1, KeyError()])
    run._validate = lambda log, validate=run._validate: (
        validate(log) if run.step == 1 else (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError):
        run.fit()
    assert validations(tmp_path) == [(1, 0.1)]
    again = trainer(tmp_path, *EVERY_STEP, steps=2, val_set=data[1])
    again.resume()
    stub_scores(again, [0.4])
    assert again.fit()["segm"]["AP"] == 0.4
    assert validations(tmp_path) == [(1, 0.1), (2, 0.4)]


def test_averaged_weights(trainer, data, tmp_path):
    """They are what is validated and kept as the best; the trained ones go on."""
    plain = trainer(tmp_path / "plain", steps=3)
    plain.fit()
    run = trainer(tmp_path / "run", "train.ema=0.5", "train.checkpoint_every=1", steps=3,
                  val_set=data[1])
    run.fit()
    assert_close(weights(run), weights(plain), 0)
    checkpoint = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert find_weights(checkpoint)[0] == checkpoint / "average.params"
    name = "protonet.after.1.weight"
    best, average = (mx.nd.load(str(path))[name].asnumpy() for path in (
        tmp_path / "run" / "best.params", checkpoint / "average.params"))
    np.testing.assert_array_equal(best, average)
    assert (best != weights(run)[name]).any()
    # three updates: d = 0, 1/11, 2/12
    history = []
    for step in (1, 2):
        again = trainer(tmp_path / str(step), steps=step)
        again.fit()
        history.append(weights(again)[name])
    second = history[0] / 11 + history[1] * 10 / 11
    np.testing.assert_allclose(average, second / 6 + weights(run)[name] * 5 / 6, rtol=1e-5,
                               atol=1e-6)


def test_averaged_weights_continue(trainer, tmp_path):
    options = ("train.ema=0.5", "train.checkpoint_every=1")
    trainer(tmp_path / "whole", *options, steps=3).fit()
    trainer(tmp_path / "halves", *options, steps=2).fit()
    again = trainer(tmp_path / "halves", *options, steps=3)
    again.resume()
    again.fit()
    one, other = (mx.nd.load(str(latest_checkpoint(tmp_path / name / "checkpoints")
                                 / "average.params")) for name in ("whole", "halves"))
    for name in one:
        np.testing.assert_allclose(one[name].asnumpy(), other[name].asnumpy(), atol=1e-6)


def test_tensorboard(trainer, data, tmp_path):
    summary = pytest.importorskip("tensorboardX.proto.event_pb2")
    record = pytest.importorskip("tensorboardX.record_writer")
    run = trainer(tmp_path, "train.tensorboard=true", steps=2, val_set=data[1])
    run.fit()
    values = {}
    for path in (tmp_path / "tensorboard").iterdir():
        for event in events(path, summary, record):
            for value in event.summary.value:
                values.setdefault(value.tag, {})[event.step] = value
    lines = log_lines(tmp_path)
    for step in (1, 2):
        for name, loss in lines[step - 1]["loss"].items():
            assert values["loss/" + name][step].simple_value == pytest.approx(loss, rel=1e-6)
    assert values["segm/AP"][2].simple_value == pytest.approx(lines[-1]["val"]["segm"]["AP"])
    pictures = [tag for tag in values if tag.startswith("validation/")]
    assert len(pictures) == min(4, len(data[1]))
    assert values[pictures[0]][2].image.width > 0


def events(path, summary, record):
    """Events of a file: length (8 bytes), its checksum (4), content, its checksum (4)."""
    content = path.read_bytes()
    while content:
        length = int.from_bytes(content[:8], "little")
        event = summary.Event()
        event.ParseFromString(content[12:12 + length])
        yield event
        content = content[16 + length:]


def test_killed_and_resumed_equals_uninterrupted(tiny_run, tmp_path):
    """SIGKILL in the middle of a step; what was logged beyond the checkpoint is done again."""
    command = [sys.executable, str(ROOT / "tools" / "train.py"), str(tiny_run.config), "--data",
               str(tiny_run.data), "--steps", "12", "train.checkpoint_every=4", "train.workers=1",
               "train.validate_every=2"]
    subprocess.run(command + ["--out", "whole"], cwd=str(tmp_path), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(command + ["--out", "killed"], cwd=str(tmp_path),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log, deadline = tmp_path / "killed" / "log.jsonl", time.time() + 120
    while not (log.exists() and '"step": 6' in log.read_text()) and time.time() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    with open(str(log), "a") as file:
        file.write('{"step": 7, "lo')  # killed while it wrote
    subprocess.run(command + ["--out", "killed", "--resume"], cwd=str(tmp_path), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    whole, killed = log_lines(tmp_path / "whole"), log_lines(tmp_path / "killed")
    assert [(line["step"], "val" in line) for line in killed] == [
        (line["step"], "val" in line) for line in whole]
    for one, other in zip(whole, killed):
        if "val" in one:
            assert json.dumps(one) == json.dumps(other)
        else:
            np.testing.assert_allclose(list(one["loss"].values()), list(other["loss"].values()),
                                       rtol=1e-6, atol=1e-6)
            assert one["lr"] == other["lr"]
