"""Operators in C++ (csrc/): where their library lies, building and loading it.

They are optional.  ``yolact-mx build-ops`` compiles them once a user; whoever uses them asks
:func:`load` and has another form for the answer no.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import mxnet as mx
from mxnet.base import _LIB, MXNetError, OpHandle, c_str, check_call

from ..errors import UserError

SOURCES = Path(__file__).resolve().parent.parent / "csrc"
OPERATORS = ("yolact_deform_im2col", "yolact_fast_nms")
# Tried one after the other: no compiler has to know this processor, nor OpenMP.  Without fused
# multiply-add results are those of MXNet's operators, bit for bit.
FLAGS = (
    ("-O3", "-ffp-contract=off", "-march=native", "-fopenmp"),
    ("-O3", "-ffp-contract=off", "-fopenmp"),
    ("-O3", "-ffp-contract=off"),
)
log = logging.getLogger(__name__)


def library_path():
    """Where the library of this source, this MXNet and this kind of processor lies.

    In the user's cache: the package's own folder may be read-only, and a home directory
    that several machines share needs a library for each kind of them.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    parts = [path.read_bytes() for path in sorted(SOURCES.glob("*.*"))]
    parts.append("{} {}".format(FLAGS, processor()).encode())
    key = hashlib.sha256(b"".join(parts)).hexdigest()[:12]
    return Path(cache) / "yolact_mx" / "ops-mxnet{}-{}.so".format(mx.__version__, key)


def find_compiler():
    """$CXX, else g++, clang++ or c++ of the path; None without any."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    return next(filter(None, map(shutil.which, names)), None)


def build():
    """Compile the library to :func:`library_path`; (its path, [compiler, flags...])

    Raises
    ------
    UserError
        No compiler, or it fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise UserError(
            "no C++ compiler found ({}): the faster operators cannot be built".format(
                os.environ.get("CXX") or "g++, clang++, c++"
            )
        )
    root = Path(mx.__file__).resolve().parent
    target = library_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Compiled elsewhere and moved: another process never loads half a library
    with tempfile.TemporaryDirectory(dir=str(target.parent)) as folder:
        result = Path(folder) / target.name
        for flags in FLAGS:
            command = [compiler, *flags, "-std=c++14", "-shared", "-fPIC"]
            command += ["-I{}".format(root / "include"), str(root / "src" / "lib_api.cc")]
            command += [str(path) for path in sorted(SOURCES.glob("*.cc"))] + ["-o", str(result)]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
            )
            if done.returncode == 0:
                os.replace(str(result), str(target))
                return target, [compiler, *flags]
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    lines.append("exit code {}".format(done.returncode))
    raise UserError("{} cannot compile the faster operators: {}".format(compiler, lines[0]))


@functools.lru_cache(maxsize=None)
def load():
    """Load the library if it was built; whether its operators are there.

    A library that cannot be loaded is reported once, in the log.
    """
    path = library_path()
    if not path.is_file():
        return False
    try:
        # Not by mx.library.load: it makes the functions of all operators anew, which takes a
        # second, takes AMP's wrappers off them and gives mx.nd and mx.sym other names
        check_call(_LIB.MXLoadLib(c_str(str(path)), 0))
        for name in OPERATORS:
            _add_function(name)
    except MXNetError as error:
        log.warning(
            "%s cannot be loaded (%s): slower operators take its place",
            path,
            str(error).strip().splitlines()[-1].strip(),
        )
        return False
    return True


def _add_function(name):
    """``mx.nd.NAME`` and ``mx.sym.NAME`` of an operator that MXNet knows."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    setattr(mx.nd, name, mx.nd.register._make_ndarray_function(handle, name, name))
    setattr(mx.sym, name, mx.sym.register._make_symbol_function(handle, name, name))


def processor():
    """What code for this very processor may rely on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.machine() + platform.processor()
    names = ("flags", "Features")  # of x86 and ARM
    found = (line.partition(":") for line in lines if line.startswith(names))
    return platform.machine() + next((value for _, _, value in found), "")
