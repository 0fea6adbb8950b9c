"""Loader processes: the same batches for any number of them, and no way to hang."""
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from coco_builder import tiny_dataset
from tiny import write_config

from yolact_mx.anchors import build_anchors, input_sizes
from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.loader import build_loader
from yolact_mx.data.samples import EpochBatches, TrainingSamples, collate
from yolact_mx.errors import DatasetError

PATIENCE = 60  # seconds; what is tested takes less than one


@pytest.fixture(autouse=True)
def hang_guard():
    def give_up(*_):
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Numbers:
    """Samples that hold their index, or run ``accident`` at one index."""

    def __init__(self, at=None, accident=None):
        self.at, self.accident = at, accident

    def __getitem__(self, key):
        if key[1] == self.at:
            self.accident()
        objects = np.zeros((1, 2, 2))
        return {"image": np.full((3, 2, 2), key[1], np.float32), "match": np.zeros(3, np.int32),
                "boxes": np.zeros((1, 4)), "labels": np.zeros(1), "masks": objects,
                "semantic": objects, "image_id": key[1]}

    image_values = 3 * 2 * 2

    def batch(self, keys, memory=None):
        batch = collate([self[key] for key in keys])
        if memory is not None:
            memory[:] = batch["images"].ravel()
        return batch


def keys(count):
    return [[(0, i)] for i in range(count)]


def workers():
    return set(multiprocessing.active_children())


def test_any_number_of_workers_gives_the_same_batches(tmp_path):
    config = load_config(write_config(tmp_path))
    folder = tiny_dataset(tmp_path / "data")
    dataset = CocoDataset(folder / "instances_train.json", folder / "images")
    _, levels, proto_size = input_sizes(config)
    samples = TrainingSamples(dataset, config, build_anchors(config), levels, proto_size)
    order = EpochBatches(len(dataset), 2, seed=0, first=1, last=8)
    alone, *others = (list(build_loader(samples, order, count)) for count in (0, 1, 3))
    assert len(alone) == 7
    for batches in others:
        assert [b["image_ids"] for b in batches] == [b["image_ids"] for b in alone]
        for ours, theirs in zip(batches, alone):
            assert ours.keys() == theirs.keys()
            assert ours["num_positives"] == theirs["num_positives"] > 0
            for name in set(ours) - {"image_ids", "num_positives"}:
                assert ours[name].dtype == theirs[name].dtype
                np.testing.assert_array_equal(ours[name].asnumpy(), theirs[name].asnumpy())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_images_are_those_of_their_batch(count):
    """Every place in the shared memory is used many times over."""
    seen = list(build_loader(Numbers(), keys(40), count))
    assert [batch["image_ids"] for batch in seen] == [[i] for i in range(40)]
    for i, batch in enumerate(seen):
        assert batch["images"].shape == (1, 3, 2, 2) and (batch["images"].asnumpy() == i).all()


def test_without_fork_all_of_a_batch_is_pickled(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    for i, batch in enumerate(build_loader(Numbers(), keys(10), 1)):
        assert batch["image_ids"] == [i] and (batch["images"].asnumpy() == i).all()


def test_no_batches():
    assert not list(build_loader(Numbers(), [], 2))


def test_a_killed_worker_is_an_error():
    samples = Numbers(5, lambda: os.kill(os.getpid(), signal.SIGKILL))
    seen = []
    with pytest.raises(DatasetError, match="loader process was killed.*train.workers=0"):
        for batch in build_loader(samples, keys(50), 2):
            seen.extend(batch["image_ids"])
    assert seen == list(range(len(seen))) and len(seen) <= 5
    assert not workers()


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("error", [DatasetError("a.png: truncated"), KeyError("masks")])
def test_an_error_in_a_worker_arrives_as_it_is(count, error):
    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        list(build_loader(Numbers(3, fail), keys(50), count))
    assert caught.value.args == error.args
    assert not workers()


def test_leaving_early_ends_the_processes():
    for batch in build_loader(Numbers(), keys(1000), 2):
        assert batch["image_ids"] == [0] and len(workers()) == 2
        break
    assert not workers()


def test_a_killed_parent_leaves_no_processes():
    ours, theirs = multiprocessing.Pipe()

    def train():
        for _ in build_loader(Numbers(), keys(1000), 2):
            theirs.send([process.pid for process in workers()])
            time.sleep(10 * PATIENCE)

    parent = multiprocessing.get_context("fork").Process(target=train)
    parent.start()
    orphans = ours.recv()
    assert len(orphans) == 2 and all(map(runs, orphans))
    parent.kill()
    parent.join()
    while any(map(runs, orphans)):  # until the hang guard
        time.sleep(0.1)


def runs(pid):
    """Whether a process is there, and more than a zombie that nobody has waited for."""
    try:
        with open("/proc/{}/stat".format(pid)) as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
