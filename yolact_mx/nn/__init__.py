"""Layers that MXNet lacks.  Nothing here knows YOLACT; any Gluon project can use them."""
from .deform_conv import ModulatedDeformConv2D
from .dynamic_conv import DynamicConv2D, set_temperature, temperature_at
from .kmax_pool import KMaxPool1D, KMaxPool2D
from .select import gap_shift_topk, select_positives, unsorted_topk

__all__ = ["DynamicConv2D", "KMaxPool1D", "KMaxPool2D", "ModulatedDeformConv2D",
           "gap_shift_topk", "select_positives", "set_temperature", "temperature_at",
           "unsorted_topk"]
