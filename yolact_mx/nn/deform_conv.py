"""Modulated deformable convolution (DCNv2, Zhu et al. 2019, section 3.2) that trains anywhere.

MXNet has the operator, but its backward exists on GPUs only.  Here the same function is
also composed of differentiable operators, and of one in C++ (csrc/) that is many times
faster, exactly and with the same parameters.
"""

import logging

from mxnet.gluon import nn

from .native_ops import load
from .widened_conv import WidenedConv2D

log = logging.getLogger(__name__)
SAMPLERS = ("composed", "mxnet", "library")


def default_sampler(contexts, training):
    """The fastest of ``SAMPLERS`` that works on all ``contexts`` (a list)."""
    kinds = {context.device_type for context in contexts}
    if kinds == {"gpu"}:
        return "mxnet"
    if kinds == {"cpu"} and load():
        return "library"
    if training:
        log.info(
            "deformable convolutions of basic operators; on CPUs those of yolact-mx build-ops "
            "train several times faster"
        )
    return "composed" if training else "mxnet"


class ModulatedDeformConv2D(nn.Conv2D):
    """Convolution that samples its input at learnt offsets with learnt weights.

    A drop-in for :class:`mxnet.gluon.nn.Conv2D` with a bias.  A plain convolution
    ``conv_offset_mask`` with the same kernel, stride and padding predicts, per output
    position and tap k (row-major), dy (channel 2k), dx (2k + 1) and a mask logit
    (2 * taps + k).  y = sum_k w_k * sigmoid(mask_k) * x(p + p_k + offset_k), bilinear
    sampling, zero outside the map.  Initially all offsets are 0 and all masks 0.5.

    Parameters
    ----------
    channels, kernel_size, strides, padding, in_channels
        As in Conv2D (square kernel, undilated, one group).
    sampler : str
        How the input is sampled; all have the same parameters and agree within float32
        rounding.  ``composed``: by basic operators, anywhere.  ``mxnet``: MXNet's operator,
        backward on GPUs only.  ``library``: the operator of csrc/, on CPUs in float32, once
        :func:`.native_ops.load` has found it; a graph with it needs the library, too.
    """

    def __init__(
        self,
        channels,
        kernel_size=3,
        strides=1,
        padding=1,
        in_channels=0,
        sampler="composed",
        **kwargs
    ):
        super().__init__(channels, kernel_size, strides, padding, in_channels=in_channels, **kwargs)
        if sampler not in SAMPLERS or (sampler == "library" and not load()):
            raise ValueError(
                "sampler: expected one of {}, found {!r}{}".format(
                    ", ".join(SAMPLERS),
                    sampler,
                    " (run yolact-mx build-ops)" if sampler == "library" else "",
                )
            )
        self._sampler = sampler
        self._taps = kernel_size * kernel_size
        with self.name_scope():
            self.conv_offset_mask = WidenedConv2D(
                3 * self._taps,
                kernel_size,
                strides,
                padding,
                in_channels=in_channels,
                weight_initializer="zeros",
                bias_initializer="zeros",
            )

    def hybrid_forward(self, F, x, weight, bias):
        predicted = self.conv_offset_mask(x)
        offset = F.slice_axis(predicted, axis=1, begin=0, end=2 * self._taps)
        mask = F.sigmoid(F.slice_axis(predicted, axis=1, begin=2 * self._taps, end=None))
        return self.sample(F, x, offset, mask, weight, bias)

    def sample(self, F, x, offset, mask, weight, bias):
        """The convolution for given offsets (B, 2 * taps, Ho, Wo) and masks (B, taps, Ho, Wo)."""
        if self._sampler == "mxnet":
            settings = {key: self._kwargs[key] for key in ("kernel", "stride", "pad", "num_filter")}
            return F.contrib.ModulatedDeformableConvolution(
                x, offset, mask, weight, bias, **settings
            )
        if self._sampler == "library":
            return self._from_library(F, x, offset, mask, weight, bias)
        # One more row and column of zeros: a map of one pixel has no corners to count between
        x = F.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 0, 1))
        sampled = F.BilinearSampler(x, self._grid(F, x, offset))  # (B, C, taps, Ho * Wo)
        # mask over all channels: a product with a column of ones, whose gradient is six times
        # faster than that of broadcast_mul
        ones = F.ones_like(F.slice(x, begin=(None, None, 0, 0), end=(None, None, 1, 1)))
        weights = F.batch_dot(F.reshape(ones, (0, 0, 1)), F.reshape(mask, (0, 1, -1)))
        sampled = F.reshape(sampled, (0, 0, -1)) * weights  # (B, C, taps * Ho * Wo)
        # Taps and channels merge into a 1x1 convolution.  The map gets its height back before
        # it: oneDNN refuses to add a reshaped convolution output to a residual branch.
        sampled = F.reshape(F.reshape(sampled, (0, 0, self._taps, -1)), (0, -3, 0))
        sampled = F.reshape_like(sampled, mask, lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)
        return F.Convolution(
            sampled,
            F.reshape(weight, (0, -1, 1, 1)),
            bias,
            kernel=(1, 1),
            num_filter=self._channels,
        )

    def _from_library(self, F, x, offset, mask, weight, bias):
        _, columns = self._kwargs["kernel"]
        (sy, sx), (py, px) = self._kwargs["stride"], self._kwargs["pad"]
        # Under AMP the arrays may be bfloat16, and AMP does not know the operator.  The
        # operator also ignores grad_req="add", so no user's array may be its direct input.
        x, offset, mask = (F.amp_cast(part, dtype="float32") for part in (x, offset, mask))
        sampled = F.yolact_deform_im2col(
            x, offset, mask, kernel_width=columns, stride_y=sy, stride_x=sx, pad_y=py, pad_x=px
        )  # (B, Ho, Wo, taps * C)
        weight = F.transpose(weight, (0, 2, 3, 1))  # (O, k, k, C)
        out = F.FullyConnected(
            sampled, F.reshape(weight, (0, -1)), bias, num_hidden=self._channels, flatten=False
        )
        return F.transpose(out, (0, 3, 1, 2))

    def _grid(self, F, x, offset):
        """Sampling positions (B, 2, taps, Ho * Wo): x then y, -1..1 between the map's corners.

        Every array is made from an input, never by size: AMP and the hybridized graph
        accept no other (F.arange has no input to take its type from).
        """
        _, columns = self._kwargs["kernel"]
        (sy, sx), (py, px) = self._kwargs["stride"], self._kwargs["pad"]
        channel = F.contrib.arange_like(offset, axis=1)  # (2 * taps,)
        tap = F.floor((channel + 0.5) / 2)
        is_x = channel - 2 * tap
        row = F.floor((tap + 0.5) / columns)
        column = tap - row * columns
        start = F.reshape((row - py) * (1 - is_x) + (column - px) * is_x, (1, -1, 1, 1))
        is_x = F.reshape(is_x, (1, -1, 1, 1))
        y = F.reshape(F.contrib.arange_like(offset, axis=2) * sy, (1, 1, -1, 1))
        x_ = F.reshape(F.contrib.arange_like(offset, axis=3) * sx, (1, 1, 1, -1))
        position = F.broadcast_add(F.broadcast_mul(y, 1 - is_x), F.broadcast_mul(x_, is_x))
        position = F.broadcast_add(
            F.broadcast_add(offset, start), position
        )  # (B, 2 * taps, Ho, Wo)
        last = [
            F.reshape(F.max(F.contrib.arange_like(x, axis=axis)), (1, 1, 1, 1)) for axis in (2, 3)
        ]
        extent = F.broadcast_add(F.broadcast_mul(1 - is_x, last[0]), F.broadcast_mul(is_x, last[1]))
        grid = F.broadcast_div(position * 2, extent) - 1
        grid = F.transpose(F.reshape(grid, (0, self._taps, 2, -1)), (0, 2, 1, 3))
        return F.reverse(grid, axis=1)
