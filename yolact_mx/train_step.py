"""Network and loss as one static graph, with a cheaper twin of the network in it."""

import logging

import mxnet as mx
from mxnet.gluon import HybridBlock

from .graph_passes import INPUT, fold_batchnorm, symbol_block, to_16_bits
from .losses import build_loss
from .nn.native_ops import processor

logger = logging.getLogger(__name__)


class TrainStep(HybridBlock):
    """Network and loss as one static graph: images and ground truth in, loss terms out.

    forward: images and the loss's inputs after the network's outputs ->
        total (1,), terms (len(loss.terms),).
    """

    def __init__(self, net, loss, **kwargs):
        super().__init__(**kwargs)
        self.net, self.loss = net, loss

    def hybrid_forward(self, F, images, match, gt_boxes, gt_labels, gt_masks, gt_semantic, totals):
        terms = self.loss(
            *self.net(images), match, gt_boxes, gt_labels, gt_masks, gt_semantic, totals
        )
        terms = F.concat(*terms, dim=0)
        return F.reshape(F.sum(terms), (1,)), F.BlockGrad(terms)


def build_step(config, net, num_classes, contexts, dtype="float32", image_size=None):
    """The :class:`TrainStep` of a configuration for an input (H, W), by default the square.

    dtype: of the network's convolutions, see :func:`training_network`.
    """
    loss = build_loss(config, net, num_classes, image_size)
    loss.collect_params(".*anchors").initialize(ctx=contexts)
    step = TrainStep(training_network(net, dtype), loss)
    # static memory of the graphs of several shapes would add up
    step.hybridize(static_alloc=not config.input.keep_ratio)
    return step


def training_network(net, dtype="float32"):
    """A network of fewer and cheaper operators that computes what ``net`` does, and shares its
    parameters.

    BatchNorm with fixed statistics becomes part of the convolution before it.

    Parameters
    ----------
    net : Yolact
        Initialised; which of its parameters are trained is settled.
    dtype : {'float32', 'bfloat16', 'float16'}
        Of the convolutions' arithmetic.  Weights, and all outside the network, are in float32.

    Returns
    -------
    SymbolBlock
        images (B, 3, H, W), normalised -> what ``net`` returns.
    """
    symbol = fold_batchnorm(mx.sym.Group(list(net(mx.sym.var(INPUT)))), training=True)
    if dtype != "float32":
        # bfloat16 gradients of a stride-2 layer are undefined on a map of one column (oneDNN),
        # which P6 of a small picture is
        symbol = to_16_bits(symbol, dtype, exact=net.fpn.down7.collect_params().keys())
    return symbol_block(symbol, net.collect_params())


def training_dtype(settings, contexts):
    """What convolutions are trained in: float32 or, with ``train.amp``, 16 bits where they help.

    settings : TrainConfig
    contexts : list of Context
    """
    if not settings.amp:
        return "float32"
    if all(context.device_type == "gpu" for context in contexts):
        return "float16"
    if "avx512_bf16" in processor():
        return "bfloat16"
    logger.warning("train.amp: this processor has no bfloat16 arithmetic; training is in float32")
    return "float32"


def batch_totals(match):
    """``totals`` of a step on one device: (B, N) NumPy matches -> (2,) NDArray."""
    return mx.nd.array([(match > 0).sum(), len(match)])
