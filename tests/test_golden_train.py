"""Training against the figures of the reference: losses, all gradients, steps of SGD.

BatchNorm frozen and in training; ``sgd`` with its changing rate is compared by the schedule alone
(test_golden_schedule.py): MXNet keeps the rate inside the momentum, PyTorch applies it at use, and
the two agree at a constant rate only.

Tolerances are about ten times what the reference differs from itself in float64.
"""
import mxnet as mx
import numpy as np
import pytest
from golden_losses import (
    TERMS,
    check_mask_iou,
    check_matches,
    check_picks,
    check_terms,
    l2,
    loss_of,
)
from golden_support import (
    classes_of,
    configuration,
    count_values,
    fill,
    ground_truth,
    load,
    loss_inputs,
    names_of,
    network,
    reference_parameters,
    statistics,
)
from mxnet import autograd, gluon

from yolact_mx.models import Predictions
from yolact_mx.train_step import TrainStep, training_network

# Noise of the losses: 2.4e-7; with batch statistics, which amplify it, 1.5e-6
LOSS = {"frozen": 3e-6, "bntrain": 2e-5}
# Cross-entropies of single anchors, masks of single instances
PART = {"frozen": 1e-5, "bntrain": 1e-4}
# Gradients.  An activation on the other side of 0 changes those below it: the reference's noise is
# 5e-6 to 1e-5 for the median parameter but 4.5e-4 at worst, with batch statistics 1e-5 and 7.6e-4,
# and there behind deformable convolutions 1.8e-4 and 1.1e-2.  So one bound is for 95 % of the
# parameters' norms, and one for all.
GRADIENT = {"frozen": (1e-4, 5e-3), "bntrain": (5e-4, 8e-3), "bntrain, DCN": (5e-3, 1e-1)}
# Of the way that a parameter goes in ten steps: of 90 % of them, and of all
STEP = (3e-3, 3e-2)
# Of half of the norms after ten steps: weight decay alone has changed them all by 5e-6
NORM = 1.5e-6
# Outputs and statistics after a forward pass with batch statistics
OUTPUT = 1e-4


def pytest_generate_tests(metafunc):
    if "file" in metafunc.fixturenames:
        metafunc.parametrize("file", names_of(metafunc, "train_*.npz"), scope="module")


class Case:
    """Inputs of a file, and networks for them."""

    def __init__(self, figures, evaluate, weights_rule):
        meta = figures.meta
        self.num_classes = classes_of(meta["config"])
        self.config = configuration(meta["config"], meta["max_size"])
        self.config.loss.masks_to_train = meta["masks_to_train"]
        self.images = mx.nd.array(evaluate(meta["images"]))
        self.truth = evaluate(meta["gts"])
        self.batch = ground_truth(self.config, *self.truth)
        self.weights_rule = weights_rule

    def network(self, freeze_bn):
        return network(self.config, self.num_classes, self.weights_rule, training=True,
                       freeze_bn=freeze_bn)

    def loss(self, net, **changes):
        return loss_of(self.config, self.num_classes, net.mask_iou, **changes)


class Pass:
    """A forward and a backward pass; the gradients of the total lie in the parameters.

    block: what is run in place of ``net``, with its parameters.
    """

    def __init__(self, case, net, block=None):
        self.net, loss = net, case.loss(net)
        with autograd.record():
            outputs = (block or net)(case.images)
            self.terms = loss(*outputs, *loss_inputs(case.batch))
            total = mx.nd.add_n(*self.terms)
        total.backward(retain_graph=True)
        self.names, self.found = loss.terms, Predictions(*outputs)
        self.parameters = reference_parameters(net)
        self.gradients = {name: parameter.grad().asnumpy() for name, parameter
                          in self.parameters.items() if parameter.grad_req != "null"}


@pytest.fixture(scope="module")
def figures(golden, file):
    return load(golden, file)


@pytest.fixture(scope="module")
def case(figures, evaluate, weights_rule):
    return Case(figures, evaluate, weights_rule)


@pytest.fixture(scope="module")
def frozen(case):
    net = case.network(freeze_bn=True)
    return Pass(case, net, training_network(net))


