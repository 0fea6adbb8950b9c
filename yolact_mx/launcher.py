"""Scheduler, servers and workers of a training: their command lines, and watching over them."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from .errors import UserError
from .runtime import available_cores

LOOPBACK = "127.0.0.1"
# Taken along to other machines
_ENVIRONMENT = ("PYTHONPATH", "MXNET_", "OMP_", "PS_")
# A machine that is gone is noticed within 30 s
_SSH = ("ssh", "-tt", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10",
        "-o", "ServerAliveCountMax=3")
_INTERRUPTED = 130  # exit code of a worker that stopped as it was told, and saved
_SECOND_SIGNAL = 1.0  # seconds after the first one
_KILL = 15.0  # seconds after the second one
_CLOSE = 10.0  # seconds that servers get after the last worker


class Job(NamedTuple):
    """One process; ``host`` None is this machine."""

    name: str
    host: Optional[str]
    argv: List[str]
    env: Dict[str, str]


def plan_jobs(command, workers, servers, hosts, port, environment, folder):
    """The jobs of a training: scheduler, servers, workers.

    Parameters
    ----------
    command : list of str
        What a worker runs; a ``.py`` file is run by the Python at hand.
    workers, servers : int
        Dealt out to the hosts in turn.
    hosts : list of (str, str)
        What ssh takes and the address; none: all of them run on this machine.
    port : int
        Of the scheduler, which runs on the first host.
    environment : dict
        Of this process; what MXNet listens to is taken to the hosts.
    folder : str
        Where the command is run, on every machine.
    """
    if command[0].endswith(".py"):
        command = [sys.executable] + list(command)
    common = {
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_PS_ROOT_URI": hosts[0][1] if hosts else LOOPBACK,
        "DMLC_PS_ROOT_PORT": str(port),
    }
    jobs = []
    for role, count in (("scheduler", 1), ("server", servers), ("worker", workers)):
        for index in range(count):
            name = role if role == "scheduler" else "{} {} of {}".format(role, index + 1, count)
            host, address = hosts[index % len(hosts)] if hosts else (None, LOOPBACK)
            own = dict(common, DMLC_ROLE=role, DMLC_NODE_HOST=address)
            if host is None:
                cores = max(1, available_cores() // workers)
                own.setdefault("OMP_NUM_THREADS", environment.get("OMP_NUM_THREADS", str(cores)))
                jobs.append(Job(name, None, list(command), own))
                continue
            taken = {k: v for k, v in environment.items() if k.startswith(_ENVIRONMENT)}
            line = "cd {} && exec env {} {}".format(
                shlex.quote(folder),
                " ".join(
                    "{}={}".format(k, shlex.quote(v)) for k, v in sorted({**taken, **own}.items())
                ),
                " ".join(map(shlex.quote, command)),
            )
            jobs.append(Job(name, host, list(_SSH) + [host, line], {}))
    return jobs


def read_hosts(path):
    """[(what ssh takes, address)] of a file: ``host`` or ``user@host`` a line, # for remarks."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    hosts = []
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        name = line.rpartition("@")[2]
        try:
            address = socket.gethostbyname(name)
        except OSError:
            address = ""
        if len(line.split()) > 1 or line.startswith("-") or not address:
            raise UserError(
                "{} line {}: expected host or user@host, found '{}'{}".format(
                    path, number, line, "" if address else ", which has no address"
                )
            )
        hosts.append((line, address))
    if not hosts:
        raise UserError("{}: expected a host a line, found none".format(path))
    local = [host for host, address in hosts if address.startswith("127.")]
    if local and len(local) < len(hosts):
        raise UserError(
            "{}: '{}' is an address of this machine only; the others need one that "
            "leads here".format(path, local[0])
        )
    return hosts


def free_port():
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def run_jobs(jobs):
    """Run them until the workers have ended; a fault of one ends all.

    Ctrl-C and SIGTERM are handed to the workers, which stop at the same step and save.

    Raises
    ------
    UserError
        Names the process that ended early, and how.
    KeyboardInterrupt
        After a stop that was asked for.
    """
    children, asked = [], []
    before = {
        number: signal.signal(number, lambda *_: asked.append(True))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        children = [_Child(job) for job in jobs]
        workers = [child for child in children if child.job.name.startswith("worker")]
        handed_on = 0
        while any(child.running for child in workers):
            for _ in range(handed_on, len(asked)):
                handed_on += 1
                for child in workers:
                    child.stop()
            failed = [child for child in children if child.failed]
            if failed and failed[0].code == _INTERRUPTED:
                _wait(workers, _CLOSE)  # somebody told one of them to stop, and so all of them
                if not any(child.running for child in workers):
                    break
            if failed and not asked:
                _end(workers, failed[0])
                raise UserError(
                    "{}; the others were stopped; the same command with --resume continues "
                    "from the last checkpoint".format(failed[0].fate)
                )
            time.sleep(0.2)
        failed = [child for child in workers if child.failed]
        if asked or failed and all(child.code == _INTERRUPTED for child in failed):
            raise KeyboardInterrupt
        if failed:
            raise UserError("; ".join(child.fate for child in failed))
        _wait(children, _CLOSE)
    finally:
        for child in children:
            child.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Child:
    """A running job.  One on another machine hears of signals through its terminal."""

    def __init__(self, job):
        self.job = job
        # of its own session: Ctrl-C reaches this process alone, which hands it on
        self._process = subprocess.Popen(
            job.argv,
            env=dict(os.environ, **job.env),
            stdin=subprocess.PIPE if job.host else subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def running(self):
        return self._process.poll() is None

    @property
    def code(self):
        return self._process.poll()

    @property
    def failed(self):
        return not self.running and self.code != 0

    @property
    def fate(self):
        code = self.code
        how = "was killed by signal {}" if code < 0 else "ended with code {}"
        host = " on {}".format(self.job.host) if self.job.host else ""
        return self.job.name + host + " " + how.format(abs(code))

    def stop(self):
        """Ctrl-C, or SIGTERM; a second one ends a worker that waits for the others."""
        if not self.running:
            return
        if not self.job.host:
            self._process.terminate()
            return
        try:
            self._process.stdin.write(b"\x03")
            self._process.stdin.flush()
        except OSError:
            pass  # the connection is gone

    def kill(self):
        """At once; of another machine the connection, whose end ends the process there."""
        if self.running:
            self._process.kill()
        self._process.wait()


def _end(workers, cause):
    """Stop the workers that are left, the less gently the longer it takes."""
    print("{}: stopping the others".format(cause.fate), file=sys.stderr, flush=True)
    for patience in (_SECOND_SIGNAL, _KILL):
        for child in workers:
            child.stop()
        _wait(workers, patience)


def _wait(children, seconds):
    deadline = time.monotonic() + seconds
    while any(child.running for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
