"""What the golden tests share: configurations, networks with the rule's weights, ground truth,
and the comparison itself, which keeps the table that ``pytest --golden-table`` prints."""
import re
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import mxnet as mx
import numpy as np

from yolact_mx.config import load_config
from yolact_mx.convert import reference_name
from yolact_mx.data.sample import Sample
from yolact_mx.data.samples import TrainingSamples, collate
from yolact_mx.models import build_anchors, build_yolact
from yolact_mx.models.yolact import input_sizes

# (file, kind of figure) -> [figures compared, worst relative error, tolerance]
TABLE = OrderedDict()


class Figures:
    """One file of figures; every comparison is counted under a kind and a tolerance.

    Errors of a tensor are relative to its largest value: float noise does not shrink with the
    elements that happen to be near zero.
    """

    def __init__(self, name, npz, meta):
        self.name, self.npz, self.meta = name, npz, meta

    def __getitem__(self, key):
        return self.npz[key]

    def __contains__(self, key):
        return key in self.npz.files

    def numbers(self, prefix):
        """The n of all keys that begin with ``prefix + n``, ascending."""
        found = (re.match(prefix + r"(\d+)(?![\d.])", key) for key in self.npz.files)
        return sorted({int(match.group(1)) for match in found if match})

    def under(self, prefix):
        """What follows ``prefix`` in the keys, up to the next slash, in the order of the file."""
        rest = [key[len(prefix):].split("/")[0] for key in self.npz.files if key.startswith(prefix)]
        return list(OrderedDict.fromkeys(rest))

    def count(self, kind, number, error, tolerance):
        row = TABLE.setdefault((self.name, kind), [0, 0.0, tolerance])
        row[0] += number
        row[1], row[2] = max(row[1], float(error)), max(row[2], tolerance)

    def exact(self, kind, actual, expected):
        """Equal element by element."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        np.testing.assert_array_equal(actual, expected, err_msg="{}: {}".format(self.name, kind))
        self.count(kind, expected.size, 0, 0)

    def close(self, kind, actual, expected, tolerance, scale=None, what=""):
        """Equal within ``tolerance`` of the largest expected value, or of ``scale`` (an array: of
        each element)."""
        actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
        assert actual.shape == expected.shape, (self.name, kind, what)
        if not expected.size:
            return
        scale = np.abs(expected).max() if scale is None else scale
        error = (np.abs(actual - expected) / np.maximum(scale, 1e-30)).max()
        self.count(kind, expected.size, error, tolerance)
        assert error <= tolerance, "{}: {} {}: relative error {:.2g}, tolerance {:.2g}".format(
            self.name, kind, what, error, tolerance)

    def tensor(self, kind, actual, key, tolerance):
        """A tensor against its shape, samples, sum and sum of absolute values under ``key``."""
        actual = np.asarray(actual)
        assert actual.shape == tuple(self[key + "/shape"]), (self.name, key)
        samples = self[key + "/samp"]
        flat = actual.reshape(-1)
        self.close(kind, flat[::int(self[key + "/step"])][:len(samples)], samples, tolerance,
                   np.abs(flat).max(), key)
        total = float(self[key + "/asum"])
        flat = flat.astype(np.float64)
        self.close(kind, [flat.sum(), np.abs(flat).sum()], [self[key + "/sum"], total], tolerance,
                   total, key)


def names_of(metafunc, pattern):
    """Files of the set that match ``pattern``: a set has what it has, but not nothing."""
    folder = Path(metafunc.config.getoption("--golden-dir"))
    names = sorted(path.name for path in folder.glob(pattern))
    assert names, "no {} in {}".format(pattern, folder)
    return names


def load(golden, name):
    """``load(golden, "priors.npz")`` -> Figures."""
    return Figures(name, *golden(name))


def configuration(name, size):
    """Our configuration of the reference's ``name`` (with or without ``_config``)."""
    return load_config(re.sub("_config$", "", name), ["input.size={}".format(size)])


