"""The prediction head that all pyramid levels share (YOLACT section 3.1, figure 4)."""

from mxnet.gluon import HybridBlock

from .layers import conv


class PredictionHead(HybridBlock):
    """One pyramid level (B, in_channels, H, W) -> predictions of its H * W * A anchors.

    Returns
    -------
    class_logits : (B, H * W * A, num_classes + 1), background first
    box_deltas : (B, H * W * A, 4)
    mask_coefs : (B, H * W * A, prototypes), in -1..1 (tanh)
        Anchors in row-major order, then scale, then ratio, as `make_anchors` has them.
    """

    def __init__(
        self,
        in_channels,
        channels,
        anchors_per_cell,
        num_classes,
        prototypes,
        kind="plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._widths = (num_classes + 1, 4, prototypes)
        with self.name_scope():
            self.shared = conv(channels, in_channels, kind=kind)
            # the last activation belongs to the layer, where it costs next to nothing
            self.classes, self.boxes, self.coefs = (
                conv(anchors_per_cell * width, channels, activation=activation, kind=kind)
                for width, activation in zip(self._widths, (None, None, "tanh"))
            )

    def hybrid_forward(self, F, x):
        x = self.shared(x)
        return tuple(
            F.reshape(F.transpose(branch(x), (0, 2, 3, 1)), (0, -1, width))
            for branch, width in zip((self.classes, self.boxes, self.coefs), self._widths)
        )
