"""Feature pyramid (Lin et al. 2017) with the extra levels of RetinaNet; YOLACT section 5."""

from mxnet.gluon import HybridBlock

from .layers import conv, resize_like, resize_like_by_products


class FPN(HybridBlock):
    """C3, C4, C5 -> P3, P4, P5, P6, P7, all with ``channels`` channels.

    ReLU follows the 3x3 convolutions of P3..P5; P6 and P7 (stride 2 each) have none, and P6
    takes P5 after its ReLU.
    training: resize so that the gradient is fast; values are the same up to rounding.
    """

    def __init__(self, in_channels, channels=256, training=False, **kwargs):
        super().__init__(**kwargs)
        self._resize_like = resize_like_by_products if training else resize_like
        with self.name_scope():
            self.lateral3, self.lateral4, self.lateral5 = (
                conv(channels, c, kernel_size=1, activation=None) for c in in_channels
            )
            self.output3, self.output4, self.output5 = (conv(channels, channels) for _ in range(3))
            self.down6, self.down7 = (
                conv(channels, channels, strides=2, activation=None) for _ in range(2)
            )

    def hybrid_forward(self, F, c3, c4, c5):
        x5 = self.lateral5(c5)
        x4 = self.lateral4(c4) + self._resize_like(F, x5, c4)
        x3 = self.lateral3(c3) + self._resize_like(F, x4, c3)
        p5 = self.output5(x5)
        p6 = self.down6(p5)
        return self.output3(x3), self.output4(x4), p5, p6, self.down7(p6)
