"""Weights of the PyTorch reference: names, both file formats, refusals, and figures afterwards."""
import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from golden_support import classes_of, configuration, load

from yolact_mx.checkpoint import load_weights
from yolact_mx.class_names import names_for
from yolact_mx.config import load_config
from yolact_mx.convert import convert, convert_file, num_classes, read_pth, reference_name
from yolact_mx.errors import CheckpointError, run_tool
from yolact_mx.models import Predictions, build_yolact

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import convert_weights  # noqa: E402

SMALL = ["model.backbone.name=resnet18_v1b"]


@pytest.fixture(scope="module")
def torch():
    """PyTorch, if there; in CI the conversion is exercised, never skipped."""
    if not os.environ.get("CI"):
        return pytest.importorskip("torch")
    import torch
    return torch


def names_and_shapes(net):
    """{name in the reference: shape} of a network."""
    return {reference_name(name): parameter.shape
            for name, parameter in net._collect_params_with_prefix().items()}


def save(torch, state, path, old_format=False):
    torch.save(OrderedDict((name, torch.from_numpy(np.asarray(value)))
                           for name, value in state.items()), str(path),
               _use_new_zipfile_serialization=not old_format)
    return path


# ------------------------------------------------------------------ names

@pytest.mark.parametrize("ours, theirs", [
    ("backbone.conv1.weight", "backbone.conv1.weight"),
    ("backbone.bn1.running_mean", "backbone.bn1.running_mean"),
    ("backbone.layer2.3.bn1.gamma", "backbone.layers.1.3.bn1.weight"),
    ("backbone.layer3.0.downsample.1.beta", "backbone.layers.2.0.downsample.1.bias"),
    ("backbone.layer2.0.conv2.conv_offset_mask.bias",
     "backbone.layers.1.0.conv2.conv_offset_mask.bias"),
    ("backbone.features.0.1.gamma", "backbone._preconv.1.weight"),
    ("backbone.features.1.0.weight", "backbone.layers.0.0.0.weight"),
    ("backbone.features.2.body.1.1.beta", "backbone.layers.0.1.conv2.1.bias"),
    ("backbone.features.5.body.0.0.weight", "backbone.layers.1.2.conv1.0.weight"),
    ("backbone.features.15.0.weight", "backbone.layers.3.0.0.weight"),
    ("backbone.features.28.body.0.1.running_var", "backbone.layers.4.4.conv1.1.running_var"),
    ("fpn.lateral5.weight", "fpn.lat_layers.0.weight"),
    ("fpn.lateral3.bias", "fpn.lat_layers.2.bias"),
    ("fpn.output4.weight", "fpn.pred_layers.1.weight"),
    ("fpn.down7.weight", "fpn.downsample_layers.1.weight"),
    ("protonet.before.2.weight", "proto_net.4.weight"),
    ("protonet.after.0.bias", "proto_net.8.bias"),
    ("protonet.after.1.weight", "proto_net.10.weight"),
    ("head.shared.weight", "prediction_layers.0.upfeature.0.weight"),
    ("head.boxes.weight", "prediction_layers.0.bbox_layer.weight"),
    ("head.classes.bias", "prediction_layers.0.conf_layer.bias"),
    ("head.coefs.bias", "prediction_layers.0.mask_layer.bias"),
    ("semantic.weight", "semantic_seg_conv.weight"),
    ("mask_iou.layers.5.bias", "maskiou_net.maskiou_net.10.bias")])
def test_names(ours, theirs):
    assert reference_name(ours) == theirs


# ------------------------------------------------------------------ whole networks

@pytest.mark.parametrize("name, old_format", [("fwd_pascal.npz", True),
                                              ("fwd_plus_resnet50.npz", False)])