def test_ground_truth(figures, case):
    targets, masks, crowds = case.truth
    batch = case.batch
    check_matches(figures, batch)
    for image, (target, mask) in enumerate(zip(targets, masks)):
        figures.exact("ground truth", target, figures["gt{}".format(image)])
        figures.exact("ground truth", mask.sum((1, 2)), figures["gt{}_mask_area".format(image)])
        objects = len(target) - crowds[image]
        for key, name in (("proto", "gt_masks"), ("segm", "gt_semantic")):
            figures.exact("ground truth", batch[name][image].sum((1, 2))[:objects],
                          figures["gt{}_{}_area".format(image, key)])
        match = batch["match"][image]
        figures.exact("matches", np.flatnonzero(match > 0),
                      figures["pos{}/prior_idx".format(image)])
        figures.exact("matches", match[match > 0] - 1, figures["pos{}/gt_idx".format(image)])


def test_frozen(figures, case, frozen):
    check_losses(figures, "frozen", case, frozen)
    check_gradients(figures, "frozen", frozen)


def test_gradients_by_term(figures, frozen):
    key = "frozen/grad_by_loss/"
    if key + "names" not in figures:
        return
    names = figures[key + "names"].tolist()
    for letter in figures.under(key):
        if letter not in TERMS:
            continue
        for parameter in frozen.parameters.values():
            parameter.zero_grad()
        frozen.terms[frozen.names.index(TERMS[letter])].backward(retain_graph=True)
        # a parameter that the term does not reach, or that is not there, has no norm
        norms = [l2(frozen.parameters[name].grad().asnumpy()) if name in frozen.parameters else 0
                 for name in names]
        expected = np.nan_to_num(figures[key + letter])
        figures.close("gradients by term", norms, expected, GRADIENT["frozen"][1],
                      scale=np.maximum(expected, 1e-3 * expected.max()), what=letter)


def test_subset_of_the_masks(figures, case, frozen):
    """``perm_identity_<n>``: the first n positives of an image stand for all."""
    counts = figures.numbers("perm_identity_")
    assert counts
    for count in counts:
        loss = case.loss(frozen.net, masks_to_train=count)
        terms = loss(*frozen.found, *loss_inputs(case.batch))
        check_terms(figures, "perm_identity_{}/loss/".format(count), loss.terms, terms,
                    LOSS["frozen"])


def test_batch_norm_in_training(figures, case):
    if "bntrain/loss/total" not in figures:
        return
    net = case.network(freeze_bn=False)
    before, counts = statistics(net), {}
    count_values(net, counts)
    done = Pass(case, net)
    check_losses(figures, "bntrain", case, done)
    check_gradients(figures, "bntrain", done)
    found = done.found
    for key, array in (("loc", found.box_deltas), ("conf", found.class_logits),
                       ("mask", found.mask_coefs), ("proto", found.proto.transpose((0, 2, 3, 1))),
                       ("segm", found.semantic_logits)):
        figures.tensor("outputs", array.asnumpy(), "bntrain/out/" + key, OUTPUT)
    check_statistics(figures, before, statistics(net), counts)


@pytest.mark.parametrize("mode, growth", [("sgd_const", 1.8), ("sgd_1e3", 6.0)])
def test_sgd(figures, case, frozen, mode, growth):
    """Step by step, at a constant rate.  Each lets the noise grow, as it does in the reference: to
    6e-5 of the loss after nine steps of ``sgd_const``, to 3e-4 after four of ``sgd_1e3``; a mask
    pixel that crosses its threshold moves a small term by more of itself than of the loss."""
    if mode + "/losses" not in figures:
        return
    net, settings = frozen.net, case.config.train
    fill(net, case.weights_rule)
    rates = figures[mode + "/lr"]
    assert (rates == rates[0]).all()
    before = {name: parameter.data().asnumpy() for name, parameter in frozen.parameters.items()}
    graph = TrainStep(training_network(net), case.loss(net))
    graph.hybridize(static_alloc=True)
    updater = gluon.Trainer(net.collect_params(), "sgd", {
        "learning_rate": rates[0], "momentum": settings.momentum, "wd": settings.weight_decay})
    inputs = [case.images] + loss_inputs(case.batch)
    order = [graph.loss.terms.index(TERMS[letter]) for letter in figures[mode + "/keys"].tolist()
             if letter != "total"]
    with_final = mode + "/final_names" in figures
    expected = figures[mode + "/losses"]
    tolerances = LOSS["frozen"] * growth ** np.arange(len(expected))
    expected = expected[tolerances < 1e-3]  # afterwards the noise decides
    for step, (row, tolerance) in enumerate(zip(expected, tolerances)):
        with autograd.record():
            total, terms = graph(*inputs)
        if with_final or step < len(expected) - 1:
            total.backward()
            updater.step(1)
        losses = np.append(terms.asnumpy()[order], total.asscalar())
        figures.close(mode, losses, row, tolerance, row[-1], "step {}".format(step))
    if with_final:
        check_final(figures, mode + "/", before, frozen.parameters)


