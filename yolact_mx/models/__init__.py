"""The network and its parts; :func:`build_yolact` makes one from a configuration."""
from ..anchors import build_anchors
from .yolact import Predictions, Yolact, build_yolact

__all__ = ["Predictions", "Yolact", "build_anchors", "build_yolact"]
