"""YOLACT and YOLACT++ instance segmentation for Apache MXNet Gluon and GluonCV."""
from . import runtime

runtime.prepare()

__version__ = "0.1.0"


def __getattr__(name):
    """``yolact_mx.get_model``, without importing MXNet before it is used."""
    if name == "get_model":
        from .model_zoo import get_model

        return get_model
    raise AttributeError("module 'yolact_mx' has no attribute '{}'".format(name))
