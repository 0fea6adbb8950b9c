"""Networks of every configuration: shapes, parts, small inputs, freezing."""
import mxnet as mx
import numpy as np
import pytest

from yolact_mx.config import configs_dir, load_config
from yolact_mx.deploy import compile_network
from yolact_mx.errors import CheckpointError, ConfigError
from yolact_mx.models import Predictions, build_anchors, build_yolact
from yolact_mx.models.backbone import build_backbone, load_backbone
from yolact_mx.models.layers import resize_like, resize_like_by_products
from yolact_mx.models.mask_iou import MaskIoUNet
from yolact_mx.models.yolact import input_sizes
from yolact_mx.nn import DynamicConv2D, ModulatedDeformConv2D

SMALL = ["input.size=64", "model.fpn.channels=8", "model.protonet.channels=8",
         "model.head.channels=8", "model.mask_iou=[]"]


def blocks(net, kind):
    seen = []
    net.apply(lambda block: seen.append(block) if isinstance(block, kind) else None)
    return seen


@pytest.mark.parametrize("name", sorted(p.stem for p in configs_dir().glob("*.yml")))
def test_every_config_builds_consistently(name):
    """Anchors, head outputs and prototypes of one configuration belong together."""
    config = load_config(name, SMALL)
    net = build_yolact(config, 3, training=True)
    out = Predictions(*net(mx.nd.zeros((2, 3, 64, 64))))
    anchors, (_, levels, proto_size) = build_anchors(config), input_sizes(config)
    prototypes = config.model.protonet.prototypes
    assert out.class_logits.shape == (2, len(anchors), 4)
    assert out.box_deltas.shape == (2, len(anchors), 4)
    assert out.mask_coefs.shape == (2, len(anchors), prototypes)
    assert out.proto.shape == (2, prototypes) + proto_size
    assert out.semantic_logits.shape == (2, 3) + levels[0]


@pytest.mark.parametrize("name, backbone, deformable", [
    ("yolact_resnet50", "resnet50_v1b", 0), ("yolact_plus_resnet50", "resnet50_v1b", 13),
    ("yolact_plus_resnet101", "resnet101_v1b", 11)])
def test_deformable_blocks(name, backbone, deformable):
    config = load_config(name)
    assert config.model.backbone.name == backbone
    net = build_backbone(config.model.backbone)
    assert len(blocks(net, ModulatedDeformConv2D)) == deformable


def test_dynamic_convolutions_from_the_config():
    net = build_yolact(load_config("shapes", ["model.head.conv=dynamic",
                                              "model.protonet.conv=dynamic"]), 2)
    assert len(blocks(net.head, DynamicConv2D)) == 4
    assert len(blocks(net.protonet, DynamicConv2D)) == 5


def test_five_mask_iou_layers_need_249_pixels():
    with pytest.raises(ConfigError, match="model.mask_iou.*249"):
        build_yolact(load_config("yolact_plus_resnet50", ["input.size=248"]), 2)
    from yolact_mx.models.yolact import check_input
    check_input(load_config("yolact_plus_resnet50", ["input.size=249"]))


def test_input_below_64_pixels_is_refused():
    with pytest.raises(ConfigError, match="input.size.*64.*32"):
        build_yolact(load_config("yolact_resnet50", ["input.size=32"]), 2)


def test_unknown_backbone_and_impossible_dcn():
    with pytest.raises(ConfigError, match="model.backbone.name.*vgg16"):
        build_yolact(load_config("yolact_resnet50", ["model.backbone.name=vgg16"]), 2)
    with pytest.raises(ConfigError, match="dcn_blocks"):
        build_yolact(load_config("yolact_plus_resnet50", [
            "input.size=256", "model.backbone.name=mobilenetv2_1.0"]), 2)


def test_frozen_batch_norm_has_no_gradients_and_fixed_statistics():
    config = load_config("shapes", SMALL)
    net = build_yolact(config, 2, training=True, freeze_bn=True)
    frozen = net.collect_params(".*(gamma|beta)")
    assert frozen and all(p.grad_req == "null" for p in frozen.values())
    before = {k: p.data().asnumpy() for k, p in net.collect_params(".*running").items()}
    with mx.autograd.record():
        sum(o.sum() for o in net(mx.nd.random.normal(shape=(2, 3, 64, 64)))).backward()
    mx.nd.waitall()
    for name, parameter in net.collect_params(".*running").items():
        np.testing.assert_array_equal(parameter.data().asnumpy(), before[name])


