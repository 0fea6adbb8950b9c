"""Measuring a configuration, every measurement in a process of its own, and tables of it."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tqdm import tqdm

from .errors import UserError

# What is measured: its phases in their order, as a table calls them
PHASES = {
    "inference": {
        "load": "load: build, compile, first picture",
        "prepare": "prepare: picture to input size",
        "forward": "forward: network",
        "detection": "detection: decoding, NMS, masks",
        "masks": "mask assembly to picture size",
        "total": "total, picture to masks",
    },
    "training": {
        "load": "load: a batch in one process",
        "forward": "forward and loss",
        "backward": "backward",
        "update": "update",
        "total": "total step",
    },
}
_TITLES = ("phase", "median s", "min s", "max s", "CPU s", "images/s", "GFLOPs", "GFLOP/s",
           "of GEMM peak")
_BUSY = 0.8  # share of its threads' time below which a matrix product had to wait for others


def timed(functions, rounds, done=None):
    """Seconds of functions that take turns: {name: callable} -> {name: [(seconds, CPU seconds)]}.

    One untimed round first.  MXNet computes asynchronously; whatever is under way is waited for
    before and after each call.  CPU seconds are those of all threads of this process.
    ``done`` is called after every round.
    """
    import mxnet as mx

    times = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            mx.nd.waitall()
            start, cpu = time.perf_counter(), time.process_time()
            function()
            mx.nd.waitall()
            if number:
                times[name].append((time.perf_counter() - start, time.process_time() - cpu))
        if done:
            done()
    return times


def summary(samples):
    """[(seconds, CPU seconds)] -> median, min and max of the seconds, median of the others."""
    seconds, cpu = zip(*samples)
    return {"median": median(seconds), "min": min(seconds), "max": max(seconds),
            "cpu": median(cpu), "rounds": len(seconds)}


def measure(task, threads, **options):
    """Run a task of ``benchmark_tasks`` in a new process, with a progress bar.

    Parameters
    ----------
    task : {'inference', 'training', 'gemm'}
    threads : int
        OMP_NUM_THREADS of the process.
    options
        JSON values that the task takes; ``config`` names it in messages.

    Returns
    -------
    dict
        What the task returns, ``what`` (its name) and ``threads``.

    Raises
    ------
    UserError
        With the process's own message, or that it was killed.
    """
    name = " ".join([options["config"], task] if "config" in options else [task])
    with tempfile.TemporaryDirectory() as folder:
        process = _start(threads, json.dumps(dict(options, task=task, folder=folder)))
        try:
            answer = _last_answer(process.stdout, tqdm(desc=name, unit="round", leave=False))
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its loader processes
                process.wait()
            process.stdout.close()
    if "error" in answer:
        raise UserError("{}: {}".format(name, answer["error"]))
    if "result" not in answer:
        raise UserError("{}: its process {}".format(name, "was killed (out of memory?); a smaller "
                        "--batch or --size needs less" if code < 0 else "has failed, see above"))
    return dict(answer["result"], what=task, threads=threads)


def _start(threads, options):
    """The process of a task, in a session of its own: Ctrl-C reaches this one alone."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([root] + list(filter(None, [os.environ.get("PYTHONPATH")])))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", __package__ + ".benchmark_tasks", options],
        stdout=subprocess.PIPE, universal_newlines=True, start_new_session=True,
        env=dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONPATH=path))


def _last_answer(lines, bar):
    """The last json of those that a process writes; the others say how far it is."""
    answer = {}
    with bar:
        for line in lines:
            answer = json.loads(line)
            if "of" in answer:
                bar.total = answer["of"]
                bar.update(answer["done"] - bar.n)
    return answer


def with_rates(result, gemm):
    """A result with images/s, FLOP/s and the share of the GEMM peak in each of its phases.

    gemm: result of the task ``gemm`` in the same number format.
    """
    for name, phase in result["phases"].items():
        if (result["what"], name) != ("inference", "load"):
            phase["images_per_second"] = result["batch"] / phase["median"]
        if "flops" in phase:
            phase["flops_per_second"] = phase["flops"] / phase["median"]
            phase["gemm_share"] = phase["flops_per_second"] / gemm["flops_per_second"]
    cores = gemm["cpu"] / gemm["median"]
    notes = list(result["notes"])
    if result["device"].startswith("cpu") and cores < _BUSY * result["threads"]:
        notes.append("Times are too long: the matrix product had {:.1f} cores for {} threads "
                     "(other processes, or fewer cores than threads)".format(
                         cores, result["threads"]))
    return dict(result, notes=notes, gemm_flops_per_second=gemm["flops_per_second"])


def markdown(result):
    """The table of a result of :func:`with_rates`, with a heading."""
    lines = [
        "### {config}, {what}".format(**result),
        "Input {input}x{input}, batch {batch}, {classes} classes, {dtype}, {device}, "
        "threads: {threads}, rounds: {rounds}.  ".format(**result),
        "{:.1f} M parameters, {:.2f} GFLOPs an image, peak memory {:.0f} MB, GEMM peak {:.0f} "
        "GFLOP/s.".format(result["parameters"] / 1e6, result["flops"] / result["batch"] / 1e9,
                          result["peak_mb"], result["gemm_flops_per_second"] / 1e9),
    ] + ["{}.".format(note) for note in result["notes"]] + [""]
    rows = [_TITLES, ["---"] * len(_TITLES)] + [
        _cells(label, result["phases"][name]) for name, label in PHASES[result["what"]].items()]
    return "\n".join(lines + ["| {} |".format(" | ".join(row)) for row in rows]) + "\n"


def _cells(label, phase):
    """A row of the table; what a phase has no figure for stays empty."""
    several = phase["rounds"] > 1
    return [label, _number(phase["median"])] + [
        _number(phase[key]) if several else "" for key in ("min", "max")] + [
        _number(phase["cpu"]), _number(phase.get("images_per_second")),
        _number(phase.get("flops"), 1e9), _number(phase.get("flops_per_second"), 1e9),
        "{:.0%}".format(phase["gemm_share"]) if "gemm_share" in phase else ""]


def _number(value, unit=1):
    """Three significant digits, never an exponent; "" for None."""
    if value is None:
        return ""
    value = value / unit
    digits = next((n for n, limit in enumerate((100, 10, 1, 0.1, 0.01)) if value >= limit), 5)
    return "{:.{}f}".format(value, digits)