def check_losses(figures, mode, case, done):
    check_terms(figures, mode + "/loss/", done.names, done.terms, LOSS[mode])
    check_picks(figures, mode + "/ohem/", done.found.class_logits.asnumpy(), case.batch,
                case.config.loss.negative_ratio, PART[mode])
    if mode + "/maskiou/target" in figures:
        check_mask_iou(figures, mode + "/maskiou/", case.config, done.net.mask_iou,
                       done.found.mask_coefs.asnumpy(), done.found.proto.asnumpy(), case.batch,
                       PART[mode])


def check_gradients(figures, mode, done):
    key = mode + "/grad/"
    if key + "names" not in figures:
        return
    deformable = any("conv_offset_mask" in name for name in done.gradients)
    most, worst = GRADIENT[mode + ", DCN" if deformable and mode == "bntrain" else mode]
    names = figures[key + "names"].tolist()
    assert not set(figures[key + "none_names"].tolist()) & set(done.gradients)
    assert sorted(names) == sorted(done.gradients)
    errors = []
    for name, norm, total in zip(names, figures[key + "norm"], figures[key + "sum"]):
        gradient = done.gradients[name]
        if mode == "bntrain" and name.endswith("conv2.bias"):
            # a bias before batch statistics moves nothing: both norms are rounding
            weight = done.gradients[name.replace("bias", "weight")]
            assert max(l2(gradient), norm) < 1e-4 * l2(weight), name
            continue
        errors.append(abs(l2(gradient) - norm) / max(norm, 1e-30))
        figures.close("gradients, " + mode, l2(gradient), norm, worst, what=name)
        figures.close("gradients, " + mode, gradient.sum(dtype=np.float64), total, worst,
                      scale=norm * gradient.size ** 0.5, what=name)
        if key + "samp/" + name in figures:
            samples = figures[key + "samp/" + name]
            flat = gradient.reshape(-1)[::int(figures[key + "step/" + name])][:len(samples)]
            figures.close("gradients, " + mode, flat, samples, worst,
                          scale=np.abs(gradient).max(), what=name)
    typical = np.percentile(errors, 95)
    figures.count("gradients, {}, 95 %".format(mode), len(errors), typical, most)
    assert typical <= most


def check_statistics(figures, before, after, counts):
    """MXNet averages the biased variance, PyTorch the unbiased one: N / (N - 1) of it."""
    for name, mean, variance in zip(*(figures["bntrain/bn/" + key].tolist() for key in
                                      ("names", "running_mean_sum", "running_var_sum"))):
        key = name + ".running_mean"
        figures.close("statistics", after[key].sum(dtype=np.float64), mean, OUTPUT,
                      scale=np.abs(after[key]).sum(dtype=np.float64), what=key)
        key = name + ".running_var"
        kept = 0.9 * before[key].astype(np.float64)
        unbiased = kept + (after[key] - kept) * counts[key] / (counts[key] - 1)
        figures.close("statistics", unbiased.sum(), variance, OUTPUT, what=key)


def check_final(figures, key, before, parameters):
    """Parameters at the end of a trajectory, and how far they went."""
    most, worst = STEP
    ways, norms = [], []
    for name, norm, moved in zip(*(figures[key + part].tolist() for part in
                                   ("final_names", "final_norm", "delta_norm"))):
        value = parameters[name].data().asnumpy()
        way = l2(value - before[name])
        ways.append(abs(way - moved) / max(moved, 1e-30))
        norms.append(abs(l2(value) - norm) / norm)
        figures.close("steps", way, moved, worst, what=name)
        if key + "final_samp/" + name in figures:
            samples = value.reshape(-1)[::max(1, value.size // 8)][:8]
            scale = np.abs(value - before[name]).max() + 1e-3 * np.abs(value).max()
            expected = figures[key + "final_samp/" + name]
            figures.close("parameters", samples, expected, worst, scale, name)
    for kind, share, errors, bound in (("steps, 90 %", 90, ways, most),
                                       ("norms, 50 %", 50, norms, NORM)):
        typical = np.percentile(errors, share)
        figures.count(kind, len(errors), typical, bound)
        assert typical <= bound, kind
