"""Single functions against the figures of the reference.

Not compared, since nothing uses them: ``san/*_p1_c1`` (whole-pixel boxes with padding).
"""
import re
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from golden_support import load
from native_library import usable

from yolact_mx import boxes
from yolact_mx.detect import Detect, Detections, to_image_size
from yolact_mx.models.layers import resize_like, resize_like_by_products
from yolact_mx.nn.deform_conv import SAMPLERS, ModulatedDeformConv2D
from yolact_mx.options import DetectConfig
from yolact_mx.reference_map import _mask_overlaps

# A few float32 operations, against the largest value of each array
FLOAT = 1e-6
# Sums of 54 products each, and of up to 198 for the gradients of weights
SUMS = 3e-6


@pytest.fixture(scope="module")
def figures(golden):
    return load(golden, "units.npz")


def seed_of(figures, case):
    """The seed of one case of ``meta.draws``: "<case> ... rs(seed+3)"."""
    return figures.meta["seed"] + int(re.search(case + r"[^;]*?rs\(seed\+(\d+)\)",
                                                figures.meta["draws"]).group(1))


def nd(array):
    return mx.nd.array(array, dtype="float32")


# ------------------------------------------------------------------ boxes

def test_overlaps(figures):
    a, b = figures["boxes/a"], figures["boxes/b"]
    figures.close("IoU", boxes.iou(a, b), figures["boxes/jaccard"], FLOAT)
    overlap = boxes.intersection(a, b)
    figures.close("IoU", overlap, figures["boxes/intersect"], FLOAT)
    figures.close("IoU", overlap / boxes.area(a)[:, None], figures["boxes/jaccard_crowd"], FLOAT)
    # the reference's pairwise form has its own floor of 0.1 for the union
    same = np.arange(len(a))
    union = boxes.area(a) + boxes.area(b[same]) - overlap[same, same]
    figures.close("IoU", np.minimum(overlap[same, same] / np.maximum(union, 0.1), 1),
                  figures["boxes/elemwise_box_iou"], FLOAT)
    within = boxes.pairwise_iou(mx.nd, nd(np.concatenate([a, b]))).asnumpy()
    figures.close("IoU", within[:len(a), len(a):], figures["boxes/jaccard"], FLOAT)


def test_coding(figures):
    anchors, loc = figures["boxes/priors"], figures["boxes/loc"]
    figures.close("box coding", boxes.anchor_corners(figures["boxes/center_size_a"]),
                  figures["boxes/point_form_center_size_a"], FLOAT)
    figures.close("box coding", boxes.anchor_corners(anchors), figures["boxes/point_form_priors"],
                  FLOAT)
    encoded = boxes.encode(mx.nd, nd(figures["boxes/b"]), nd(anchors))
    figures.close("box coding", encoded.asnumpy(), figures["boxes/encode_b"], FLOAT)
    for deltas, key in ((nd(loc), "decode_loc"), (encoded, "decode_encode_b")):
        figures.close("box coding", boxes.decode(mx.nd, deltas, nd(anchors)).asnumpy(),
                      figures["boxes/" + key], FLOAT)


def test_sanitized_boxes(figures):
    """As the crop and the conversion to pixels use them."""
    x1, x2 = figures["san/x1"], figures["san/x2"]
    across = np.stack([x1, np.zeros_like(x1), x2, np.ones_like(x2)], axis=1)
    sizes = figures.numbers("san/s")
    assert sizes
    for size in sizes:
        for padding in (0, 1):
            low, high = figures["san/s{}_p{}_c0".format(size, padding)]
            pixel = np.arange(size)
            expected = (pixel >= low[:, None]) & (pixel < high[:, None])
            inside = boxes.crop_mask(mx.nd, mx.nd.zeros((1, 1, 1, size)), nd(across[None]), padding)
            figures.exact("crop", inside.asnumpy()[0, :, 0], expected)
        n = len(across)
        found = Detections(across, *[np.ones(n, np.float32)] * 3, np.ones((n, 2, 2), np.float32))
        whole = to_image_size(found, size, size).boxes
        figures.exact("boxes in pixels", whole[:, [0, 2]].T, figures["san/s{}_p0_c1".format(size)])


def test_crop(figures):
    corners = figures["crop/boxes"]
    height, width, _ = figures["crop/out_p1_first3"].shape
    masks = np.random.RandomState(seed_of(figures, "crop")).uniform(
        0, 1, (height, width, len(corners))).astype(np.float32)
    for padding in (0, 1):
        inside = boxes.crop_mask(mx.nd, mx.nd.zeros((1, 1, height, width)), nd(corners[None]),
                                 padding).asnumpy()[0].transpose(1, 2, 0)
        suffix = "_p{}".format(padding)
        figures.exact("crop", inside.sum(axis=(0, 1)), figures["crop/count" + suffix])
        figures.close("crop", (masks * inside).sum(axis=(0, 1), dtype=np.float64),
                      figures["crop/sum" + suffix], FLOAT)
    figures.exact("crop", (masks * inside)[:, :, :3], figures["crop/out_p1_first3"])


# ------------------------------------------------------------------ NMS

def nms_settings(text):
    """The numbers of "...; iou .5, top_k 200, cap 100; traditional uses cfg.max_size=550"."""
    iou, top_k, cap, side = re.search(
        r"iou ([\d.]+), top_k (\d+), cap (\d+).*max_size=(\d+)", text).groups()
    return DetectConfig(score_threshold=0.0, nms_iou=float(iou), top_k=int(top_k),
                        max_detections=int(cap)), int(side)


