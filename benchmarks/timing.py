"""Timing on a shared machine: every form takes its turn in every round."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# First: importing the package sets the number of threads, before MXNet
from yolact_mx.benchmark import summary, timed  # noqa: E402

# isort: split
from mxnet import autograd  # noqa: E402


def interleaved(functions, rounds):
    """Median seconds of each function: {name: callable} -> {name: seconds}.

    A disturbance of the machine hits all functions alike, so the ratios hold better than the
    times.
    """
    return {name: summary(samples)["median"] for name, samples in timed(functions, rounds).items()}


def forward_backward(form, x):
    """One pass of a layer in each direction."""
    with autograd.record():
        out = form(x)
    out.backward()
