"""Ways to take the rows of 100 positive anchors out of a (B, N, 32) array, side by side.

    python benchmarks/selection.py                   the table of docs/selection.md
    python benchmarks/selection.py --training-step   share of a training step
"""
import argparse

from timing import interleaved  # first: it prepares the process for MXNet

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from yolact_mx.nn import gap_shift_topk, select_positives

K, CHANNELS = 100, 32


class Ours(gluon.HybridBlock):
    def __init__(self, random):
        super().__init__()
        self._random = random

    def hybrid_forward(self, F, indicator, data):
        return select_positives(F, indicator, data, k=K, random=self._random)[2]


class GapShift(gluon.HybridBlock):
    """The original text: shift the values of every channel, unsorted top-k, shift back."""

    def hybrid_forward(self, F, indicator, data):
        return gap_shift_topk(F, indicator, data, K)


class BooleanMask(gluon.HybridBlock):
    """Right only if every image has exactly K positives; fails in a graph with none at all."""

    def hybrid_forward(self, F, indicator, data):
        rows = F.contrib.boolean_mask(F.reshape(data, shape=(-3, 0)), F.reshape(indicator, (-1,)))
        return F.reshape(rows, shape=(-1, K, CHANNELS))


class OneHotProduct(gluon.HybridBlock):
    """A (K, N) matrix of ones and zeros per image, multiplied with the data."""

    def __init__(self, num_anchors):
        super().__init__()
        self._depth = num_anchors

    def hybrid_forward(self, F, indicator, data):
        _, index = select_positives(F, indicator, k=K, random=False)
        return F.batch_dot(F.one_hot(index, depth=self._depth), data)


def imperative_indexing(indicator, data):
    """Fancy indexing outside any graph: the indices make a round trip through NumPy."""
    image, anchor = np.nonzero(indicator.asnumpy())
    rows = nd.gather_nd(data, nd.array(np.stack([image, anchor]), dtype="int32"))
    return rows.reshape((len(indicator), K, CHANNELS))


def forms(num_anchors):
    blocks = {"select_positives(random=False)": Ours(False),
              "select_positives": Ours(True),
              "gap shift of the values": GapShift(),
              "contrib.boolean_mask": BooleanMask(),
              "one_hot product": OneHotProduct(num_anchors)}
    for block in blocks.values():
        block.hybridize(static_alloc=True, static_shape=True)
    return dict(blocks, **{"imperative indexing": imperative_indexing})


def example(batch, num_anchors):
    """Indicator with exactly K ones per image, values around 1e4, the rows to find."""
    rng = np.random.RandomState(0)
    indicator = np.zeros((batch, num_anchors), "float32")
    for row in indicator:
        row[rng.choice(num_anchors, K, replace=False)] = 1
    data = (1e4 * rng.standard_normal((batch, num_anchors, CHANNELS))).astype("float32")
    return indicator, data, data[indicator == 1].reshape(batch, K, CHANNELS)


def forward_backward(form, indicator, data):
    with autograd.record():
        rows = form(indicator, data)
    rows.backward()


def compare(batch, num_anchors, rounds):
    a, b, wanted = example(batch, num_anchors)
    indicator, data = nd.array(a), nd.array(b)
    data.attach_grad()
    table = forms(num_anchors)
    errors = {}
    for name, form in table.items():
        found = form(indicator, data).asnumpy()
        errors[name] = abs(found - wanted).max()
    forward = interleaved({name: lambda form=form: form(indicator, data)
                           for name, form in table.items()}, rounds)
    both = interleaved({name: lambda form=form: forward_backward(form, indicator, data)
                        for name, form in table.items()}, rounds)
    print("\nN = {}, batch {}, {} channels, k = {}".format(num_anchors, batch, CHANNELS, K))
    print("{:32}{:>10}{:>14}{:>16}".format("", "max error", "forward ms", "with backward"))
    for name in table:
        print("{:32}{:10.1e}{:14.2f}{:16.2f}".format(
            name, errors[name], 1e3 * forward[name], 1e3 * both[name]))


def training_step_share(batch, rounds):
    """Time of the selection inside the loss, as a share of a step of YOLACT ResNet-50."""
    from yolact_mx.config import load_config
    from yolact_mx.losses import build_loss
    from yolact_mx.models.yolact import build_anchors, build_yolact, input_sizes
    from yolact_mx.train_step import TrainStep, batch_totals

    config = load_config("yolact_resnet50")
    net = build_yolact(config, num_classes=80, training=True, freeze_bn=True)
    loss = build_loss(config, net, 80)
    loss.collect_params(".*anchors").initialize()
    step = TrainStep(net, loss)
    step.hybridize(static_alloc=True, static_shape=True)
    (height, width), levels, proto = input_sizes(config)
    num_anchors = len(build_anchors(config))
    match = np.zeros((batch, num_anchors), "int32")
    match[:, ::num_anchors // 150] = 1                                      # about 150 positives
    boxes = np.tile(np.array([0.2, 0.2, 0.8, 0.8], "float32"), (batch, 1, 1))
    masks = [np.ones((batch, 1) + size, "uint8") for size in (proto, levels[0])]
    inputs = [nd.random.normal(shape=(batch, 3, height, width)), nd.array(match, dtype="int32"),
              nd.array(boxes), nd.zeros((batch, 1))]
    inputs += [nd.array(mask, dtype="uint8") for mask in masks] + [batch_totals(match)]
    positive = nd.array(match > 0)
    data = nd.random.normal(shape=(batch, num_anchors, CHANNELS))
    data.attach_grad()
    select = Ours(True)
    select.hybridize(static_alloc=True, static_shape=True)

    def train():
        with autograd.record():
            total, _ = step(*inputs)
        total.backward()

    seconds = interleaved({"step": train,
                           "selection": lambda: forward_backward(select, positive, data)}, rounds)
    print("batch {}: step {:.2f} s, selection {:.1f} ms = {:.2f} % of the step".format(
        batch, seconds["step"], 1e3 * seconds["selection"],
        100 * seconds["selection"] / seconds["step"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anchors", type=int, nargs="+", default=[19248, 57744])
    parser.add_argument("--batch", type=int, help="8, or 2 with --training-step")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--training-step", action="store_true")
    options = parser.parse_args()
    mx.random.seed(0)
    if options.training_step:
        training_step_share(options.batch or 2, options.rounds)
        return
    for num_anchors in options.anchors:
        compare(options.batch or 8, num_anchors, options.rounds)


if __name__ == "__main__":
    main()
