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
