"""Weights of the PyTorch reference (.pth) and of its backbones -> our parameters.

Every parameter of ours has one name in the reference's state_dict (:func:`reference_name`), so
a conversion takes what our network asks for and then accounts for whatever is left over.
"""
import copy
import pickle
import re
from collections import namedtuple

import mxnet as mx
import numpy as np

from .checkpoint import save_weights
from .errors import CheckpointError
from .models import build_yolact
from .models.backbone import RESNETS

CONVERTIBLE = RESNETS + ("darknet53",)

DARKNET_BLOCKS = (1, 2, 8, 8, 4)
# Positions of DarkNet-53's `features`: the stem, then per stage a stride-2 unit and the blocks
_DARKNET_UNITS = ["_preconv"] + ["layers.{}.{}".format(stage, block)
                                 for stage, blocks in enumerate(DARKNET_BLOCKS)
                                 for block in range(blocks + 1)]

# Our name, part by part -> the reference's.  Its lists run from C5 and P5 downwards, and its
# sequences count the activations as layers.
_RULES = [(re.compile(pattern), rename) for pattern, rename in (
    (r"^backbone\.layer(\d)\.", lambda m: "backbone.layers.{}.".format(int(m[1]) - 1)),
    (r"^backbone\.features\.(\d+)\.", lambda m: "backbone.{}.".format(_DARKNET_UNITS[int(m[1])])),
    (r"\.body\.([01])\.", lambda m: ".conv{}.".format(int(m[1]) + 1)),
    (r"^fpn\.lateral([345])\.", lambda m: "fpn.lat_layers.{}.".format(5 - int(m[1]))),
    (r"^fpn\.output([345])\.", lambda m: "fpn.pred_layers.{}.".format(5 - int(m[1]))),
    (r"^fpn\.down([67])\.", lambda m: "fpn.downsample_layers.{}.".format(int(m[1]) - 6)),
    (r"^protonet\.before\.(\d)\.", lambda m: "proto_net.{}.".format(2 * int(m[1]))),
    (r"^protonet\.after\.(\d)\.", lambda m: "proto_net.{}.".format(8 + 2 * int(m[1]))),
    (r"^head\.shared\.", lambda m: "prediction_layers.0.upfeature.0."),
    (r"^head\.boxes\.", lambda m: "prediction_layers.0.bbox_layer."),
    (r"^head\.classes\.", lambda m: "prediction_layers.0.conf_layer."),
    (r"^head\.coefs\.", lambda m: "prediction_layers.0.mask_layer."),
    (r"^semantic\.", lambda m: "semantic_seg_conv."),
    (r"^mask_iou\.layers\.(\d)\.", lambda m: "maskiou_net.maskiou_net.{}.".format(2 * int(m[1]))),
    (r"\.gamma$", lambda m: ".weight"),
    (r"\.beta$", lambda m: ".bias"))]

# What a file may hold beyond our parameters: BatchNorm's step counter, the classifier of a
# backbone, FPN levels above P7 and the first spelling of the backbone's layers, both of which
# old checkpoints carry and the reference drops as well.
_UNUSED = re.compile(r"num_batches_tracked$|^backbone\.fc\.|^fpn\.downsample_layers\.([2-9]|\d\d)\."
                     r"|^backbone\.layer\d")
_CLASSES = "prediction_layers.0.conf_layer.weight"
_SHOWN = 4

# arrays: {our name: float32 array}; mapped: [(reference name, our name, shape)];
# unused: names of the file that were left out
Conversion = namedtuple("Conversion", "arrays mapped unused")


def reference_name(name):
    """Name in the reference's state_dict of our parameter ``name``.

    >>> reference_name("backbone.layer2.0.bn1.gamma")
    'backbone.layers.1.0.bn1.weight'
    """
    for pattern, rename in _RULES:
        name = pattern.sub(rename, name)
    return name


