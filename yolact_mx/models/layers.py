"""The convolutions and resizes that FPN, protonet and head are made of."""

from ..nn.dynamic_conv import DynamicConv2D
from ..nn.widened_conv import WidenedConv2D


def conv(
    channels,
    in_channels,
    kernel_size=3,
    strides=1,
    activation="relu",
    kind="plain",
    bias_initializer="zeros",
):
    """A convolution with bias and 'same' padding; ``kind``: plain or dynamic (DynamicConv2D)."""
    layer = {"plain": WidenedConv2D, "dynamic": DynamicConv2D}[kind]
    return layer(
        channels,
        kernel_size,
        strides=strides,
        padding=kernel_size // 2,
        in_channels=in_channels,
        activation=activation,
        bias_initializer=bias_initializer,
    )


def resize_like(F, x, like):
    """Bilinear resize to the height and width of ``like`` (half-pixel centres)."""
    return F.contrib.BilinearResize2D(x, like, mode="like", align_corners=False)


def resize_like_by_products(F, x, like):
    """:func:`resize_like` as a matrix product for either axis.

    Equal but for rounding; on CPUs its gradient takes a tenth of the time.
    """
    x = F.dot(x, _interpolation(F, x, like, axis=3), transpose_b=True)  # (B, C, H, W')
    x = F.dot(_interpolation(F, x, like, axis=2), F.transpose(x, (2, 0, 1, 3)))
    return F.transpose(x, (1, 2, 0, 3))


def _interpolation(F, x, like, axis):
    """(m, n): how much of each of the n places of ``x`` along an axis is in the m of ``like``."""
    place, wanted = F.contrib.arange_like(x, axis=axis), F.contrib.arange_like(like, axis=axis)
    n, m = (F.reshape(F.max(index), (1,)) + 1 for index in (place, wanted))
    # rounded as BilinearResize2D and the reference do: that decides about zeros of ReLU
    position = F.broadcast_mul(wanted + 0.5, n / m) - 0.5
    position = F.broadcast_minimum(F.relu(position), n - 1)
    distance = F.broadcast_sub(F.expand_dims(position, 1), F.expand_dims(place, 0))
    return F.BlockGrad(F.relu(1 - F.abs(distance)))


def upsample2(F, x, channels):
    """Bilinear resize of (B, channels, H, W) to twice the height and width (half-pixel centres).

    As a transposed convolution of every channel with (1/4, 3/4, 3/4, 1/4) in each direction:
    equal to BilinearResize2D, whose gradient takes three times as long on CPUs.
    """
    one = F.ones_like(F.slice(x, begin=(0, None, 0, 0), end=(1, None, 1, 1)))  # (1, C, 1, 1)
    place = F.contrib.arange_like(F.broadcast_axis(one, axis=2, size=4), axis=2)
    weight = 1 - F.abs(place - 1.5) / 2
    kernel = F.broadcast_mul(F.reshape(weight, (1, 1, -1, 1)), F.reshape(weight, (1, 1, 1, -1)))
    kernel = F.BlockGrad(F.broadcast_mul(F.reshape(one, (-1, 1, 1, 1)), kernel))
    padded = F.Pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    return F.Deconvolution(
        padded, kernel, kernel=(4, 4), stride=(2, 2), pad=(3, 3), num_filter=channels,
        num_group=channels, no_bias=True,
    )
