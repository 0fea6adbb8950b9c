"""What holds before MXNet is imported: threads, NumPy's old names, OpenCV's libraries."""
import builtins
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from yolact_mx import runtime

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE")

# A new process in which PyTorch (a stand-in: only its presence and version matter) is there
# first, and one module of ours is imported before MXNet.
BESIDE_TORCH = """
import os, sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.__version__ = "2.13.0"
from yolact_mx.models.backbone import gluoncv_network
assert "mxnet" in sys.modules and "gluoncv" not in sys.modules
network = gluoncv_network("resnet18_v1b")
assert type(network).__name__ == "ResNetV1b" and "gluoncv" in sys.modules
assert sys.modules["torch"] is torch
print(*[os.environ.get(name) for name in %r])
""" % (VARIABLES,)


def run(code, **variables):
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    env.update(variables, PYTHONPATH=str(ROOT))
    return subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE,
                          universal_newlines=True, check=True).stdout


def test_a_new_process_beside_torch():
    assert run(BESIDE_TORCH).split() == [str(runtime.available_cores()), "PASSIVE", "0"]


def test_a_users_setting_wins():
    code = "import yolact_mx, os; print(*[os.environ[name] for name in {}])".format(VARIABLES)
    assert run(code, OMP_NUM_THREADS="3", OMP_WAIT_POLICY="ACTIVE",
               MXNET_STORAGE_FALLBACK_LOG_VERBOSE="1").split() == ["3", "ACTIVE", "1"]


def test_cores_of_this_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)
    assert runtime.available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on a Mac
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert runtime.available_cores() == 1


def test_old_names_of_numpy(monkeypatch):
    kinds = {"bool": bool, "object": object, "int": int, "float": float, "complex": complex,
             "str": str}
    for name in kinds:
        monkeypatch.delattr(np, name)
    runtime.prepare()
    assert {name: np.__dict__[name] for name in kinds} == kinds
    monkeypatch.setattr(np, "bool", np.bool_)  # NumPy's own, where it has one
    runtime.prepare()
    assert np.bool is np.bool_


def without_cv2(monkeypatch, message):
    real = builtins.__import__

    def fail(name, *args, **kwargs):
        if name == "cv2":
            raise ImportError(message)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)


def test_opencv_without_its_libraries_says_what_to_install(monkeypatch):
    without_cv2(monkeypatch, "libGL.so.1: cannot open shared object file")
    with pytest.raises(ImportError) as error:
        runtime.prepare()
    for part in ("libGL.so.1", "apt-get install libgl1", "opencv-python-headless"):
        assert part in str(error.value)


def test_opencv_missing_altogether_is_no_library_problem(monkeypatch):
    without_cv2(monkeypatch, "No module named 'cv2'")
    with pytest.raises(ImportError, match="^No module named 'cv2'$"):
        runtime.prepare()