def read_pth(path):
    """{name: float32 array} of a PyTorch state_dict file, in its old or its new format.

    Only tensors are unpickled; a file that holds anything else is refused, since unpickling
    arbitrary objects runs code.  Raises CheckpointError.
    """
    try:
        import torch
    except ImportError:
        raise CheckpointError("reading '{}' needs PyTorch: pip install 'yolact-mx[convert]'".format(
            path)) from None
    try:
        state = torch.load(str(path), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise CheckpointError("'{}' is not a file of PyTorch tensors only, so it is not read"
                              .format(path)) from None
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError("'{}' cannot be read: {}".format(
            path, (str(error).strip() or type(error).__name__).splitlines()[0])) from None
    if not isinstance(state, dict) or not state:
        raise CheckpointError("'{}': expected tensors by name (a state_dict), found {}".format(
            path, type(state).__name__))
    for name, value in state.items():
        if not torch.is_tensor(value):
            raise CheckpointError("'{}': expected a tensor under '{}', found {}".format(
                path, name, type(value).__name__))
    return {name: value.detach().float().numpy() for name, value in state.items()}


def is_backbone(state):
    """Whether ``state`` holds a classification network, not the whole of YOLACT."""
    return not any(re.match(r"(module\.)?backbone\.", name) for name in state)


def num_classes(state, anchors_per_cell):
    """Foreground classes of the head in ``state``; CheckpointError where it has none."""
    rows = [value.shape[0] for name, value in state.items() if name.endswith(_CLASSES)]
    if not rows:
        raise CheckpointError("'{}' is missing: not a checkpoint of the reference".format(_CLASSES))
    if rows[0] % anchors_per_cell or rows[0] < 2 * anchors_per_cell:
        raise CheckpointError(
            "'{}' has {} rows: expected a multiple of the configuration's {} anchors per cell, at "
            "least twice that".format(_CLASSES, rows[0], anchors_per_cell))
    return rows[0] // anchors_per_cell - 1


def convert(state, wanted):
    """Pick and rename what a network of ours needs.

    Parameters
    ----------
    state : {name: array}
        As :func:`read_pth` gives it: the whole network, or a backbone in the names of
        torchvision (``layer1.0.conv1.weight``) or of the reference (``layers.0.0...``).
    wanted : {name: shape}
        Our parameters (``_collect_params_with_prefix``), with ``backbone.`` in front.

    Returns
    -------
    Conversion

    Raises
    ------
    CheckpointError
        Names parameters that are missing, left over or of another shape.
    """
    state = _normalize(state)
    names = {ours: reference_name(ours) for ours in wanted}
    missing = ["{} {}".format(names[ours], tuple(wanted[ours]))
               for ours in wanted if names[ours] not in state]
    misshapen = ["{} {}, expected {}".format(names[ours], state[names[ours]].shape,
                                             tuple(wanted[ours]))
                 for ours in wanted if names[ours] in state
                 and state[names[ours]].shape != tuple(wanted[ours])]
    left = sorted(set(state) - set(names.values()))
    unknown = ["{} {}".format(name, state[name].shape)
               for name in left if not _UNUSED.search(name)]
    kinds = (("missing", missing), ("of another shape", misshapen), ("not part of it", unknown))
    faults = [_listed(kind, items) for kind, items in kinds if items]
    if faults:
        raise CheckpointError("the weights do not fit the configuration's network: " +
                              "; ".join(faults))
    arrays = {ours: np.ascontiguousarray(state[names[ours]], np.float32) for ours in wanted}
    mapped = [(names[ours], ours, tuple(wanted[ours])) for ours in wanted]
    return Conversion(arrays, mapped, left)


def convert_file(source, target, config):
    """Convert the .pth file ``source`` into a .params file for ``config``.

    A whole network becomes what ``load_weights`` reads, a backbone what the option
    ``model.backbone.weights`` names.

    Returns
    -------
    Conversion
    int
        Foreground classes; 0 for a backbone.
    """
    if config.model.backbone.name not in CONVERTIBLE:
        raise CheckpointError("the reference has no backbone '{}'; its weights convert to one of {}"
                              .format(config.model.backbone.name, ", ".join(CONVERTIBLE)))
    state = read_pth(source)
    config = copy.deepcopy(config)
    config.model.backbone.weights = ""
    if is_backbone(state):
        # an ImageNet classifier has no deformable convolutions; loading leaves theirs at zero
        config.model.backbone.dcn_blocks = [0, 0, 0, 0]
        classes, prefix, block = 0, "backbone.", build_yolact(config, 1).backbone
    else:
        classes = num_classes(state, len(config.anchors.scales[0]) * len(config.anchors.ratios))
        if config.classes and len(config.classes) != classes:
            raise CheckpointError("key 'classes': expected names for the {} classes of the "
                                  "weights, found {}".format(classes, len(config.classes)))
        prefix, block = "", build_yolact(config, classes, training=True)
    parameters = {prefix + name: parameter for name, parameter
                  in block._collect_params_with_prefix().items()}
    conversion = convert(state, {name: p.shape for name, p in parameters.items()})
    for name, parameter in parameters.items():
        parameter.set_data(mx.nd.array(conversion.arrays[name]))
    try:
        save_weights(block, target)
    except (mx.MXNetError, OSError) as error:
        raise CheckpointError("'{}' cannot be written: {}".format(
            target, str(error).strip().splitlines()[-1])) from None
    return conversion, classes


def _normalize(state):
    """Names as in the reference's whole network: no ``module.``, backbones under ``backbone.``."""
    state = {re.sub(r"^module\.", "", name): value for name, value in state.items()}
    if not is_backbone(state):
        return state
    return {"backbone." + re.sub(r"^layer(\d)\.", lambda m: "layers.{}.".format(int(m[1]) - 1),
                                 name): value for name, value in state.items()}


def _listed(kind, items):
    more = " and {} more".format(len(items) - _SHOWN) if len(items) > _SHOWN else ""
    return "{} {}: {}{}".format(len(items), kind, ", ".join(items[:_SHOWN]), more)
