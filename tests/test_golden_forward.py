"""The networks, layer by layer, and their detections against the figures of the reference."""
import re

import mxnet as mx
import numpy as np
import pytest
from golden_support import (
    classes_of,
    coefficients,
    configuration,
    load,
    names_of,
    network,
    with_detect,
)
from native_library import usable

from yolact_mx.detect import Detect, split_batch
from yolact_mx.models import Predictions, build_anchors

# Float32 noise of some fifty to a hundred convolutions of up to 4608 products each, against the
# largest value of a layer: the reference differs from itself in float64 by about a tenth of it.
LAYER = 1e-5
# Decoded boxes, relative to the largest coordinate; softmax and tanh flatten the noise
OUTPUT = 1e-5
HEADS = (("loc", "box_deltas"), ("conf_logits", "class_logits"), ("mask_coef", "mask_coefs"))


def pytest_generate_tests(metafunc):
    if "file" in metafunc.fixturenames:
        # the deformable convolutions of detection; test_golden_train.py has those of training
        cases = [(name, sampler) for name in names_of(metafunc, "fwd_*.npz")
                 for sampler in (("mxnet", "library") if "plus" in name else ("mxnet",))]
        metafunc.parametrize("file, sampler", cases, scope="module")


@pytest.fixture(scope="module")
def figures(golden, file):
    return load(golden, file)


@pytest.fixture(scope="module")
def outputs(figures, sampler, evaluate, weights_rule):
    """{name of a layer in the figures: its output} of one forward pass; "net": Predictions."""
    name = figures.meta["config"]
    config = configuration(name, figures.meta["max_size"])
    net = network(config, classes_of(name), weights_rule, training=True, freeze_bn=True,
                  dcn_sampler=usable(sampler))
    seen = {}
    watch(net, seen)
    seen["net"] = Predictions(*(out.asnumpy() for out in net(mx.nd.array(
        evaluate(figures.meta["input"])))))
    return seen


def watch(net, seen):
    """Keep the outputs of all layers that the figures know."""
    def keep(block, *names):
        def hook(_, __, out):
            out = out if isinstance(out, (list, tuple)) else [out]
            seen.update((name, array.asnumpy()) for name, array in zip(names, out))
        block.register_forward_hook(hook)

    backbone = net.backbone
    keep(backbone, "C3", "C4", "C5")
    keep(net.fpn, "P3", "P4", "P5", "P6", "P7")
    if hasattr(backbone, "features"):
        watch_darknet(backbone.features, keep)
    else:
        watch_resnet(backbone, keep)


def watch_resnet(backbone, keep):
    keep(backbone.conv1, "stem/conv1")
    keep(backbone.maxpool, "stem/maxpool")
    stages = (backbone.layer1, backbone.layer2, backbone.layer3, backbone.layer4)
    for stage, blocks in enumerate(stages):
        for i, block in enumerate(blocks):
            keep(block, "block/{}.{}".format(stage, i))
            if hasattr(block.conv2, "conv_offset_mask"):
                name = "backbone.layers.{}.{}.conv2".format(stage, i)
                keep(block.conv2, "dcn_out/" + name)
                keep(block.conv2.conv_offset_mask,
                     "dcn_offset_mask/{}.conv_offset_mask".format(name))


def watch_darknet(features, keep):
    keep(features[0], "stem/preconv")
    stage, block = -1, 0
    for layer in list(features)[1:]:
        # each stage begins with a plain unit of stride 2
        stage, block = (stage, block + 1) if hasattr(layer, "body") else (stage + 1, 0)
        keep(layer, "block/{}.{}".format(stage, block))


def test_layers(figures, outputs):
    """In the order of the pass: the first that fails is where the networks part."""
    order = figures["block_order"].tolist()
    order.sort(key=lambda name: not name.startswith("stem"))
    for kind, names in (("backbone layers", order), ("C3..C5", ("C3", "C4", "C5")),
                        ("P3..P7", ("P3", "P4", "P5", "P6", "P7"))):
        for name in names:
            figures.tensor(kind, outputs[name], name, LAYER)


