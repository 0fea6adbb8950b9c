"""Modulated deformable convolution (DCNv2, Zhu et al. 2019, section 3.2) that trains anywhere.

MXNet has the operator, but its backward exists on GPUs only.  Here the same function is
also composed of differentiable operators, exactly and with the same parameters.
"""

from mxnet.gluon import nn


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
    native : bool
        Use MXNet's operator (forward anywhere, backward on GPUs only) instead of the
        composed one.  Both have the same parameters and agree within float32 rounding.
    """

    def __init__(
        self, channels, kernel_size=3, strides=1, padding=1, in_channels=0, native=False, **kwargs
    ):
        super().__init__(channels, kernel_size, strides, padding, in_channels=in_channels, **kwargs)
        self._native = native
        self._taps = kernel_size * kernel_size
        with self.name_scope():
            self.conv_offset_mask = nn.Conv2D(
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
        if self._native:
            settings = {key: self._kwargs[key] for key in ("kernel", "stride", "pad", "num_filter")}
            return F.contrib.ModulatedDeformableConvolution(
                x, offset, mask, weight, bias, **settings
            )
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
        # last row and column; at least 1, so that a map of one pixel divides by no zero
        last = [
            F.reshape(F.clip(F.max(F.contrib.arange_like(x, axis=axis)), 1, 1e6), (1, 1, 1, 1))
            for axis in (2, 3)
        ]
        extent = F.broadcast_add(F.broadcast_mul(1 - is_x, last[0]), F.broadcast_mul(is_x, last[1]))
        grid = F.broadcast_div(position * 2, extent) - 1
        grid = F.transpose(F.reshape(grid, (0, self._taps, 2, -1)), (0, 2, 1, 3))
        return F.reverse(grid, axis=1)
