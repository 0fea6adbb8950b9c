"""Several workers that train one network: what they add up, and how one of them leaves."""

import atexit
import os
import sys

import mxnet as mx
from mxnet.base import _LIB, KVStoreHandle, check_call
from mxnet.kvstore import KVStore, KVStoreBase

from .checkpoint import latest_checkpoint
from .errors import CheckpointError, UserError

_FIRST_KEY = 1 << 20  # the parameters of the network are keys 0, 1, ...


class Workers:
    """The processes that train together; without ``store`` this one alone.

    What is added up stays an NDArray that is still being computed, so no step waits for it.
    As a context manager it lets a worker that fails end at once: MXNet would wait for all the
    others at the end of the process, and they for its gradients.

    Parameters
    ----------
    store : KVStore or HorovodStore, optional

    Attributes
    ----------
    rank, size : int
        Number of this worker, from 0, and how many there are.  Rank 0 writes and validates.
    """

    def __init__(self, store=None):
        self.store = store
        self.rank, self.size = (store.rank, store.num_workers) if store else (0, 1)
        self._keys, self._wishes = {}, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            if isinstance(self.store, KVStore):
                # waits for the others and ends the servers; left to Python's own end it aborts
                check_call(_LIB.MXKVStoreFree(self.store.handle))
                self.store.handle = KVStoreHandle()
        elif self.size > 1:
            known = {KeyboardInterrupt: 130, SystemExit: getattr(error, "code", 1)}
            code = 2 if issubclass(kind, (UserError, OSError)) else known.get(kind, 1)
            atexit.register(_leave, self.store, code)

    def total(self, name, values):
        """Sum of an NDArray over the workers, in its place; ``name`` says of what."""
        if self.size == 1:
            return values
        if name not in self._keys:
            self._keys[name] = _FIRST_KEY + len(self._keys)
            self.store.broadcast(self._keys[name], mx.nd.zeros_like(values), values.copy())
            self.barrier()
        self.store.pushpull(self._keys[name], values)
        return values

    def total_terms(self, terms):
        """Loss terms of the parts of this worker's batch -> the same, added up over all."""
        if self.size == 1:
            return terms
        return [self.total("terms", sum(part.as_in_context(mx.cpu()) for part in terms))]

    def agree_to_stop(self, asked):
        """Whether all stop after the step at hand, the same one for all.

        ``asked``: whether this worker was told to.  The others' wishes of the step before
        decide, for they are known without waiting; a worker alone stops at once.
        """
        if self.size == 1:
            return asked
        before, self._wishes = self._wishes, self.total("wishes", mx.nd.array([asked]))
        return before is not None and before.asscalar() > 0

    def of_first(self, number):
        """The number that worker 0 gives; the others wait for it.  Exact up to 2^24."""
        own = mx.nd.array([number if self.rank == 0 else 0])
        return int(self.total("of_first", own).asscalar())

    def require_equal(self, numbers):
        """Raises UserError unless all workers give the same {what: number}."""
        for what, number in numbers.items():
            first = self.of_first(number)
            if first != number:
                raise UserError(
                    "rank {} of {}: expected {} {} as rank 0 has, found {}; all need the "
                    "same configuration, data and --out folder".format(
                        self.rank, self.size, first, what, number
                    )
                )

    def barrier(self):
        """Wait until every worker is here."""
        mx.nd.waitall()
        if self.size > 1:
            self.store._barrier()


class HorovodStore(KVStoreBase):
    """Horovod behind the interface of a KVStore, which MXNet 1.9 lacks; one device a worker."""

    def __init__(self):
        try:
            import horovod.mxnet as hvd
        except ImportError as error:
            raise UserError(
                "--kvstore horovod: Horovod for MXNet is not installed ({}); "
                "--kvstore dist_sync needs nothing but MXNet".format(error)
            ) from None
        hvd.init()
        self._hvd, self.local_rank = hvd, hvd.local_rank()

    @property
    def type(self):
        return "horovod"

    @property
    def rank(self):
        return self._hvd.rank()

    @property
    def num_workers(self):
        return self._hvd.size()

    @staticmethod
    def is_capable(capability):
        return False  # it has no server that could update parameters

    def broadcast(self, key, value, out, priority=0):
        for target in out if isinstance(out, list) else [out]:
            target[:] = value
            self._hvd.broadcast_(target, root_rank=0, name=str(key), priority=priority)

    def pushpull(self, key, value, out=None, priority=0):
        for array in value if isinstance(value, list) else [value]:
            self._hvd.allreduce_(array, average=False, name=str(key), priority=priority)

    def _barrier(self):
        one = mx.nd.ones(1)
        self.pushpull("barrier", one)
        one.wait_to_read()


def connect(kind, contexts):
    """(Workers, devices of this one); returns when all of them are there.

    Parameters
    ----------
    kind : str or None
        ``dist_sync`` (devices' sums made on the CPU), ``dist_device_sync`` (on a GPU),
        ``horovod``; None: alone.
    contexts : list of Context
        Of each worker; with Horovod each worker of a machine takes one of them.

    Raises
    ------
    UserError
        When whatever ``kind`` needs is missing.
    """
    role = os.environ.get("DMLC_ROLE")
    if kind is None:
        if role:
            raise UserError(
                "started as one of several ({}=DMLC_ROLE): expected --kvstore dist_sync, else "
                "each worker trains a network of its own".format(role)
            )
        return Workers(), contexts
    if kind == "horovod":
        store = HorovodStore()
        return Workers(store), [contexts[store.local_rank % len(contexts)]]
    if not role:
        raise UserError(
            "--kvstore {}: start the workers with launch.py -n WORKERS -- COMMAND "
            "(it sets DMLC_ROLE and the like)".format(kind)
        )
    return Workers(mx.kv.create(kind)), contexts


def last_words(out_dir, workers):
    """What a worker says that ends without the others."""
    try:
        found = latest_checkpoint(out_dir / "checkpoints")
        left = "continues from {}".format(found) if found else "finds no checkpoint"
    except CheckpointError as error:
        left = "does not work: {}".format(error)
    return "error: rank {} of {} stops, for the others do not answer; --resume {}".format(
        workers.rank, workers.size, left
    )


def _leave(store, code):
    """End the process now.  ``store`` was kept until here, for its end waits for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
