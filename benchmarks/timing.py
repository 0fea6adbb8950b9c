"""Timing on a shared machine: every form takes its turn in every round."""
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import yolact_mx  # noqa: E402,F401  (before MXNet: it sets the number of threads)

# isort: split
import mxnet as mx  # noqa: E402


def interleaved(functions, rounds):
    """Median seconds of each function: {name: callable} -> {name: seconds}.

    One untimed round first.  A disturbance of the machine then hits all functions alike, so
    the ratios hold better than the times.
    """
    times = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            mx.nd.waitall()
            start = time.perf_counter()
            function()
            mx.nd.waitall()
            if number:
                times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}