def test_training_and_inference_are_one_path():
    """A hybridized network answers alike before and after it was trained on."""
    net = build_yolact(load_config("shapes", SMALL), 2, training=True, freeze_bn=True)
    net.hybridize()
    images = mx.nd.random.normal(shape=(1, 3, 64, 64))
    with mx.autograd.record():
        trained = [o.asnumpy() for o in net(images)]
    for a, b in zip(trained, net(images)):
        np.testing.assert_allclose(a, b.asnumpy(), atol=1e-5)


def test_a_network_for_inference_has_no_gradients():
    """They would take as much memory as its weights."""
    config = load_config("shapes", SMALL)
    for net in (build_yolact(config, 3), compile_network(build_yolact(config, 3), mx.cpu())):
        assert {p.grad_req for p in net.collect_params().values()} == {"null"}


def test_backbone_weights_of_the_gluoncv_network(tmp_path):
    """A classification network's file fits; DCNv2 takes the plain weights and starts at 0."""
    from yolact_mx.models.backbone import gluoncv_network
    whole = gluoncv_network("resnet18_v1b")
    whole.initialize(mx.init.Xavier())
    whole(mx.nd.zeros((1, 3, 64, 64)))
    whole.save_parameters(str(tmp_path / "resnet18.params"))
    config = load_config("shapes", SMALL + [
        "model.backbone.name=resnet18_v1b",
        "model.backbone.weights=" + str(tmp_path / "resnet18.params")])
    net = build_yolact(config, 2, training=True)
    deformable = net.backbone.layer4[0].conv2 if isinstance(
        net.backbone.layer4[0].conv2, ModulatedDeformConv2D) else net.backbone.layer4[1].conv2
    plain = whole.layer4[1].conv2
    np.testing.assert_array_equal(deformable.weight.data().asnumpy(), plain.weight.data().asnumpy())
    assert not deformable.conv_offset_mask.weight.data().asnumpy().any()


def test_wrong_backbone_weights_are_refused(tmp_path):
    net = build_yolact(load_config("shapes", SMALL), 2)
    mx.nd.save(str(tmp_path / "other.params"), {"a": mx.nd.zeros((1,))})
    with pytest.raises(CheckpointError, match="other.params.*missing.*first"):
        load_backbone(net.backbone, tmp_path / "other.params", "resnet10_v1b", mx.cpu())
    with pytest.raises(CheckpointError, match="none.params"):
        load_backbone(net.backbone, tmp_path / "none.params", "resnet10_v1b", mx.cpu())


@pytest.mark.parametrize("straight_through", [False, True])
def test_a_mask_iou_prediction_that_fell_to_zero(straight_through):
    """Its value is 0 either way; only the straight-through gradient lets it rise again."""
    net = MaskIoUNet(2, (3,), straight_through=straight_through)
    net.initialize(mx.init.Xavier())
    net.layers[-1].bias.set_data(mx.nd.array([-5.0, 0.5]))
    masks = mx.nd.zeros((4, 1, 9, 9))  # every position is the maximum: one of them counts
    with mx.autograd.record():
        predicted = net(masks)
        predicted.sum().backward()
    assert (predicted[:, 0] == 0).asnumpy().all() and (predicted[:, 1] > 0).asnumpy().all()
    dead, alive = net.layers[-1].bias.grad().asnumpy()
    assert dead == (4 if straight_through else 0) and alive == 4


@pytest.mark.parametrize("small, large", [((18, 9), (35, 18)), ((1, 2), (2, 3)), ((5, 5), (5, 7))])
def test_resizing_by_products(small, large):
    """Values and gradient of BilinearResize2D."""
    rng, results = np.random.RandomState(0), []
    x, like = mx.nd.array(rng.normal(size=(2, 3) + small)), mx.nd.zeros((2, 1) + large)
    weights = mx.nd.array(rng.normal(size=(2, 3) + large))
    x.attach_grad()
    for resize in (resize_like, resize_like_by_products):
        with mx.autograd.record():
            resized = resize(mx.nd, x, like)
        resized.backward(weights)
        results.append((resized.asnumpy(), x.grad.asnumpy()))
    for found, wanted in zip(*results):
        np.testing.assert_allclose(found, wanted, atol=2e-5)
