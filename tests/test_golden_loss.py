"""The losses alone, on crafted head outputs, against the figures of the reference.

``inside``: ground-truth masks within their boxes; ``wide``: with pixels outside the crop, which
the reference charges 100 each.
"""
import mxnet as mx
import numpy as np
import pytest
from golden_losses import (
    check_mask_iou,
    check_matches,
    check_picks,
    check_terms,
    l2,
    loss_of,
    nd,
)
from golden_support import (
    classes_of,
    configuration,
    fill,
    ground_truth,
    load,
    loss_inputs,
    names_of,
    reference_parameters,
)

from yolact_mx.models.mask_iou import MaskIoUNet

# The reference's own float32 noise of a loss is about 1e-7
LOSS = 1e-6
# Cross-entropies of single anchors, outputs of the mask-IoU net
PART = 3e-6
# Gradients of single elements: sums over some thousand pixels, against the largest element
GRADIENT = 3e-6


def pytest_generate_tests(metafunc):
    if "file" in metafunc.fixturenames:
        metafunc.parametrize("file", names_of(metafunc, "loss_unit*.npz"), scope="module")


@pytest.fixture(scope="module")
def figures(golden, file):
    return load(golden, file)


@pytest.fixture(scope="module")
def heads(figures, evaluate):
    """(class_logits, box_deltas, mask_coefs, proto, semantic_logits)."""
    made = evaluate(figures.meta["heads"])
    semantic = evaluate(figures.meta["segm"]).astype(np.float32)
    return (made["logits"], made["loc"], made["mask"],
            np.ascontiguousarray(made["proto"].transpose(0, 3, 1, 2)), semantic)


@pytest.fixture(scope="module")
def mask_iou(figures, weights_rule, config):
    if not figures.meta["maskiou_weights"]:
        return None
    net = MaskIoUNet(classes_of(figures.meta["config"]), config.model.mask_iou)
    net.initialize()
    fill(net, weights_rule, "mask_iou.")
    return net


@pytest.fixture(scope="module")
def config(figures):
    return configuration(figures.meta["config"], figures.meta["max_size"])


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
def test_losses_and_gradients(figures, evaluate, config, heads, mask_iou, hybrid):
    cases = figures.meta["gts"]
    assert cases
    loss = loss_of(config, heads[0].shape[2] - 1, mask_iou)
    if hybrid:
        loss.hybridize()
    for case, call in cases.items():
        key = case + "/"
        batch = ground_truth(config, *evaluate(call))
        check_matches(figures, batch, key)
        positive = np.flatnonzero(batch["match"] > 0)
        figures.exact("matches", positive, figures[key + "pos_flat_idx"])
        inputs = [nd(head) for head in heads]
        for array in inputs:
            array.attach_grad()
        with mx.autograd.record():
            terms = loss(*inputs, *loss_inputs(batch))
            total = mx.nd.add_n(*terms)
        total.backward()
        check_terms(figures, key + "loss/", loss.terms, terms, LOSS)
        gradients = dict(zip(("conf", "loc", "mask", "proto", "segm"),
                             (array.grad.asnumpy() for array in inputs)))
        gradients["proto"] = gradients["proto"].transpose(0, 2, 3, 1)
        for name, gradient in gradients.items():
            figures.tensor("gradients", gradient, key + "grad_" + name, GRADIENT)
            figures.close("gradients", l2(gradient),
                          figures["{}grad_{}/norm".format(key, name)], GRADIENT)
        for name in ("mask", "loc"):
            rows = gradients[name].reshape(-1, gradients[name].shape[-1])[positive]
            figures.close("gradients", rows, figures["{}grad_{}/at_pos".format(key, name)],
                          GRADIENT)
        if mask_iou is not None:
            parameters = reference_parameters(mask_iou, "mask_iou.")
            names = figures[key + "maskiou/grad_names"].tolist()
            assert sorted(names) == sorted(parameters)
            norms = [l2(parameters[name].grad().asnumpy()) for name in names]
            expected = figures[key + "maskiou/grad_norm"]
            figures.close("gradients", norms, expected, GRADIENT, scale=expected)


def test_what_the_losses_are_made_of(figures, evaluate, config, heads, mask_iou):
    for case, call in figures.meta["gts"].items():
        batch = ground_truth(config, *evaluate(call))
        check_picks(figures, case + "/ohem/", heads[0], batch, config.loss.negative_ratio, PART)
        if mask_iou is not None:
            check_mask_iou(figures, case + "/maskiou/", config, mask_iou, heads[2], heads[3], batch,
                           PART)
