"""What has to be true before MXNet is imported.

MXNet 1.9.1 is the last release.  It reads the OpenMP variables once, at import, and it
uses NumPy aliases (``numpy.bool`` and others) that NumPy 1.24 removed.  Importing any part
of ``yolact_mx`` runs :func:`prepare` first, so no user has to know either fact.
"""

import os
import sys
import warnings

import numpy as np


def available_cores():
    """Number of CPU cores this process may use (respects taskset and container cpusets)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prepare():
    """Set the OpenMP thread count and restore NumPy aliases; a user's own setting wins.

    Without ``OMP_NUM_THREADS`` the MXNet wheel behaves like a single thread on small
    machines.  Does nothing about threads when MXNet has been imported already.
    """
    if "mxnet" not in sys.modules:
        os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
        # Waiting threads sleep instead of spinning: loader processes need the cores too
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # A warning per operator about TensorRT-era storage fallbacks helps nobody.
        os.environ.setdefault("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for alias, kind in (
            ("bool", bool),
            ("object", object),
            ("int", int),
            ("float", float),
            ("complex", complex),
            ("str", str),
        ):
            if alias not in np.__dict__:
                setattr(np, alias, kind)
    _check_opencv()


def _check_opencv():
    try:
        import cv2
    except ImportError as error:
        if "lib" not in str(error):
            raise
        raise ImportError(
            "OpenCV cannot load a system library ({}). Either install it (Debian/Ubuntu: "
            "apt-get install libgl1 libglib2.0-0) or use the build that needs none: "
            "pip uninstall -y opencv-python; pip install opencv-python-headless".format(error)
        ) from error
    # Loader workers and MXNet share the cores; OpenCV's own pool would oversubscribe them.
    cv2.setNumThreads(1)
