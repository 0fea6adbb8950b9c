"""get_model: every configuration by name, with one's own classes and weights."""
import subprocess
import sys

import mxnet as mx
import pytest

from yolact_mx import class_names
from yolact_mx.checkpoint import save_weights
from yolact_mx.config import configs_dir
from yolact_mx.detect import build_detector
from yolact_mx.errors import CheckpointError, ConfigError
from yolact_mx.losses import build_loss
from yolact_mx.model_zoo import get_model
from yolact_mx.models import build_anchors

NAMES = sorted(path.stem for path in configs_dir().glob("*.yml"))
SMALL = ("model.backbone.name=resnet18_v1b", "model.backbone.dcn_blocks=[0,0,0,0]")


def head(net):
    return net._collect_params_with_prefix()["head.classes.weight"]


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration(name):
    # one small network for all: what differs here are classes, anchors and the backbone's name
    net = get_model(name, classes=["cat", "dog"], pretrained_base=False, ctx=mx.cpu(),
                    overrides=SMALL)
    class_logits = net(mx.nd.zeros((1, 3, 64, 64)))[0]
    assert class_logits.shape == (1, len(build_anchors(net.config, (64, 64))), 3)
    assert net.classes == ["cat", "dog"]
    assert net.config.name == name


def test_classes_by_default():
    for name, expected in (("yolact_resnet50_pascal", class_names.PASCAL),
                           ("yolact_resnet50", class_names.COCO)):
        net = get_model(name, pretrained_base=False, training=False, overrides=SMALL)
        assert net.classes == list(expected)
    assert (len(class_names.COCO), len(class_names.PASCAL)) == (80, 20)
    assert len(set(class_names.COCO)) == 80 and "teddy bear" in class_names.COCO


def test_it_trains_and_detects():
    net = get_model("yolact_resnet50", classes=["a"], pretrained_base=False,
                    overrides=SMALL + ("input.size=64",))
    assert build_loss(net.config, net, len(net.classes)).terms[0] == "class"
    detector = build_detector(net.config, net, len(net.classes))
    boxes, scores = detector(mx.nd.zeros((1, 3, 64, 64)))[:2]
    assert boxes.shape[:2] == scores.shape


def test_weights_of_the_whole_network(tmp_path):
    path = tmp_path / "net.params"
    trained = get_model("yolact_resnet50", ["a", "b"], pretrained_base=False, overrides=SMALL)
    save_weights(trained, path)
    # pretrained weights spare the download of the backbone's
    net = get_model("yolact_resnet50", ["a", "b"], pretrained=path, training=False, overrides=SMALL)
    assert (head(net).data() == head(trained).data()).asnumpy().all()
    with pytest.raises(CheckpointError, match="do not fit"):
        get_model("yolact_resnet50", ["a"], pretrained=path, overrides=SMALL)


def test_weights_of_the_backbone(tmp_path):
    path = tmp_path / "base.params"
    first = get_model("yolact_resnet50", ["a"], pretrained_base=False, overrides=SMALL)
    save_weights(first.backbone, path)
    net = get_model("yolact_resnet50", ["a"], pretrained_base=path, overrides=SMALL)
    stem, expected = (n.backbone.conv1.weight.data() for n in (net, first))
    assert (stem == expected).asnumpy().all()
    assert (head(net).data() != head(first).data()).asnumpy().any()


def test_the_package_offers_it_without_importing_mxnet():
    code = ("import sys, yolact_mx; assert 'mxnet' not in sys.modules; "
            "assert yolact_mx.get_model.__module__ == 'yolact_mx.model_zoo'")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=str(configs_dir().parent))


def test_mistakes():
    with pytest.raises(ConfigError, match="did you mean 'yolact_resnet50'"):
        get_model("yolact_resnet5", pretrained_base=False)
    for classes in ("person", ["a", "a"]):
        with pytest.raises(ConfigError, match="sequence of different names"):
            get_model("yolact_resnet50", classes, pretrained_base=False)
    with pytest.raises(CheckpointError, match="nowhere.params"):
        get_model("yolact_resnet50", ["a"], pretrained_base="nowhere.params", overrides=SMALL)
