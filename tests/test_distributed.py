"""Several workers, on the loopback: equal to one, stopped, killed, resumed; and launch.py."""
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from tiny import ROOT, assert_close, log_lines, losses, weights

from yolact_mx.checkpoint import latest_checkpoint, load_weights, read_state
from yolact_mx.data.samples import EpochBatches
from yolact_mx.distributed import HorovodStore, Workers, connect
from yolact_mx.errors import UserError
from yolact_mx.launcher import free_port, plan_jobs, read_hosts
from yolact_mx.options import TrainConfig
from yolact_mx.updater import Updater

pytest_plugins = ("tiny_fixtures",)

OPTIONS = ["train.batch_size=4", "train.clip_norm=5", "train.ema=0.9", "train.checkpoint_every=2",
           "train.validate_every=0"]
CPU = [mx.cpu()]


def running(pid):
    """A process that nobody has collected yet is there, but does not run."""
    try:
        return Path("/proc/{}/stat".format(pid)).read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def launch(tiny_run, tmp_path):
    """``launch(arguments of train.py...)`` -> the process of launch.py with two workers."""
    started = []

    def start(*arguments):
        command = [sys.executable, str(ROOT / "tools" / "launch.py"), "-n", "2", "-s", "1", "--",
                   str(ROOT / "tools" / "train.py"), str(tiny_run.config), "--data",
                   str(tiny_run.data), "--out", "run", "--kvstore", "dist_sync", *OPTIONS,
                   *arguments]
        with open(str(tmp_path / "stderr"), "w") as stderr:
            started.append(subprocess.Popen(command, cwd=str(tmp_path), stderr=stderr,
                                            stdout=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        for pid in family(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


def family(pid):
    """Processes below a process."""
    found = []
    for tasks in Path("/proc").glob("{}/task/*/children".format(pid)):
        for child in tasks.read_text().split():
            found += [int(child)] + family(child)
    return found


def workers_of(process):
    """Process numbers of the workers that launch.py started."""
    children = Path("/proc/{0}/task/{0}/children".format(process.pid)).read_text().split()
    return [int(child) for child in children if
            b"DMLC_ROLE=worker" in Path("/proc/{}/environ".format(child)).read_bytes()]


def wait_for_step(process, folder, step):
    log, deadline = folder / "log.jsonl", time.time() + 120
    while not (log.exists() and '"step": {},'.format(step) in log.read_text()):
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.01)


def test_a_killed_worker_and_the_resumed_run_equals_one_worker(launch, trainer, tmp_path):
    """Its death ends the others, the checkpoint is good; two of batch 2 equal one of batch 4."""
    run = tmp_path / "run"
    process = launch("--steps", "1000000", "train.workers=1")
    wait_for_step(process, run, 3)
    everyone, victim = family(process.pid), workers_of(process)[1]
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    assert process.wait(timeout=60) == 2 and time.time() - killed < 60
    text = (tmp_path / "stderr").read_text()
    assert "worker 2 of 2 was killed by signal 9: stopping the others\n" in text
    assert text.endswith("error: worker 2 of 2 was killed by signal 9; the others were stopped; "
                         "the same command with --resume continues from the last checkpoint\n")
    checkpoint = latest_checkpoint(run / "checkpoints")
    step = read_state(checkpoint)["step"]
    assert re.search(r"error: rank [01] of 2 stops, for the others do not answer; --resume "
                     r"continues from run/checkpoints/{}\n".format(checkpoint.name), text)
    time.sleep(1.5)  # a loader process ends within a second of its trainer
    assert not [pid for pid in everyone if running(pid)]

    steps = step + 2
    assert launch("--steps", str(steps), "--resume").wait(timeout=120) == 0
    one = trainer(tmp_path / "one", *OPTIONS, steps=steps)
    one.fit()
    trained = [line for line in log_lines(run) if "loss" in line]
    assert [line["step"] for line in trained] == list(range(1, steps + 1))
    np.testing.assert_allclose([list(line["loss"].values())[:-1] for line in trained],
                               losses(tmp_path / "one"), rtol=1e-5, atol=1e-5)
    final = latest_checkpoint(run / "checkpoints")
    expected = weights(one)
    load_weights(one.net, final / "model.params")
    assert_close(weights(one), expected, 1e-5)
    average = mx.nd.load(str(latest_checkpoint(tmp_path / "one" / "checkpoints")
                             / "average.params"))
    for name, value in mx.nd.load(str(final / "average.params")).items():
        np.testing.assert_allclose(value.asnumpy(), average[name].asnumpy(), atol=1e-5)


def test_ctrl_c_stops_all_at_the_same_step(launch, tmp_path):
    process = launch("--steps", "1000000", "train.checkpoint_every=1000000")
    wait_for_step(process, tmp_path / "run", 2)
    everyone = family(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    text = (tmp_path / "stderr").read_text()
    assert "Traceback" not in text and "error" not in text and text.endswith("interrupted\n")
    step = log_lines(tmp_path / "run")[-1]["step"]
    assert read_state(latest_checkpoint(tmp_path / "run" / "checkpoints"))["step"] == step
    assert not [pid for pid in everyone if running(pid)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_workers_share_a_batch_without_overlap(size):
    """Together they have exactly the samples of one worker, in its order."""
    whole = list(EpochBatches(20, 6, 5, 1, 9))
    parts = [list(EpochBatches(20, 6, 5, 1, 9, part=(rank, size))) for rank in range(size)]
    assert [sum(own, []) for own in zip(*parts)] == whole
    for own in zip(*parts):
        assert [len(keys) for keys in own] == [6 // size] * size
        assert len(set(sum(own, []))) == 6


class TwoAlike:
    """A store of two workers of which the other does the same as this one."""

    rank, num_workers = 0, 2

    def __init__(self):
        self.calls = []

    def broadcast(self, key, value, out, priority=0):
        self.calls.append(("broadcast", key))

    def pushpull(self, key, value, out=None, priority=0):
        self.calls.append(("pushpull", key))
        value *= 2

    def _barrier(self):
        self.calls.append("barrier")


def test_what_workers_add_up():
    store = TwoAlike()
    workers = Workers(store)
    assert (workers.rank, workers.size) == (0, 2)
    for _ in range(2):
        total = workers.total("totals", mx.nd.array([3, 2]))
        np.testing.assert_array_equal(total.asnumpy(), [6, 4])
    terms = [mx.nd.array([1, 2]), mx.nd.array([10, 20])]  # two devices
    total, = workers.total_terms(terms)
    np.testing.assert_array_equal(total.asnumpy(), [22, 44])
    names = [call[0] for call in store.calls if call != "barrier"]
    assert names == ["broadcast", "pushpull", "pushpull", "broadcast", "pushpull"]
    assert len({key for _, key in (c for c in store.calls if c != "barrier")}) == 2
    alone = Workers()
    assert alone.total_terms(terms) is terms and alone.agree_to_stop(True) is True


def test_a_wish_to_stop_counts_one_step_later():
    """Then all have heard of it."""
    workers = Workers(TwoAlike())
    assert [workers.agree_to_stop(asked) for asked in (False, True, False)] == [False, False, True]


def test_workers_of_different_runs():
    class Other(TwoAlike):
        rank = 1

        def pushpull(self, key, value, out=None, priority=0):
            value += 7  # of worker 0; this one adds 0

    Workers(Other()).require_equal({"images": 7})
    with pytest.raises(UserError, match="rank 1 of 2: expected 7 images as rank 0 has, found 8"):
        Workers(Other()).require_equal({"images": 8})


def test_a_batch_is_divided_among_the_workers_too(trainer, tmp_path):
    with pytest.raises(UserError, match="multiple of 2 .*found 3"):
        trainer(tmp_path, "train.batch_size=3", workers=Workers(TwoAlike()))


def test_a_worker_that_was_started_wrongly(monkeypatch):
    with pytest.raises(UserError, match="--kvstore dist_sync: start the workers with launch.py"):
        connect("dist_sync", CPU)
    with pytest.raises(UserError, match="--kvstore horovod: Horovod .* not installed"):
        connect("horovod", CPU)
    assert connect(None, CPU)[1] is CPU
    monkeypatch.setenv("DMLC_ROLE", "worker")
    with pytest.raises(UserError, match="expected --kvstore dist_sync, else each worker trains"):
        connect(None, CPU)


def test_horovod(monkeypatch):
    """Its adapter, on a stand-in for two workers that do the same: a sum, not a mean."""
    calls = []

    def allreduce_(tensor, average=True, name=None, priority=0):
        assert average is False
        calls.append(name)
        tensor *= 2

    def broadcast_(tensor, root_rank, name=None, priority=0):
        assert root_rank == 0

    hvd = types.SimpleNamespace(init=lambda: None, rank=lambda: 1, size=lambda: 2,
                                local_rank=lambda: 1, allreduce_=allreduce_,
                                broadcast_=broadcast_)
    monkeypatch.setitem(sys.modules, "horovod", types.SimpleNamespace(mxnet=hvd))
    monkeypatch.setitem(sys.modules, "horovod.mxnet", hvd)
    workers, devices = connect("horovod", [mx.cpu(0), mx.cpu(1)])
    assert isinstance(workers.store, HorovodStore) and devices == [mx.cpu(1)]
    assert (workers.rank, workers.size) == (1, 2)
    net = mx.gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    updater = Updater(net, CPU, TrainConfig(lr=1, momentum=0, weight_decay=0, clip_norm=5), workers)
    updater.start()
    for _ in range(2):
        with mx.autograd.record():
            loss = (net.weight.data() * 1.5).sum()
        loss.backward()
        updater.step(1)
    assert net.weight.data().asscalar() == 1 - 2 * 3
    assert calls == ["barrier", "0", "0"]


def test_command_lines_for_this_machine(monkeypatch):
    monkeypatch.setattr("yolact_mx.launcher.available_cores", lambda: 8)
    jobs = plan_jobs(["tools/train.py", "shapes"], 3, 2, [], 7000, {"PATH": "/bin"}, "/work")
    assert [job.name for job in jobs] == ["scheduler", "server 1 of 2", "server 2 of 2"] + [
        "worker {} of 3".format(i) for i in (1, 2, 3)]
    for job in jobs:
        assert job.argv == [sys.executable, "tools/train.py", "shapes"] and job.host is None
        assert job.env == {"DMLC_ROLE": job.name.split()[0], "DMLC_NUM_WORKER": "3",
                           "DMLC_NUM_SERVER": "2", "DMLC_PS_ROOT_URI": "127.0.0.1",
                           "DMLC_PS_ROOT_PORT": "7000", "DMLC_NODE_HOST": "127.0.0.1",
                           "OMP_NUM_THREADS": "2"}
    job = plan_jobs(["yolact-mx", "train"], 1, 1, [], 7000, {"OMP_NUM_THREADS": "5"}, "/work")[-1]
    assert job.argv == ["yolact-mx", "train"] and job.env["OMP_NUM_THREADS"] == "5"


def test_command_lines_for_several_hosts():
    hosts = [("ann@one", "10.0.0.1"), ("two", "10.0.0.2")]
    environment = {"MXNET_X": "a b", "OMP_NUM_THREADS": "4", "HOME": "/home/ann"}
    jobs = plan_jobs(["yolact-mx", "train", "my data.yml"], 3, 2, hosts, 7000, environment,
                     "/shared/my project")
    assert [(job.name, job.host) for job in jobs] == [
        ("scheduler", "ann@one"), ("server 1 of 2", "ann@one"), ("server 2 of 2", "two"),
        ("worker 1 of 3", "ann@one"), ("worker 2 of 3", "two"), ("worker 3 of 3", "ann@one")]
    *ssh, host, line = jobs[4].argv
    assert ssh[:2] == ["ssh", "-tt"] and "BatchMode=yes" in ssh and host == "two"
    assert jobs[4].env == {}
    assert shlex.split(line) == [
        "cd", "/shared/my project", "&&", "exec", "env", "DMLC_NODE_HOST=10.0.0.2",
        "DMLC_NUM_SERVER=2", "DMLC_NUM_WORKER=3", "DMLC_PS_ROOT_PORT=7000",
        "DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_ROLE=worker", "MXNET_X=a b", "OMP_NUM_THREADS=4",
        "yolact-mx", "train", "my data.yml"]
    assert 0 < free_port() < 65536


def test_hosts_file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# machines\nann@10.0.0.1  # with the data\n\n10.0.0.2\n")
    assert read_hosts(path) == [("ann@10.0.0.1", "10.0.0.1"), ("10.0.0.2", "10.0.0.2")]
    for text, message in (("\n# none\n", "expected a host a line, found none"),
                          ("10.0.0.1\n10.0.0.2 slots=2\n", "line 2: expected host or user@host"),
                          ("-oProxyCommand=x\n", "line 1: expected host or user@host"),
                          ("10.0.0.1\n127.0.0.1\n", "'127.0.0.1' is an address of this machine")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_hosts(path)
