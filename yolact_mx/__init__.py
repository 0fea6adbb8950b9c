"""YOLACT and YOLACT++ instance segmentation for Apache MXNet Gluon and GluonCV."""
from . import runtime

runtime.prepare()

__version__ = "0.1.0"
