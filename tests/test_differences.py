"""What docs/differences.md claims, as far as no other test shows it."""
import re
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from yolact_mx.config import load_config
from yolact_mx.data.sample import Sample
from yolact_mx.data.samples import TrainingSamples, collate
from yolact_mx.losses import YolactLoss
from yolact_mx.models import build_anchors
from yolact_mx.models.yolact import input_sizes
from yolact_mx.options import Config, LossConfig

ROOT = Path(__file__).resolve().parent.parent


def sample_of(boxes, side=550):
    masks = np.zeros((len(boxes), side, side), np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes):
        mask[y1:y2, x1:x2] = 1
    return Sample(image=np.zeros((side, side, 3), np.uint8),
                  boxes=np.array(boxes, np.float64).reshape(-1, 4),
                  labels=np.zeros(len(boxes), np.int64), masks=masks,
                  crowd=np.zeros(len(boxes), bool), has_mask=np.ones(len(boxes), bool))


def samples_of(boxes, augmented, *overrides):
    config = load_config("yolact_resnet50", list(overrides))
    _, levels, proto_size = input_sizes(config)
    return TrainingSamples([sample_of(boxes)], config, build_anchors(config), levels, proto_size,
                           augmented)[0, 0]


def loss_of_one_anchor(logit, box=(0.0, 0.0, 1.0, 1.0)):
    """-> (terms, gradient of the coefficient); its mask has ``logit`` everywhere."""
    loss = YolactLoss(np.array([[0.5, 0.5, 1, 1]], np.float32), (4, 4), 1, None,
                      LossConfig(masks_to_train=1))
    loss.initialize()
    coefs, proto = mx.nd.full((1, 1, 1), logit), mx.nd.ones((1, 1, 4, 4))
    coefs.attach_grad()
    with mx.autograd.record():
        terms = loss(mx.nd.zeros((1, 1, 2)), mx.nd.zeros((1, 1, 4)), coefs, proto,
                     mx.nd.zeros((1, 1, 2, 2)), mx.nd.ones((1, 1)), mx.nd.array([[box]]),
                     mx.nd.zeros((1, 1)), mx.nd.zeros((1, 1, 4, 4)),
                     mx.nd.zeros((1, 1, 2, 2)), mx.nd.array([1, 1]))
        total = mx.nd.add_n(*terms)
    total.backward()
    return dict(zip(loss.terms, (term.asscalar() for term in terms))), coefs.grad.asscalar()


def test_a_box_without_width_costs_a_finite_loss():
    terms, gradient = loss_of_one_anchor(0.0, box=(0.5, 0.25, 0.5, 0.75))
    assert np.isfinite(list(terms.values())).all() and np.isfinite(gradient)
    assert terms["box"] > 0


def test_a_saturated_mask_keeps_its_gradient():
    terms, gradient = loss_of_one_anchor(30.0)  # 1 - sigmoid(30) is 1e-13: a float32 sigmoid is 1
    assert terms["mask"] == pytest.approx(LossConfig.mask_weight * 30, rel=1e-5)
    assert gradient == pytest.approx(LossConfig.mask_weight, rel=1e-5)


def test_small_boxes_are_dropped_in_training():
    boxes = [[10, 10, 14, 300], [100, 100, 105, 300]]  # 4 and 5 of 550 pixels wide
    quiet = ["augment.{}=false".format(key) for key in ("photometric", "expand", "crop", "mirror")]
    np.testing.assert_allclose(samples_of(boxes, True, *quiet)["boxes"],
                               [[100 / 550, 100 / 550, 105 / 550, 300 / 550]], rtol=1e-6)


def test_an_image_without_objects_is_a_sample():
    batch = collate([samples_of([], True)])
    assert batch["num_positives"] == 0 and not batch["match"].any()
    assert (batch["gt_labels"] == -1).all()


def test_anchors_keep_their_size_in_pixels():
    config = load_config("yolact_resnet50_pascal", ["input.size=160"])
    pixels = {}
    for compatible in (False, True):
        config.reference_compatible = compatible
        anchors = build_anchors(config, (80, 160))
        pixels[compatible] = anchors[0, 2:] * [160, 80]  # a square one of 32 pixels
    np.testing.assert_allclose(pixels[False], [32, 32], rtol=1e-6)
    np.testing.assert_allclose(pixels[True], [32, 16], rtol=1e-6)


@pytest.mark.parametrize("name", [
    "yolact_base", "yolact_im400", "yolact_im700", "yolact_darknet53", "yolact_resnet50",
    "yolact_resnet50_pascal", "yolact_plus_base", "yolact_plus_resnet50"])
def test_official_configurations_are_compatible(name):
    assert load_config(name).reference_compatible
    assert not Config().reference_compatible


def test_every_difference_names_a_test():
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    for row in rows:
        file, name = re.search(r"`(tests/\w+\.py)::(\w+)` \|$", row).groups()
        assert "def {}(".format(name) in (ROOT / file).read_text(encoding="utf-8"), row
