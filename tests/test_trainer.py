"""Training from the first step to the last, and every way in which it stops before."""
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import mxnet as mx
import numpy as np
import pytest
from coco_builder import image, list_rle, square_annotation, write_coco
from tiny import (
    CLASSES,
    ROOT,
    TERMS,
    assert_close,
    log_lines,
    losses,
    weights,
    write_config,
)

from yolact_mx.checkpoint import latest_checkpoint, read_state
from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.samples import EpochBatches, collate
from yolact_mx.errors import CheckpointError, DatasetError, NonFiniteLoss, UserError

pytest_plugins = ("tiny_fixtures",)


@pytest.fixture(scope="module")
def uninterrupted(trainer, tmp_path_factory):
    """(run folder, weights) of four steps of which the mask loss takes random positives."""
    run = trainer(tmp_path_factory.mktemp("uninterrupted"), "loss.masks_to_train=1")
    assert run.fit() is None  # no validation set
    return run.out_dir, weights(run)


class Tampered:
    """Samples of a trainer with something happening to those of one step."""

    def __init__(self, run, step, action):
        settings = run.config.train
        order = EpochBatches(len(run.samples), settings.batch_size, settings.seed, 0, step)
        self.samples, self.keys, self.action = run.samples, list(order)[-1], action

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, key):
        sample = self.samples[key]
        if key in self.keys:
            self.action(sample)
        return sample

    def batch(self, keys):
        return collate([self[key] for key in keys])


def test_log(tiny_run):
    *steps, validation = log_lines(tiny_run.folder)
    assert [line["step"] for line in steps] == [1, 2, 3]
    for line in steps:
        assert sorted(line) == ["epoch", "images_per_second", "loss", "lr", "step"]
        assert list(line["loss"]) == TERMS + ["total"] and line["epoch"] == 0
        assert line["loss"]["total"] == pytest.approx(sum(line["loss"][term] for term in TERMS))
        assert all(math.isfinite(value) and value >= 0 for value in line["loss"].values())
        assert line["lr"] == 0.005 and line["images_per_second"] > 0
    assert validation["step"] == 3 and 0 <= validation["val"]["segm"]["AP"] <= 1


def test_run_folder(tiny_run):
    assert sorted(os.listdir(str(tiny_run.folder))) == [
        "best.params", "checkpoints", "config.yml", "log.jsonl"]
    assert sorted(os.listdir(str(tiny_run.folder / "checkpoints"))) == [
        "step-00000002", "step-00000003"]
    config = load_config(tiny_run.folder / "config.yml")
    assert config.classes == CLASSES and config.input.size == 64 and config.name == "tiny"
    state = read_state(latest_checkpoint(tiny_run.folder / "checkpoints"))
    assert state == {"step": 3, "best": None, "stale": 0, "validated": 0,
                     "classes": CLASSES, "seed": 0}


def test_several_devices_equal_one(trainer, tmp_path):
    one = trainer(tmp_path / "one", steps=3)
    two = trainer(tmp_path / "two", steps=3, contexts=(mx.cpu(0), mx.cpu(1)))
    before = weights(one)
    assert_close(weights(two), before, 0)
    one.fit(), two.fit()
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-5)
    assert_close(weights(two), weights(one), 1e-5)
    for name, value in weights(one).items():
        learnt = np.abs(value - before[name]).max() > 0
        frozen = name.startswith("backbone") and any(
            part in name for part in ("gamma", "beta", "running"))
        assert not (learnt and frozen), name
        assert learnt or not name.startswith(("backbone.conv1", "head", "protonet", "fpn")), name
    for context in two.contexts:
        np.testing.assert_array_equal(
            two.net.backbone.conv1.weight.data(context).asnumpy(),
            weights(two)["backbone.conv1.weight"])


def test_batch_that_cannot_be_divided(trainer, tmp_path):
    with pytest.raises(UserError, match="train.batch_size.*multiple of 2 .devices times.*found 3"):
        trainer(tmp_path, "train.batch_size=3", contexts=(mx.cpu(0), mx.cpu(1)))


