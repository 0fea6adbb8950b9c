"""Backbones: GluonCV classification networks that return C3, C4, C5 (strides 8, 16, 32)."""

import logging
import sys

from mxnet.gluon import HybridBlock

from ..errors import CheckpointError, ConfigError
from ..nn.deform_conv import ModulatedDeformConv2D

log = logging.getLogger(__name__)

# Where the `features` of a sequential network end at strides 8, 16 and 32
FEATURE_CUTS = {
    "mobilenetv2_1.0": (9, 16, 20),  # before each stride-2 bottleneck; the 1280-d layer is left out
    "darknet53": (15, 24, 29),
}
# resnet10: one block a stage, for small data sets trained from scratch
RESNETS = tuple("resnet{}_v1b".format(depth) for depth in (10, 18, 34, 50, 101))


class ResNet(HybridBlock):
    """ResNet v1b (stride on the 3x3), named as in GluonCV and torchvision.

    forward: (B, 3, H, W) -> C3, C4, C5.
    """

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.conv1, self.bn1, self.relu, self.maxpool = (
            base.conv1,
            base.bn1,
            base.relu,
            base.maxpool,
        )
        self.layer1, self.layer2 = base.layer1, base.layer2
        self.layer3, self.layer4 = base.layer3, base.layer4

    def hybrid_forward(self, F, x):
        x = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        c3 = self.layer2(x)
        c4 = self.layer3(c3)
        return c3, c4, self.layer4(c4)

    def make_deformable(self, blocks, interval, sampler):
        """Replace the second convolution of chosen blocks by DCNv2 (YOLACT++ section 5.2).

        In a stage with n blocks of which the last d are wanted, block i is deformable if
        i + d >= n and, but for the first, i is a multiple of ``interval``.
        """
        for stage, count in zip((self.layer1, self.layer2, self.layer3, self.layer4), blocks):
            for i, block in enumerate(stage):
                if i + count >= len(stage) and i % interval == 0:
                    _replace_conv2(block, sampler)


class SequentialBackbone(HybridBlock):
    """A network whose ``features`` run one after the other; named as in GluonCV.

    forward: (B, 3, H, W) -> C3, C4, C5: the maps after ``cuts`` layers.
    """

    def __init__(self, features, cuts, **kwargs):
        super().__init__(**kwargs)
        self._cuts = cuts
        self.features = features[: cuts[-1]]

    def hybrid_forward(self, F, x):
        outputs = []
        for count, layer in enumerate(self.features, start=1):
            x = layer(x)
            if count in self._cuts:
                outputs.append(x)
        return tuple(outputs)


def build_backbone(config, freeze_bn=False, dcn_sampler="composed"):
    """The backbone of ``config`` (a BackboneConfig), not initialised.

    ``freeze_bn`` makes every BatchNorm use its running statistics and keep its parameters;
    ``dcn_sampler`` is the sampler of the deformable convolutions (nn/deform_conv.py).
    """
    known = RESNETS + tuple(FEATURE_CUTS)
    if config.name not in known:
        raise ConfigError(
            "key 'model.backbone.name': expected one of {}, found '{}'".format(
                ", ".join(known), config.name
            )
        )
    norm = {"use_global_stats": True} if freeze_bn else None
    base = gluoncv_network(config.name, norm_kwargs=norm)
    if config.name in RESNETS:
        backbone = ResNet(base)
        backbone.make_deformable(config.dcn_blocks, config.dcn_interval, dcn_sampler)
    elif any(config.dcn_blocks):
        raise ConfigError(
            "key 'model.backbone.dcn_blocks': {} has no residual stages whose 3x3 "
            "convolutions could be deformable; expected [0, 0, 0, 0], found {}".format(
                config.name, list(config.dcn_blocks)
            )
        )
    else:
        backbone = SequentialBackbone(base.features, FEATURE_CUTS[config.name])
    if freeze_bn:
        backbone.collect_params(".*(gamma|beta)").setattr("grad_req", "null")
    return backbone


def load_backbone(backbone, weights, name, ctx):
    """Load weights of the whole GluonCV network ``name``: a .params file, or ``imagenet``.

    Only the classifier of the file is left out, and only a DCNv2's bias and offset
    convolution may be missing from it (they keep their initial zeros).
    """
    if weights == "imagenet":
        weights = _download(name)
    import mxnet as mx

    try:
        found = set(mx.nd.load(str(weights)))
    except (mx.MXNetError, OSError) as error:
        raise CheckpointError(
            "backbone weights '{}' cannot be read: {}".format(
                weights, str(error).strip().splitlines()[-1]
            )
        ) from None
    wanted = {
        key
        for key in backbone._collect_params_with_prefix()
        if not (key.endswith("conv2.bias") or "conv_offset_mask" in key)
    }
    missing = sorted(wanted - found)
    if missing:
        raise CheckpointError(
            "backbone weights '{}': {} of the {} parameters of {} are missing, first {}".format(
                weights, len(missing), len(wanted), name, missing[0]
            )
        )
    backbone.load_parameters(str(weights), ctx=ctx, allow_missing=True, ignore_extra=True)
    log.info("backbone %s: %d parameters from %s", name, len(wanted), weights)


def gluoncv_network(name, **kwargs):
    """A GluonCV model by name.

    GluonCV refuses to be imported beside PyTorch 2 although it does not need it here, so
    PyTorch is hidden from it during the import.
    """
    hidden = None
    if "gluoncv" not in sys.modules:
        hidden = sys.modules.get("torch", False)
        sys.modules["torch"] = None
    try:
        from gluoncv import model_zoo
        from gluoncv.model_zoo.resnetv1b import BasicBlockV1b, ResNetV1b
    finally:
        if hidden is not None:
            del sys.modules["torch"]
            if hidden:
                sys.modules["torch"] = hidden
    if name == "resnet10_v1b":
        return ResNetV1b(BasicBlockV1b, [1, 1, 1, 1], name_prefix="resnetv1b_", **kwargs)
    return model_zoo.get_model(name, pretrained=False, **kwargs)


def _download(name):
    from gluoncv.model_zoo.model_store import get_model_file

    try:
        return get_model_file(name)
    except Exception as error:  # whatever the network stack raises
        raise CheckpointError(
            "ImageNet weights of {} cannot be downloaded ({}); pass a file as "
            "model.backbone.weights=FILE.params".format(name, type(error).__name__)
        ) from None


def _replace_conv2(block, sampler):
    plain = block.conv2
    settings = plain._kwargs
    deformable = ModulatedDeformConv2D(
        plain._channels,
        settings["kernel"][0],
        settings["stride"],
        settings["pad"],
        in_channels=plain._in_channels,
        sampler=sampler,
        prefix=plain.prefix,
    )
    block.conv2 = deformable
