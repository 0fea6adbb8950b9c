"""Batches made by other processes, in order, the same ones for any number of them."""

import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import mxnet as mx
import numpy as np

from ..errors import DatasetError
from .samples import collate

_AHEAD = 2  # batches in the making per worker

_samples = None  # of a worker process


def build_loader(samples, batches, workers):
    """Generator of batches (see :func:`collate`, as NDArrays) in the order of ``batches``.

    Workers compute NumPy arrays only.  They are not Gluon's DataLoader: its pool hangs for good
    when a worker is killed (out of memory, say), this one raises.

    Parameters
    ----------
    samples : TrainingSamples
    batches : iterable of lists of keys of ``samples``
    workers : int
        Processes; 0 computes in this one.

    Raises
    ------
    DatasetError
        Also from a worker: its own errors come through, and its death is named.
    """
    if not workers:
        for keys in batches:
            yield _to_ndarrays(collate([samples[key] for key in keys]))
        return
    pool = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(samples, os.getpid()))
    pending = deque()
    try:
        for keys in batches:
            pending.append(pool.submit(_make_batch, keys))
            if len(pending) > _AHEAD * workers:
                yield _to_ndarrays(pending.popleft().result())
        while pending:
            yield _to_ndarrays(pending.popleft().result())
    except BrokenProcessPool:
        raise DatasetError(
            "a loader process was killed (out of memory?); train.workers=0 loads "
            "without extra processes"
        ) from None
    finally:
        for future in pending:
            future.cancel()
        pool.shutdown()


def _to_ndarrays(batch):
    return {
        name: mx.nd.array(value, dtype=value.dtype) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


def _make_batch(keys):
    return collate([_samples[key] for key in keys])


def _start_worker(samples, parent):
    """Ctrl-C is for the trainer, which saves first; a trainer that was killed ends its workers."""
    global _samples
    _samples = samples
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
