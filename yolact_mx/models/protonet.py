"""Protonet: the prototype masks (YOLACT section 3.2)."""

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from .layers import conv, upsample2


class Protonet(HybridBlock):
    """P3 (B, in_channels, H, W) -> prototypes (B, prototypes, 2H, 2W), not negative.

    training: resize so that the gradient is fast; values are the same up to rounding.
    """

    def __init__(
        self, in_channels, channels=256, prototypes=32, kind="plain", training=False, **kwargs
    ):
        super().__init__(**kwargs)
        self._channels, self._training = channels, training
        with self.name_scope():
            self.before = nn.HybridSequential()
            for i in range(3):
                self.before.add(conv(channels, channels if i else in_channels, kind=kind))
            self.after = nn.HybridSequential()
            self.after.add(conv(channels, channels, kind=kind))
            # Above 0 at the start: a prototype that the first, rough updates push below 0
            # everywhere has no gradient any more, and with all of them the masks are lost.
            alive = mx.init.Constant(0.5)
            self.after.add(
                conv(prototypes, channels, kernel_size=1, kind=kind, bias_initializer=alive)
            )

    def hybrid_forward(self, F, p3):
        x = self.before(p3)
        if self._training:
            x = upsample2(F, x, self._channels)
        else:
            x = F.contrib.BilinearResize2D(x, scale_height=2, scale_width=2, align_corners=False)
        return self.after(x)
