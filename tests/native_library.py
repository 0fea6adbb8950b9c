"""The library of C++ operators for tests: the one that is there, else one compiled for them."""
import atexit
import os
import shutil
import tempfile

import pytest

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