def test_the_figures_hold_afterwards(torch, golden, evaluate, weights_rule, tmp_path, capsys,
                                     name, old_format):
    figures = load(golden, name)
    config = configuration(figures.meta["config"], figures.meta["max_size"])
    net = build_yolact(config, classes_of(figures.meta["config"]), training=True)
    state = weights_rule.make_all(names_and_shapes(net))
    extra = {"backbone.bn1.num_batches_tracked": np.zeros((), np.int64),
             "fpn.downsample_layers.2.weight": np.zeros((256, 256, 3, 3), np.float32),
             "backbone.layer1.0.conv1.weight": np.zeros((64, 64, 1, 1), np.float32)}
    prefix = "module." if old_format else ""
    source = save(torch, {prefix + key: value for key, value in dict(state, **extra).items()},
                  tmp_path / "in.pth", old_format)
    target = tmp_path / "out.params"

    convert_weights.main([str(source), str(target), "--config", config.name,
                          "input.size={}".format(config.input.size)])
    printed = capsys.readouterr().out
    assert "fpn.lat_layers.0.weight -> fpn.lateral5.weight (256, 2048, 1, 1)" in printed
    assert "not used: backbone.bn1.num_batches_tracked" in printed
    assert "{} parameters; 3 entries".format(len(state)) in printed

    # the configuration with the class names, which prediction asks for
    written = load_config(target.with_suffix(".yml"))
    assert list(names_for(len(net.semantic.bias.data()))) == written.classes
    assert (written.input, written.model) == (config.input, config.model)
    load_weights(net, target)
    found = Predictions(*(out.asnumpy() for out in net(mx.nd.array(
        evaluate(figures.meta["input"])))))
    tolerance = 1e-5  # as in test_golden_forward.py
    figures.tensor("conversion", found.class_logits, "conf_logits", tolerance)
    figures.tensor("conversion", found.box_deltas, "loc", tolerance)
    figures.tensor("conversion", found.mask_coefs, "mask_coef", tolerance)
    figures.tensor("conversion", found.proto.transpose(0, 2, 3, 1), "proto", tolerance)
    figures.tensor("conversion", found.semantic_logits, "segm", tolerance)


def test_number_of_classes():
    state = {"module.prediction_layers.0.conf_layer.weight": np.zeros((3 * 21, 256, 3, 3))}
    assert num_classes(state, 3) == 20
    with pytest.raises(CheckpointError, match="63 rows.* 4 anchors per cell"):
        num_classes(state, 4)
    with pytest.raises(CheckpointError, match="is missing"):
        num_classes({"backbone.conv1.weight": np.zeros(1)}, 3)


# ------------------------------------------------------------------ backbones

@pytest.mark.parametrize("prefix", ["layer", "layers."], ids=["torchvision", "reference"])
def test_a_backbone_can_be_trained_from(torch, tmp_path, prefix):
    config = load_config("yolact_resnet50", SMALL)
    rng = np.random.RandomState(0)
    state = {}
    for name, shape in names_and_shapes(build_yolact(config, 1)).items():
        if name.startswith("backbone."):
            name = name[len("backbone."):]
            if prefix == "layer" and name.startswith("layers."):  # torchvision counts from 1
                name = "layer{}{}".format(int(name[7]) + 1, name[8:])
            state[name] = rng.standard_normal(shape).astype(np.float32)
    assert prefix + ("2.0" if prefix == "layer" else "1.0") + ".downsample.0.weight" in state
    state.update({"fc.weight": np.zeros((1000, 512), np.float32), "fc.bias": np.zeros(1000)})
    source, target = save(torch, state, tmp_path / "in.pth", True), tmp_path / "out.params"
    # deformable blocks take the plain convolution's weights
    config = load_config("yolact_resnet50", SMALL + ["model.backbone.dcn_blocks=[0,2,2,2]"])
    conversion, classes = convert_file(source, target, config)
    assert classes == 0
    assert conversion.unused == ["backbone.fc.bias", "backbone.fc.weight"]

    config.model.backbone.weights = str(target)
    parameters = build_yolact(config, 1, training=True)._collect_params_with_prefix()
    for ours, theirs in (
            ("conv1.weight", "conv1.weight"),
            ("layer2.0.conv2.weight", "{}.0.conv2.weight"),
            ("layer2.0.downsample.1.gamma", "{}.0.downsample.1.weight"),
            ("layer2.1.bn2.running_var", "{}.1.bn2.running_var")):
        value = state[theirs.format(prefix + ("2" if prefix == "layer" else "1"))]
        assert (parameters["backbone." + ours].data().asnumpy() == value).all(), ours
    assert not parameters["backbone.layer2.0.conv2.bias"].data().asnumpy().any()


def test_darknet_backbone():
    wanted = {"backbone.features.0.0.weight": (32, 3, 3, 3),
              "backbone.features.2.body.0.0.weight": (32, 64, 1, 1)}
    state = {"_preconv.0.weight": np.ones((32, 3, 3, 3), np.float32),
             "layers.0.1.conv1.0.weight": np.full((32, 64, 1, 1), 2, np.float32)}
    arrays = convert(state, wanted).arrays
    assert [float(arrays[name].mean()) for name in wanted] == [1, 2]


