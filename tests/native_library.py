"""The library of C++ operators for tests: the one that is there, else one compiled for them."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from tiny import ROOT

from yolact_mx.nn import native_ops


def require_library():
    """Load the library; skips the test where none can be compiled."""
    if native_ops.load():
        return
    if native_ops.find_compiler() is None:
        pytest.skip("no C++ compiler for the library of operators")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["XDG_CACHE_HOME"] = folder  # processes that tests start find it there, too
    native_ops.build()
    native_ops.load.cache_clear()
    assert native_ops.load()


def usable(sampler):
    """``sampler``, once it can be used."""
    if sampler == "library":
        require_library()
    return sampler


def assert_threads_do_not_show(here, expression, threads, folder):
    """The arrays that ``expression`` makes in a process of 1 thread, say, are those ``here``.

    expression : str
        ``module.call(...)`` of a test module -> arrays.
    """
    code = ("import sys; sys.path.insert(0, 'tests'); import numpy as np, {};"
            "np.savez(sys.argv[1], *{})").format(expression.partition(".")[0], expression)
    for count in threads:
        path = folder / "{}.npz".format(count)
        subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(path)], cwd=str(ROOT),
                       env=dict(os.environ, OMP_NUM_THREADS=str(count)), check=True)
        with np.load(str(path)) as there:
            assert len(there.files) == len(here)
            for name, array in zip(there.files, here):
                np.testing.assert_array_equal(there[name], array)
