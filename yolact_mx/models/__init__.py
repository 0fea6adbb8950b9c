"""The network and its parts; :func:`build_yolact` makes one from a configuration."""

from .yolact import Predictions, Yolact, build_anchors, build_yolact

__all__ = ["Predictions", "Yolact", "build_anchors", "build_yolact"]
