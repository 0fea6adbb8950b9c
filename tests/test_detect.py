"""Detection on crafted outputs: what is kept, in which order, and how padding looks."""
import mxnet as mx
import numpy as np
import pytest

from yolact_mx.detect import Detect, Detections, split_batch, to_image_size
from yolact_mx.models.mask_iou import MaskIoUNet
from yolact_mx.options import DetectConfig

CLASSES, SIDE = 3, 16
# four places, two anchors at each: the second is shifted by a tenth of its width
CENTRES = [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)]
ANCHORS = np.array([(x + d, y, 0.4, 0.4) for x, y in CENTRES for d in (0, 0.04)], np.float32)


def outputs(*planted, batch=1):
    """Logits with a score for each (image, anchor, class, logit); background elsewhere."""
    logits = np.full((batch, 8, CLASSES + 1), -8, np.float32)
    logits[:, :, 0] = 8
    for image, anchor, label, value in planted:
        logits[image, anchor, 0] = 0
        logits[image, anchor, label + 1] = value
    proto = np.ones((batch, 2, SIDE, SIDE), np.float32)
    coefs = np.ones((batch, 8, 2), np.float32)
    return [mx.nd.array(v) for v in (logits, np.zeros((batch, 8, 4)), coefs, proto)]


def build(mask_iou=None, **settings):
    block = Detect(ANCHORS, CLASSES, (100, 100), DetectConfig(**settings), mask_iou)
    block.initialize()
    return block


def found(block, values):
    """(class, left side) of what was planted.  Fast NMS has no second threshold, so the other
    classes of a kept anchor are detections too, with their scores near 0."""
    return [[(int(c), round(float(box[0]), 2))
             for c, box, score in zip(d.classes, d.boxes, d.scores) if score > 0.1]
            for d in split_batch(block(*values))]


@pytest.mark.parametrize("nms", ["fast", "cross_class", "greedy"])
def test_overlapping_boxes_leave_the_better_one(nms):
    values = outputs((0, 0, 1, 3.0), (0, 1, 1, 4.0), (0, 6, 2, 2.0))
    assert found(build(nms=nms), values) == [[(1, 0.09), (2, 0.55)]]


def test_classes_do_not_suppress_each_other_unless_asked():
    values = outputs((0, 0, 1, 3.0), (0, 1, 2, 4.0))
    assert len(found(build(nms="fast"), values)[0]) == 2
    assert len(found(build(nms="greedy"), values)[0]) == 2
    assert found(build(nms="cross_class"), values) == [[(2, 0.09)]]


@pytest.mark.parametrize("nms", ["fast", "cross_class", "greedy"])
def test_nothing_found(nms):
    detections, = split_batch(build(nms=nms)(*outputs()))
    assert len(detections) == 0 and detections.masks.shape == (0, SIDE, SIDE)
    image = to_image_size(detections, 100, 80)
    assert len(image) == 0 and len(image.masks) == 0


def test_images_of_a_batch_do_not_mix():
    values = outputs((0, 0, 0, 3.0), (1, 4, 2, 3.0), batch=3)
    assert found(build(), values) == [[(0, 0.05)], [(2, 0.05)], []]


def test_padding_is_marked():
    boxes, scores, mask_scores, classes, masks = build()(*outputs((0, 0, 0, 3.0)))
    assert scores.shape == (1, 24)  # 8 candidates of each of 3 classes
    assert (scores[0, 1:].asnumpy() == -1).sum() > 0
    padding = scores.asnumpy() < 0
    assert (classes.asnumpy()[padding] == -1).all() and (mask_scores.asnumpy()[padding] == -1).all()
    assert np.isfinite(masks.asnumpy()).all() and np.isfinite(boxes.asnumpy()).all()


def test_masks_are_cropped_to_their_boxes():
    mask = split_batch(build()(*outputs((0, 0, 0, 3.0))))[0].masks[0]
    # box 0.05..0.45 of 16 pixels is 0.8..7.2; with a pixel of padding columns 0..8
    assert (mask[:9, :9] > 0.8).all() and not mask[9:].any() and not mask[:, 9:].any()
    whole = split_batch(build(crop_masks=False)(*outputs((0, 0, 0, 3.0))))[0].masks[0]
    assert (whole > 0.8).all()


def test_rescoring_multiplies_the_class_score():
    net = MaskIoUNet(CLASSES, (2,))
    net.initialize()
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.zeros(parameter.shape))
    net.layers[-1].bias.set_data(mx.nd.array([0.25, 0.5, 2.0]))
    detections, = split_batch(build(net)(*outputs((0, 0, 1, 3.0), (0, 4, 2, 3.0))))
    detections = detections.keep(detections.scores > 0.1)
    assert sorted(detections.classes) == [1, 2]
    np.testing.assert_allclose(detections.mask_scores / detections.scores,
                               [{1: 0.5, 2: 2.0}[c] for c in detections.classes], rtol=1e-6)


def test_score_threshold_is_strict():
    logit = float(np.log(0.5 / 0.5))  # probability 0.5 between two classes, the others e^-8
    values = outputs((0, 0, 1, logit))
    score = split_batch(build()(*values))[0].scores[0]
    assert len(found(build(score_threshold=float(score)), values)[0]) == 0
    assert len(found(build(score_threshold=float(score) - 1e-4), values)[0]) > 0


@pytest.mark.parametrize("nms", ["fast", "cross_class", "greedy"])
def test_hybridized_equals_imperative(nms):
    values = outputs((0, 0, 1, 3.0), (0, 1, 1, 4.0), (1, 6, 2, 2.0), batch=2)
    block = build(nms=nms)
    imperative = [v.asnumpy() for v in block(*values)]
    block.hybridize(static_alloc=True)
    for a, b in zip(imperative, block(*values)):
        np.testing.assert_allclose(a, b.asnumpy(), atol=1e-6)


def test_boxes_in_pixels_are_ordered_clipped_and_truncated():
    boxes = np.array([[-0.1, 0.256, 0.5, 1.2], [0.9, 0.8, 0.1, 0.2]], np.float32)
    detections = Detections(boxes, np.array([0.9, 0.8]), np.array([0.9, 0.8]), np.array([0, 1]),
                            np.zeros((2, SIDE, SIDE), np.float32))
    image = to_image_size(detections, 200, 100)
    assert image.boxes.tolist() == [[0, 25, 100, 100], [20, 20, 180, 80]]
    assert len(to_image_size(detections, 200, 100, score_threshold=0.85)) == 1


def test_masks_are_resized_before_the_threshold():
    probs = np.zeros((1, 4, 4), np.float32)
    probs[0, :, 2:] = 1
    detections = Detections(np.array([[0, 0, 1, 1]], np.float32), np.ones(1), np.ones(1),
                            np.zeros(1, int), probs)
    mask = to_image_size(detections, 16, 8).masks[0]
    assert mask.dtype == np.uint8 and mask.shape == (8, 16)
    assert (mask[:, 8:] == 1).all() and not mask[:, :8].any()