def test_interrupted_and_resumed_equals_uninterrupted(trainer, uninterrupted, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    options = ("loss.masks_to_train=1", "train.checkpoint_every=100")
    pressed = []

    def press_ctrl_c_once(_):
        if not pressed:
            os.kill(os.getpid(), signal.SIGINT)
        pressed.append(True)

    run = trainer(tmp_path, *options)
    run.samples = Tampered(run, 2, press_ctrl_c_once)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert signal.getsignal(signal.SIGINT) is handler
    assert latest_checkpoint(tmp_path / "checkpoints").name == "step-00000002"
    assert "a checkpoint will be written" in caplog.text

    again = trainer(tmp_path, *options, "train.log_every=2")
    again.resume()
    assert again.step == 2
    again.fit()
    folder, expected = uninterrupted
    assert_close(weights(again), expected, 1e-6)
    before = losses(folder)
    lines = log_lines(tmp_path)
    assert [(line["step"], line["epoch"]) for line in lines] == [(1, 0), (2, 0), (4, 1)]
    np.testing.assert_allclose(losses(tmp_path), [before[0], before[1], before[2:].mean(axis=0)],
                               rtol=1e-5)


def test_what_cannot_be_resumed_or_started(trainer, uninterrupted, tmp_path):
    folder, _ = uninterrupted
    with pytest.raises(CheckpointError, match="has no checkpoint to resume from"):
        trainer(tmp_path).resume()
    with pytest.raises(CheckpointError, match="run of 4 steps is finished; --pretrained"):
        trainer(folder).resume()
    with pytest.raises(CheckpointError, match="holds an earlier run: --resume continues it"):
        trainer(folder).fit()
    assert latest_checkpoint(folder / "checkpoints").name == "step-00000004"


def test_a_loss_that_is_not_finite_stops_before_it_is_saved(trainer, tmp_path):
    run = trainer(tmp_path, "train.freeze_bn=no")
    bad = []

    def spoil(sample):
        sample["boxes"][:] = np.inf
        bad.append(sample["image_id"])

    run.samples = Tampered(run, 4, spoil)
    with pytest.raises(NonFiniteLoss) as error:
        run.fit()
    text = str(error.value)
    assert "\n" not in text and "not finite at step 4:" in text
    assert all("'{}': ".format(term) in text for term in TERMS)
    assert "'box': nan" in text or "'box': inf" in text
    assert text.endswith("images {}".format(bad)) and len(bad) == 2
    assert os.listdir(str(tmp_path / "checkpoints")) == ["step-00000002"]
    saved = mx.nd.load(str(tmp_path / "checkpoints" / "step-00000002" / "model.params"))
    assert all(np.isfinite(value.asnumpy()).all() for value in saved.values())
    assert saved["backbone.bn1.running_mean"].asnumpy().any()  # BatchNorm was trained here


def test_spoilt_weights_are_not_saved(trainer, tmp_path):
    """NaN pixels leave a finite loss, for ReLU makes 0 of them, but no finite weights."""
    run = trainer(tmp_path, "train.checkpoint_every=1")
    run.samples = Tampered(run, 1, lambda sample: sample["image"].fill(np.nan))
    with pytest.raises(NonFiniteLoss, match="weights are not finite after step 1"):
        run.fit()
    assert not (tmp_path / "checkpoints").exists() and np.isfinite(losses(tmp_path)).all()


@pytest.mark.parametrize("images", [[image(1)], []])
def test_a_validation_set_without_objects_is_found_before_the_first_step(
        trainer, tmp_path, images):
    path = write_coco(tmp_path, images, name="instances_val.json")
    with pytest.raises(DatasetError, match="no object to score against"):
        trainer(tmp_path / "run", val_set=CocoDataset(path))


def test_images_without_anything_to_learn(tool, trainer, tmp_path, caplog):  # P1
    caplog.set_level(logging.INFO)
    crowd = square_annotation(2, 2, segmentation=list_rle(10, 20, 20, 20), iscrowd=1)
    entries = [square_annotation(1, 1), crowd, square_annotation(3, 4)]
    images = [image(i) for i in range(1, 5)]
    path = write_coco(tmp_path, images, entries)
    config = write_config(tmp_path)
    for batch in (1, 2):
        out = tmp_path / "batch{}".format(batch)
        code, _, err = tool("train", config, "--train-ann", path, "--train-images",
                            tmp_path / "images", "--out", out, "--epochs", 1,
                            "train.batch_size={}".format(batch))
        assert code == 0 and "Traceback" not in err
        assert "4 images: 1 without objects, 1 with crowds only, 0 left out" in caplog.text
        assert len(losses(out)) == 4 // batch and np.isfinite(losses(out)).all()
    alone = losses(tmp_path / "batch1")
    nothing = (alone[:, [1, 2, 4]] == 0).all(axis=1)
    assert nothing.sum() == 2 and (alone[nothing, 0] > 0).all()  # negatives teach the class term
    write_coco(tmp_path, images[1:2], [crowd])
    code, _, err = tool("train", config, "--train-ann", path, "--train-images",
                        tmp_path / "images", "--out", tmp_path / "crowds")
    assert code == 2 and "all 1 annotations are crowds (iscrowd=1)" in err
    assert not (tmp_path / "crowds").exists()


def test_weights_of_other_classes(trainer, tmp_path, caplog):  # P5
    caplog.set_level(logging.INFO)
    other = trainer(tmp_path, classes=["c{}".format(i) for i in range(80)], steps=1)
    other.fit()
    path = latest_checkpoint(tmp_path / "checkpoints") / "model.params"
    run = trainer(tmp_path / "new")
    before = weights(run)
    run.load_pretrained(path)
    assert run.step == 0
    skipped = [name for name in before if "not loaded: {}: expected shape".format(name)
               in caplog.text]
    assert skipped and all(name.startswith(("head.", "semantic.", "mask_iou.")) for name in skipped)
    total = len(before)
    assert "{} of {} parameters loaded".format(total - len(skipped), total) in caplog.text
    for name, value in weights(run).items():
        expected = before[name] if name in skipped else weights(other)[name]
        np.testing.assert_array_equal(value, expected, err_msg=name)
    with pytest.raises(CheckpointError) as error:
        trainer(tmp_path).resume()
    assert "was trained for classes ['c0', 'c1'" in str(error.value)
    assert "the data set has {}".format(CLASSES) in str(error.value)


def test_ctrl_c_in_a_terminal(tiny_run, tmp_path):
    """It reaches the tool and its loader process; the tool saves and exits with 130."""
    command = [sys.executable, str(ROOT / "tools" / "train.py"), str(tiny_run.config),
               "--data", str(tiny_run.data), "--out", "run", "--steps", "1000000",
               "train.workers=1", "train.checkpoint_every=1000000", "train.validate_every=0"]
    with open(str(tmp_path / "stderr"), "w+") as stderr:
        process = subprocess.Popen(command, cwd=str(tmp_path), stderr=stderr,
                                   stdout=subprocess.DEVNULL, start_new_session=True)
        log = tmp_path / "run" / "log.jsonl"
        deadline = time.time() + 120
        while not (log.exists() and log.stat().st_size) and time.time() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=120) == 130
        stderr.seek(0)
        text = stderr.read()
    assert text.endswith("interrupted\n") and "Traceback" not in text
    steps = log_lines(tmp_path / "run")[-1]["step"]
    assert read_state(latest_checkpoint(tmp_path / "run" / "checkpoints"))["step"] == steps
    with pytest.raises(ProcessLookupError):  # nobody is left of its process group
        os.killpg(process.pid, 0)
    shutil.rmtree(str(tmp_path / "run"))