def test_heads(figures, outputs):
    found = outputs["net"]
    rows = figures["rows_idx"]
    for key, field in HEADS:
        array = getattr(found, field)
        figures.tensor("heads", array, key, LAYER)
        figures.close("heads", array[:, rows], figures[key + "/rows"], LAYER, what=key)
        wide = array.astype(np.float64)
        absolute = np.abs(wide).sum((1, 2))
        figures.close("heads", wide.sum((1, 2)), figures[key + "/sum_per_image"], LAYER,
                      scale=absolute)
        figures.close("heads", absolute, figures[key + "/asum_per_image"], LAYER)
    probs = mx.nd.softmax(mx.nd.array(found.class_logits), axis=-1).asnumpy()
    figures.tensor("heads", probs, "conf_softmax", OUTPUT)
    figures.close("heads", probs[:, rows], figures["conf_softmax/rows"], OUTPUT)
    figures.close("heads", probs[:, rows, 1:].max(-1), figures["conf_softmax/maxfg"], OUTPUT)


def test_prototypes_and_semantic_branch(figures, outputs):
    proto = outputs["net"].proto.transpose(0, 2, 3, 1)
    figures.tensor("prototypes", proto, "proto", LAYER)
    figures.close("prototypes", proto[:, ::5, ::5], figures["proto/grid"], LAYER)
    semantic = outputs["net"].semantic_logits
    figures.tensor("semantic", semantic, "segm", LAYER)
    figures.close("semantic", semantic[:, :, ::4, ::4], figures["segm/grid"], LAYER)


def test_detections(figures, outputs, evaluate):
    config = configuration(figures.meta["config"], figures.meta["max_size"])
    image_size = evaluate(figures.meta["input"]).shape[2:]
    anchors = build_anchors(config, image_size)
    figures.tensor("anchors", anchors, "priors", 1e-7)
    heads = outputs["net"]

    def detect(proto, **changes):
        block = Detect(anchors, heads.class_logits.shape[2] - 1, image_size,
                       settings(config, figures.meta["det"], **changes))
        block.collect_params(".*anchors").initialize()
        return split_batch(block(*[mx.nd.array(a) for a in heads[:3] + (proto,)]))

    found = detect(heads.proto)
    coefs = coefficients(lambda proto: detect(proto, crop_masks=False), heads.mask_coefs.shape[::2])
    for image, detections in enumerate(found):
        check_detections(figures, "det{}/".format(image), detections, coefs[image])


def settings(config, text, **changes):
    """Of "..., fast_nms on, cross_class off, conf_thresh .05, nms .5, top_k 200, max 100"."""
    value = dict(re.findall(r"(conf_thresh|nms|top_k|max) ([\d.]+)", text))
    assert "fast_nms on, cross_class off" in text
    return with_detect(config, nms="fast", score_threshold=float(value["conf_thresh"]),
                       nms_iou=float(value["nms"]), top_k=int(value["top_k"]),
                       max_detections=int(value["max"]), **changes)


def check_detections(figures, key, found, coefs):
    """Equal, but for the order of neighbours whose scores differ by less than the noise."""
    scores = figures[key + "score"]
    figures.exact("detections", len(found), figures[key + "n"])
    if not len(found):
        return
    figures.close("scores", found.scores, scores, OUTPUT)
    expected = np.column_stack([figures[key + "class"], figures[key + "box"]])
    actual = np.column_stack([found.classes, found.boxes])
    order = []
    for i, row in enumerate(expected):
        close = np.flatnonzero(np.abs(found.scores - scores[i]) <= OUTPUT * scores.max())
        order.append(close[np.abs(actual[close] - row).max(1).argmin()])
    figures.exact("detections", sorted(order), np.arange(len(scores)))
    figures.exact("classes", actual[order, 0], expected[:, 0])
    figures.close("boxes", actual[order, 1:], expected[:, 1:], OUTPUT)
    first = figures[key + "mask_coef"]
    figures.close("coefficients", coefs[order[:len(first)]], first, LAYER)