def suppress(settings, side, corners, scores):
    """-> (score, class, index) of the survivors.  The scores of the figures are no softmax, so
    the NMS is called by itself."""
    detect = Detect(corners, len(scores), (side, side), settings)
    detect.collect_params(".*anchors").initialize()
    score, kind, index = (out.asnumpy()[0] for out in
                          detect._suppress(mx.nd, nd(scores.T[None]), nd(corners[None])))
    return score[score >= 0], kind[score >= 0], index[score >= 0]


def check_nms(figures, key, found, scores=True):
    score, kind, index = found
    figures.exact("NMS", index, figures[key + "/idx"])
    figures.exact("NMS", kind, figures[key + "/class"])
    if scores:
        figures.exact("NMS", score, figures[key + "/score"])


def test_nms(figures, evaluate):
    cases = figures.numbers("nms")
    assert cases
    for case in cases:
        key = "nms{}/".format(case)
        text = figures.meta["nms{}".format(case)]
        corners, scores = evaluate(text.split(";")[0])
        settings, side = nms_settings(text)
        fast = suppress(settings, side, corners, scores)
        check_nms(figures, key + "fast", fast)
        unlimited = replace(settings, max_detections=corners.shape[0] * len(scores))
        _, kept, _ = suppress(unlimited, side, corners, scores)
        figures.exact("NMS", np.bincount(kept.astype(int), minlength=len(scores)),
                      figures[key + "fast/n_keep_per_class"])
        # A second score threshold only cuts the list short
        above = fast[0] > DetectConfig.score_threshold
        check_nms(figures, key + "fast2nd", [part[above] for part in fast], scores=False)
        check_nms(figures, key + "cc", suppress(replace(settings, nms="cross_class"), side,
                                                corners, scores))
        greedy = replace(settings, nms="greedy", score_threshold=DetectConfig.score_threshold)
        check_nms(figures, key + "trad", suppress(greedy, side, corners, scores))


# ------------------------------------------------------------------ deformable convolution

@pytest.mark.parametrize("sampler", SAMPLERS)
def test_deformable_convolution(figures, inputs_rule, sampler):
    strides = figures.numbers("dcn_s")
    seed = figures.meta["seed"] + int(re.search(r"dcn_case\(seed\+(\d+)\+stride",
                                                figures.meta["draws"]).group(1))
    for stride in strides:
        case = inputs_rule.dcn_case(seed + stride, stride=stride)
        names = ("x", "offset", "mask", "weight", "bias")
        inputs = [nd(case[name]) for name in names]
        layer = ModulatedDeformConv2D(case["weight"].shape[0], 3, stride, 1,
                                      in_channels=case["x"].shape[1], sampler=usable(sampler))
        key = "dcn_s{}/".format(stride)
        if sampler == "mxnet":  # MXNet's own has no backward on CPUs
            figures.close("DCN", layer.sample(mx.nd, *inputs).asnumpy(), figures[key + "out"], SUMS)
            continue
        for array in inputs:
            array.attach_grad()
        with mx.autograd.record():
            out = layer.sample(mx.nd, *inputs)
        out.backward(nd(case["grad_out"]))
        figures.close("DCN", out.asnumpy(), figures[key + "out"], SUMS)
        for name, array in zip(names, inputs):
            figures.close("DCN gradients", array.grad.asnumpy(), figures[key + "grad_" + name],
                          SUMS, what=name)


# ------------------------------------------------------------------ primitives

@pytest.fixture(scope="module")
def draws(figures):
    """The arrays that ``meta.draws`` names for ``prim``: z, tg, d, e, f, ma, mb."""
    text = re.search(r"prim rs\(seed\+\d+\): ([^;]*)", figures.meta["draws"]).group(1)
    assert re.fullmatch(r"[\w\s=*(),.>]+", text), text
    rs = np.random.RandomState(seed_of(figures, "prim"))
    return eval("dict({})".format(text), {
        "__builtins__": {}, "dict": dict, "sn": rs.standard_normal, "randint": rs.randint,
        "uniform": lambda shape: rs.uniform(size=shape)})


def test_cross_entropy_and_smooth_l1(figures, draws):
    log_probs = mx.nd.log_softmax(nd(draws["z"]), axis=-1)
    figures.close("primitives", -log_probs[:, 0].asnumpy(), figures["prim/log_sum_exp_minus_bg"],
                  FLOAT)
    figures.close("primitives", -mx.nd.pick(log_probs, nd(draws["tg"]), axis=-1).asnumpy(),
                  figures["prim/cross_entropy"], FLOAT)
    loss = mx.nd.smooth_l1(nd(draws["d"]) - nd(draws["e"]), scalar=1.0)
    figures.close("primitives", loss.asnumpy().sum(dtype=np.float64), figures["prim/smooth_l1_sum"],
                  FLOAT)


def test_resizing(figures, draws):
    f = nd(draws["f"])
    keys = [key for key in figures.under("prim/") if re.fullmatch(r"to_\d+x\d+|up\d+", key)]
    assert keys
    for key in keys:
        expected = figures["prim/" + key]
        for resize in (resize_like, resize_like_by_products):
            resized = resize(mx.nd, f, mx.nd.zeros((1, 1) + expected.shape[2:])).asnumpy()
            # positions round too
            figures.close("primitives", resized, expected, 3 * FLOAT, what=key)


def test_mask_overlaps(figures, draws):
    ma, mb = draws["ma"], draws["mb"]
    for crowd, key in ((False, "mask_iou"), (True, "mask_iou_crowd")):
        figures.close("primitives", _mask_overlaps(ma, mb, np.full(len(mb), crowd)),
                      figures["prim/" + key], FLOAT)
