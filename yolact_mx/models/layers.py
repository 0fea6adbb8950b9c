"""The convolutions that FPN, protonet and head are made of."""

from mxnet.gluon import nn

from ..nn.dynamic_conv import DynamicConv2D


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
    layer = {"plain": nn.Conv2D, "dynamic": DynamicConv2D}[kind]
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
