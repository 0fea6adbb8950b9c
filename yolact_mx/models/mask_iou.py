"""Mask re-scoring: a small net that predicts the IoU of a mask (YOLACT++ section 5.1)."""
import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from ..errors import ConfigError


class MaskIoUNet(HybridBlock):
    """Cropped mask probabilities (n, 1, H, W) -> predicted IoU per class (n, num_classes), >= 0.

    One 3x3 stride-2 convolution without padding and ReLU per entry of ``channels``, a 1x1
    convolution to the classes, global maximum, ReLU.

    Parameters
    ----------
    num_classes : int
    channels : sequence of int
    straight_through : bool
        Give the last ReLU the gradient of a line, so that a class whose prediction fell to 0
        can rise again.  Early in a training from scratch all masks are bad, every target is
        near 0, and without it the net dies of that.  Values are the same.
    """

    def __init__(
        self, num_classes, channels=(8, 16, 32, 64, 128), straight_through=False, **kwargs
    ):
        super().__init__(**kwargs)
        self._straight_through = straight_through
        with self.name_scope():
            self.layers = nn.HybridSequential()
            for before, after in zip((1,) + tuple(channels), channels):
                self.layers.add(
                    nn.Conv2D(after, 3, strides=2, in_channels=before, activation="relu")
                )
            # not F.max: of equal positions, which cropped masks are full of, each would get the
            # whole gradient
            self.pool = nn.GlobalMaxPool2D()
            alive = mx.init.Constant(0.5)
            self.layers.add(
                nn.Conv2D(num_classes, 1, in_channels=channels[-1], bias_initializer=alive)
            )

    def hybrid_forward(self, F, masks):
        # the reference takes the maximum after the ReLU, which is the same
        score = F.flatten(self.pool(self.layers(masks)))
        positive = F.relu(score)
        return score + F.BlockGrad(positive - score) if self._straight_through else positive


def check_depth(channels, proto_size, image_size):
    """Refuse an input (H, W) too small for the unpadded stride-2 layers (five need 249 pixels)."""
    side = min(proto_size)
    for layer in range(len(channels)):
        if side < 3:
            raise ConfigError(
                "key 'model.mask_iou': {} stride-2 layers need larger prototypes than {}x{}; "
                "expected at most {} layers for an input of {}x{} pixels, or a larger input.size "
                "(five layers: 249)".format(len(channels), *proto_size, layer, *image_size)
            )
        side = (side - 3) // 2 + 1
