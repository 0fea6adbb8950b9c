"""Batches made by other processes, in order, the same ones for any number of them."""

import mmap
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain

import mxnet as mx
import numpy as np

from ..errors import DatasetError

_AHEAD = 2  # batches in the making per worker

_samples, _images = None, None  # of a worker process


def build_loader(samples, batches, workers):
    """Generator of batches (see :func:`collate`, as NDArrays) in the order of ``batches``.

    Workers compute NumPy arrays only.  They are not Gluon's DataLoader: its pool hangs for good
    when a worker is killed (out of memory, say), this one raises.  Images, nine tenths of a batch,
    are written into memory that all processes share; the rest is pickled.

    Parameters
    ----------
    samples : TrainingSamples
    batches : iterable of lists of keys of ``samples``, none longer than the first
    workers : int
        Processes; 0 computes in this one.

    Raises
    ------
    DatasetError
        Also from a worker: its own errors come through, and its death is named.
    """
    if not workers:
        for keys in batches:
            yield _to_ndarrays(samples.batch(keys))
        return
    batches = iter(batches)
    first = next(batches, ())
    ahead = _AHEAD * workers
    images = _shared_memory(ahead + 1, len(first) * samples.image_values if first else 0)
    pool = ProcessPoolExecutor(
        workers, initializer=_start_worker, initargs=(samples, images, os.getpid())
    )
    pending = deque()
    try:
        for number, keys in enumerate(chain([first] if first else [], batches)):
            # The batch that had this place before has been yielded, as a copy
            place = number % (ahead + 1)
            pending.append((pool.submit(_make_batch, keys, place), place))
            if len(pending) > ahead:
                yield _result(*pending.popleft(), images)
        while pending:
            yield _result(*pending.popleft(), images)
    except BrokenProcessPool:
        raise DatasetError(
            "a loader process was killed (out of memory?); train.workers=0 loads "
            "without extra processes"
        ) from None
    finally:
        for future, _ in pending:
            future.cancel()
        pool.shutdown()


def _to_ndarrays(batch):
    return {
        name: mx.nd.array(value, dtype=value.dtype) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


def _shared_memory(places, values):
    """(places, values) float32 that forked processes share; None without fork, and of nothing.

    Not in /dev/shm, of which containers have little.
    """
    if multiprocessing.get_start_method() != "fork" or not values:
        return None
    return np.frombuffer(mmap.mmap(-1, 4 * places * values), np.float32).reshape(places, values)


def _result(future, place, images):
    batch = future.result()
    if images is not None:
        shape = batch["images"]
        batch["images"] = images[place, : int(np.prod(shape))].reshape(shape)
    return _to_ndarrays(batch)


def _make_batch(keys, place):
    if _images is None:
        return _samples.batch(keys)
    batch = _samples.batch(keys, _images[place])
    batch["images"] = batch["images"].shape
    return batch


def _start_worker(samples, images, parent):
    """Ctrl-C is for the trainer, which saves first; a trainer that was killed ends its workers."""
    global _samples, _images
    _samples, _images = samples, images
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
