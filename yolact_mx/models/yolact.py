"""YOLACT and YOLACT++ as one HybridBlock: the file to open first.

backbone -> FPN -> { protonet on P3, one shared prediction head on P3..P7 }.
An instance mask is sigmoid(prototypes . mask coefficients), cropped to its box.
"""

import warnings
from collections import namedtuple

import mxnet as mx
from mxnet.gluon import HybridBlock

from ..anchors import input_sizes
from ..errors import ConfigError
from ..input_shapes import input_shapes
from ..nn.deform_conv import default_sampler
from .backbone import build_backbone, load_backbone
from .fpn import FPN
from .head import PredictionHead
from .layers import conv
from .mask_iou import MaskIoUNet, check_depth
from .protonet import Protonet

# What the network returns.  Hybridized blocks return plain tuples: wrap outside the graph,
# `Predictions(*net(images))`.  semantic_logits is there in training networks only.
Predictions = namedtuple("Predictions", "class_logits box_deltas mask_coefs proto semantic_logits")
Predictions.__new__.__defaults__ = (None,)


class Yolact(HybridBlock):
    """The network.

    Parameters
    ----------
    backbone : HybridBlock
        (B, 3, H, W) -> C3, C4, C5.
    fpn, protonet, head : HybridBlock
    semantic : HybridBlock or None
        P3 -> (B, C, H3, W3) logits of the auxiliary semantic segmentation (YOLACT section
        4); only built for training, so exported graphs do not carry it.
    mask_iou : HybridBlock or None
        Mask re-scoring net of YOLACT++.  It is not part of ``forward``: the loss and the
        detector, which have the masks, call it; here its parameters are saved and trained.

    forward: images (B, 3, H, W), normalised RGB ->
        class_logits (B, N, C + 1), box_deltas (B, N, 4), mask_coefs (B, N, P) in -1..1,
        proto (B, P, Hp, Wp) >= 0 [, semantic_logits (B, C, H3, W3)].
    """

    def __init__(self, backbone, fpn, protonet, head, semantic=None, mask_iou=None, **kwargs):
        super().__init__(**kwargs)
        self.backbone, self.fpn, self.protonet, self.head = backbone, fpn, protonet, head
        self.semantic, self.mask_iou = semantic, mask_iou

    def hybrid_forward(self, F, images):
        levels = self.fpn(*self.backbone(images))
        logits, deltas, coefs = (
            F.concat(*parts, dim=1) for parts in zip(*[self.head(level) for level in levels])
        )
        outputs = (logits, deltas, coefs, self.protonet(levels[0]))
        return outputs + (self.semantic(levels[0]),) if self.semantic is not None else outputs


def build_yolact(config, num_classes, ctx=None, training=False, freeze_bn=False, dcn_sampler=None):
    """The network of a configuration, initialised.

    Parameters
    ----------
    config : Config
    num_classes : int
        Foreground classes.
    ctx : Context or list of Context
    training : bool
        With the semantic branch, and gradients.
    freeze_bn : bool
        BatchNorm with fixed statistics and parameters.
    dcn_sampler : str, optional
        Sampler of the deformable convolutions (nn/deform_conv.py); by default the fastest
        that works on ``ctx``.

    Raises
    ------
    ConfigError
        Unknown backbone, or an input too small for the mask-IoU net.
    """
    ctx = ctx or mx.cpu()
    contexts = ctx if isinstance(ctx, (list, tuple)) else [ctx]
    model = config.model
    if dcn_sampler is None and any(model.backbone.dcn_blocks):
        dcn_sampler = default_sampler(contexts, training)
    check_input(config)
    backbone = build_backbone(model.backbone, freeze_bn, dcn_sampler)
    channels = model.fpn.channels
    per_cell = len(config.anchors.scales[0]) * len(config.anchors.ratios)
    net = Yolact(
        backbone=backbone,
        fpn=FPN(_output_channels(backbone), channels, training),
        protonet=Protonet(
            channels,
            model.protonet.channels,
            model.protonet.prototypes,
            model.protonet.conv,
            training,
        ),
        head=PredictionHead(
            channels,
            model.head.channels,
            per_cell,
            num_classes,
            model.protonet.prototypes,
            model.head.conv,
        ),
        semantic=conv(num_classes, channels, 1, activation=None) if training else None,
        mask_iou=_mask_iou(config, num_classes),
    )
    if not training:
        net.collect_params().setattr("grad_req", "null")  # their memory is that of the weights
    initialize(net, contexts)
    if training and model.backbone.weights:
        load_backbone(net.backbone, model.backbone.weights, model.backbone.name, contexts)
    return net


def initialize(net, contexts):
    """Xavier-uniform weights and zero biases; then one small pass settles deferred shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GluonCV registers some parameters twice
        net.initialize(mx.init.Xavier(), ctx=contexts)
    net(mx.nd.zeros((1, 3, 64, 64), ctx=contexts[0]))


def check_input(config, shapes=None):
    """Refuse inputs (H, W) that the network cannot take; by default those of the configuration."""
    if config.input.size < 64:
        raise ConfigError(
            "key 'input.size': expected at least 64 pixels, found {}".format(config.input.size)
        )
    for image_size in shapes or input_shapes(config):
        _, _, proto_size = input_sizes(config, image_size)
        check_depth(config.model.mask_iou, proto_size, image_size)


def _mask_iou(config, num_classes):
    channels = config.model.mask_iou
    if not channels:
        return None
    return MaskIoUNet(num_classes, channels, straight_through=not config.reference_compatible)


def _output_channels(backbone):
    """Channels of C3, C4, C5, found by shape inference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deferred parameters are expected here
        outputs = mx.sym.Group(list(backbone(mx.sym.var("data"))))
        _, shapes, _ = outputs.infer_shape(data=(1, 3, 64, 64))
    return [shape[1] for shape in shapes]