def classes_of(name):
    """Foreground classes of a configuration of the reference: COCO's or Pascal's."""
    return 20 if "pascal" in name else 80


def network(config, num_classes, weights_rule, **options):
    """A network with the weights of the rule."""
    net = build_yolact(config, num_classes, **options)
    fill(net, weights_rule)
    return net


_drawn = {}


def fill(net, weights_rule, prefix=""):
    """Give the parameters of a block the rule's weights; ``prefix``: where it is in the network."""
    parameters = {prefix + name: parameter
                  for name, parameter in net._collect_params_with_prefix().items()}
    names = {reference_name(name): parameter.shape for name, parameter in parameters.items()}
    for ours, parameter in parameters.items():
        name = reference_name(ours)
        key = (weights_rule.__file__, name, parameter.shape)
        if key not in _drawn:  # networks have most of their names and shapes in common
            _drawn[key] = weights_rule.value(name, parameter.shape, names)
        parameter.set_data(mx.nd.array(_drawn[key]))


def reference_parameters(net, prefix=""):
    """{name in the reference: Parameter}; ``prefix``: where the block is in the network."""
    return {reference_name(prefix + name): parameter
            for name, parameter in net._collect_params_with_prefix().items()}


def statistics(net):
    """{name in the reference: running statistic}."""
    return {name: parameter.data().asnumpy() for name, parameter
            in reference_parameters(net).items() if "running_" in name}


def count_values(net, counts):
    """Fill ``counts``: values per channel that each BatchNorm averages over, by its parameter."""
    names = {parameter: name for name, parameter in reference_parameters(net).items()}

    def watch(block):
        if isinstance(block, mx.gluon.nn.BatchNorm):
            block.register_forward_hook(lambda block, inputs, _: counts.update(
                {names[block.running_var]: inputs[0].size // inputs[0].shape[1]}))
    net.apply(watch)


def ground_truth(config, targets, masks, num_crowds):
    """The batch that the loader makes of the rule's ground truth; dict of NumPy arrays.

    targets: per image (n, 5) xyxy relative and label; masks (n, S, S); crowds last.
    """
    (side, _), levels, proto_size = input_sizes(config)
    images = [_sample(t, m, crowds, side) for t, m, crowds in zip(targets, masks, num_crowds)]
    samples = TrainingSamples(images, config, build_anchors(config), levels, proto_size,
                              augmented=False)
    return collate([samples[0, i] for i in range(len(images))])


def _sample(target, masks, num_crowds, side):
    crowd = np.arange(len(target)) >= len(target) - num_crowds
    return Sample(image=np.zeros((side, side, 3), np.uint8),
                  boxes=target[:, :4].astype(np.float64) * side,  # exact both ways
                  labels=target[:, 4].astype(np.int64), masks=masks.astype(np.uint8), crowd=crowd,
                  has_mask=np.ones(len(target), bool), image_id=0)


def loss_inputs(batch):
    """What the loss takes after the network's outputs, as NDArrays."""
    names = ("match", "gt_boxes", "gt_labels", "gt_masks", "gt_semantic")
    arrays = [mx.nd.array(batch[name], dtype=batch[name].dtype) for name in names]
    return arrays + [mx.nd.array([(batch["match"] > 0).sum(), len(batch["match"])])]


def with_detect(config, **changes):
    """DetectConfig with some values replaced."""
    return replace(config.detect, **changes)


def coefficients(detect, batch_and_prototypes):
    """Mask coefficients of the detections, which a detector does not return.

    ``detect(proto)`` gives uncropped detections: with one pixel for each prototype, a mask is the
    sigmoid of the coefficients.  -> per image (D, P).
    """
    batch, prototypes = batch_and_prototypes
    proto = np.tile(np.eye(prototypes, dtype=np.float32)[None, :, :, None], (batch, 1, 1, 1))
    masks = [found.masks.reshape(-1, prototypes).astype(np.float64) for found in detect(proto)]
    return [np.log(mask / (1 - mask)) for mask in masks]