def test_a_backbone_that_the_reference_does_not_have(tmp_path):
    config = load_config("yolact_resnet50", ["model.backbone.name=mobilenetv2_1.0"])
    with pytest.raises(CheckpointError, match="no backbone 'mobilenetv2_1.0'"):
        convert_file(tmp_path / "in.pth", tmp_path / "out.params", config)


# ------------------------------------------------------------------ refusals

WANTED = {"fpn.lateral5.weight": (4, 8, 1, 1), "fpn.lateral5.bias": (4,)}


def fitting():
    return {"backbone.bn1.num_batches_tracked": np.zeros((), np.float32),
            "fpn.lat_layers.0.weight": np.ones((4, 8, 1, 1), np.float32),
            "fpn.lat_layers.0.bias": np.ones(4, np.float32)}


def test_what_fits():
    conversion = convert(fitting(), WANTED)
    assert conversion.mapped == [("fpn.lat_layers.0.weight", "fpn.lateral5.weight", (4, 8, 1, 1)),
                                 ("fpn.lat_layers.0.bias", "fpn.lateral5.bias", (4,))]
    assert conversion.unused == ["backbone.bn1.num_batches_tracked"]


def test_what_does_not_fit_is_named_with_its_shape():
    state = fitting()
    del state["fpn.lat_layers.0.bias"]
    state["fpn.lat_layers.0.weight"] = np.ones((4, 9, 1, 1), np.float32)
    for i in range(6):
        state["fpn.strange{}".format(i)] = np.ones((2, i), np.float32)
    with pytest.raises(CheckpointError) as caught:
        convert(state, WANTED)
    message = str(caught.value)
    assert "1 missing: fpn.lat_layers.0.bias (4,)" in message
    assert "fpn.lat_layers.0.weight (4, 9, 1, 1), expected (4, 8, 1, 1)" in message
    assert "6 not part of it: fpn.strange0 (2, 0), fpn.strange1 (2, 1)" in message
    assert message.endswith("and 2 more") and "\n" not in message


def test_weights_of_another_configuration(torch, tmp_path):
    config = load_config("yolact_resnet50", SMALL)
    deformable = load_config("yolact_resnet50", SMALL + ["model.backbone.dcn_blocks=[0,0,0,2]"])
    state = {name: np.zeros(shape, np.float32) for name, shape in names_and_shapes(
        build_yolact(deformable, 2, training=True)).items()}
    source, target = save(torch, state, tmp_path / "in.pth"), tmp_path / "out.params"
    with pytest.raises(CheckpointError, match="not part of it: backbone.layers.3.0.conv2.bias"):
        convert_file(source, target, config)
    assert not target.exists()
    config.classes = ["one"]
    with pytest.raises(CheckpointError, match="key 'classes': expected names for the 2 classes"):
        convert_file(source, target, config)


class Payload:
    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_but_tensors_is_unpickled(torch, tmp_path):
    Payload.path = tmp_path / "was_here"
    bad = {"tuple.pth": (torch.zeros(1),), "number.pth": {"epoch": 3}, "empty.pth": {}}
    for name, value in bad.items():
        torch.save(value, str(tmp_path / name))
    torch.save({"a": Payload()}, str(tmp_path / "code.pth"))
    with open(str(tmp_path / "old_code.pth"), "wb") as file:
        pickle.dump({"a": Payload()}, file, protocol=2)
    (tmp_path / "garbage.pth").write_bytes(b"not a checkpoint at all")
    (tmp_path / "nothing.pth").write_bytes(b"")
    for name in list(bad) + ["code.pth", "old_code.pth", "garbage.pth", "nothing.pth",
                             "absent.pth"]:
        with pytest.raises(CheckpointError) as caught:
            read_pth(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)
    assert not Payload.path.exists()


def test_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CheckpointError, match=r"needs PyTorch: pip install 'yolact-mx\[convert\]'"):
        read_pth(tmp_path / "in.pth")


def test_the_tool_says_what_is_wrong_in_one_line(torch, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        run_tool(convert_weights.main, [str(tmp_path / "absent.pth"), str(tmp_path / "out.params"),
                                        "--config", "yolact_resnet50"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and "absent.pth" in error
