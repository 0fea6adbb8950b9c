"""Mask re-scoring: a small net that predicts the IoU of a mask (YOLACT++ section 5.1)."""

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from ..errors import ConfigError


class MaskIoUNet(HybridBlock):
    """Cropped mask probabilities (n, 1, H, W) -> predicted IoU per class (n, num_classes), >= 0.

    One 3x3 stride-2 convolution without padding per entry of ``channels``, a 1x1 convolution
    to the classes, ReLU after each, global maximum.
    """

    def __init__(self, num_classes, channels=(8, 16, 32, 64, 128), **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            for before, after in zip((1,) + tuple(channels), channels):
                self.layers.add(
                    nn.Conv2D(after, 3, strides=2, in_channels=before, activation="relu")
                )
            # The last ReLU dies when early masks, whose IoU is 0, push a new net below 0; a
            # prediction that starts at 0.5 lives through them.
            self.layers.add(
                nn.Conv2D(
                    num_classes,
                    1,
                    in_channels=channels[-1],
                    activation="relu",
                    bias_initializer=mx.init.Constant(0.5),
                )
            )

    def hybrid_forward(self, F, masks):
        return F.max(self.layers(masks), axis=(2, 3))


def check_depth(channels, proto_size, input_size):
    """Refuse an input too small for the unpadded stride-2 layers (five need 249 pixels)."""
    side = min(proto_size)
    for layer in range(len(channels)):
        if side < 3:
            raise ConfigError(
                "key 'model.mask_iou': {} stride-2 layers need larger prototypes than {}x{}; "
                "expected at most {} layers for an input of {} pixels, or a larger input.size "
                "(five layers: 249)".format(len(channels), *proto_size, layer, input_size)
            )
        side = (side - 3) // 2 + 1
