"""The exported graph: equal to the network, for any batch size, readable by MXNet alone."""
import json
import os
import subprocess
import sys

import cv2
import mxnet as mx
import numpy as np
import pytest
from tiny import CLASSES, ROOT

from yolact_mx import export
from yolact_mx.checkpoint import load_weights
from yolact_mx.data.images import read_image
from yolact_mx.deploy import block_of
from yolact_mx.detect import OUTPUTS, build_detector
from yolact_mx.errors import CheckpointError
from yolact_mx.models import build_yolact
from yolact_mx.predict import find_weights, load_exported, load_predictor

pytest_plugins = ("tiny_fixtures",)
SUFFIXES = ("-0000.params", "-symbol.json", ".json")
ANY_SCORE = ["detect.score_threshold=0.001", "detect.max_detections=20"]


@pytest.fixture(scope="module")
def images():
    """(5, 3, 64, 64) as a picture is resized: RGB, 0..255."""
    return np.random.RandomState(3).randint(0, 256, (5, 3, 64, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def bent(tiny_run, tmp_path_factory):
    """(weights, config) of ``tiny_run`` with deformable convolutions that sample far from home."""
    path = tmp_path_factory.mktemp("bent") / "bent.params"
    weights, config = find_weights(tiny_run.folder, overrides=ANY_SCORE)
    content, rng = mx.nd.load(str(weights)), np.random.RandomState(0)
    for name, value in content.items():
        if "conv_offset_mask" in name:
            value[:] = mx.nd.array(rng.normal(0, 0.3, value.shape))
    mx.nd.save(str(path), content)
    return path, config


def arrays(outputs):
    return [value.asnumpy() for value in outputs]


def by_name(prefix, images):
    """Outputs of the exported graph in plain MXNet, by their names."""
    symbol = mx.sym.load(str(prefix) + "-symbol.json")
    block = mx.gluon.SymbolBlock.imports(str(prefix) + "-symbol.json", ["data"],
                                         str(prefix) + "-0000.params")
    return dict(zip(symbol.list_outputs(), arrays(block(mx.nd.array(images)))))


def test_equal_to_the_live_network(bent, images, tmp_path):
    weights, config = bent
    assert export.export_network(config, weights, tmp_path / "sub" / "model") < 1e-5
    net = build_yolact(config, len(CLASSES))
    load_weights(net, weights)
    live = arrays(build_detector(config, net, len(CLASSES))(mx.nd.array(images)))
    found = by_name(tmp_path / "sub" / "model", images)
    assert (live[1] > 0).sum() > 50  # detections, so that there is something to compare
    for name, value in zip(OUTPUTS, live):
        np.testing.assert_allclose(found[name + "_output"], value, rtol=0, atol=1e-5)


def test_any_batch_size(tiny_export, images):
    graph = load_exported(str(tiny_export) + "-symbol.json", mx.cpu()).graph
    whole = arrays(graph(mx.nd.array(images)))
    assert [value.shape[0] for value in whole] == [5] * 5
    for start, stop in ((0, 1), (1, 4), (4, 5)):
        for value, part in zip(whole, arrays(graph(mx.nd.array(images[start:stop])))):
            np.testing.assert_allclose(part, value[start:stop], rtol=0, atol=1e-5)


def test_outputs_by_name_and_description(tiny_export, images):
    found = by_name(tiny_export, images)
    with open(str(tiny_export) + ".json", encoding="utf-8") as file:
        info = json.load(file)
    assert info["classes"] == CLASSES
    assert info["input"] == {"name": "data", "layout": "NCHW", "size": 64, "width": 64,
                             "height": 64, "colour": "RGB", "range": [0, 255]}
    assert {name + "_output": [5] + shape[1:] for name, shape in info["outputs"].items()} == {
        name: list(value.shape) for name, value in found.items()}
    assert info["outputs"] == {"boxes": [None, 100, 4], "scores": [None, 100],
                               "mask_scores": [None, 100], "classes": [None, 100],
                               "masks": [None, 100, 16, 16]}


def test_training_parts_stay_behind(tiny_export):
    names = set(mx.nd.load(str(tiny_export) + "-0000.params"))
    assert not [name for name in names if "semantic" in name]
    assert {"arg:mean", "arg:std"} <= names  # normalisation is part of the graph


def test_native_and_composed_deformable_convolutions_agree(bent, images, tmp_path):
    weights, config = bent
    for name in ("mxnet", "composed"):
        export.export_network(config, weights, tmp_path / name, name)
        graph = (tmp_path / (name + "-symbol.json")).read_text()
        assert ("ModulatedDeformableConvolution" in graph) == (name == "mxnet")
        assert ("BilinearSampler" in graph) == (name == "composed")
    native, composed = (by_name(tmp_path / name, images) for name in ("mxnet", "composed"))
    for name in native:
        np.testing.assert_allclose(composed[name], native[name], rtol=0, atol=1e-4)


def test_a_graph_that_is_not_equal_is_not_written(tiny_run, tmp_path, monkeypatch):
    weights, config = find_weights(tiny_run.folder)
    (tmp_path / "model.json").write_text("of an earlier export")

    def spoilt(amount, *args):
        block = block_of(*args)
        return lambda images: [*block(images)[:4], block(images)[4] + amount]

    for amount in (1e-3, np.nan):
        monkeypatch.setattr(export, "block_of", lambda *args, x=amount: spoilt(x, *args))
        with pytest.raises(CheckpointError, match="differs from the network by .*nothing was"):
            export.export_network(config, weights, tmp_path / "model")
    assert os.listdir(str(tmp_path)) == ["model.json"]
    assert (tmp_path / "model.json").read_text() == "of an earlier export"


def test_example_without_this_package(tiny_export, tiny_run, tmp_path):
    """examples/mxnet_predict.py finds what the package finds, and cannot import it."""
    pictures = sorted((tiny_run.data / "images").iterdir())[-3:]
    code = ("import runpy, sys; sys.modules['yolact_mx'] = None; sys.argv = sys.argv[1:]; "
            "runpy.run_path(sys.argv[0], run_name='__main__')")
    arguments = [ROOT / "examples" / "mxnet_predict.py", tiny_export, *pictures,
                 "--out", tmp_path / "theirs", "--threshold", "0.01"]
    printed = subprocess.run([sys.executable, "-c", code] + [str(a) for a in arguments],
                             cwd=str(tmp_path), stdout=subprocess.PIPE, universal_newlines=True,
                             check=True).stdout.splitlines()
    predictor = load_predictor(str(tiny_export) + "-symbol.json")
    ours = [int((predictor([read_image(path)])[0].mask_scores > 0.01).sum()) for path in pictures]
    assert printed == ["{}: {} instances -> {}".format(
        path, count, tmp_path / "theirs" / path.name) for path, count in zip(pictures, ours)]
    assert sum(ours) > 0
    for picture in pictures:
        drawn = cv2.imread(str(tmp_path / "theirs" / picture.name))
        assert drawn.shape == (80, 100, 3) and (drawn != cv2.imread(str(picture))).any()


def test_detections_of_the_exported_network_are_those_of_the_run(tiny_export, tiny_run, images):
    exported = load_predictor(str(tiny_export) + "-symbol.json").detect(images)
    live = load_predictor(tiny_run.folder).detect(images)
    for ours, theirs in zip(exported, live):
        assert len(ours) == len(theirs)
        for name in OUTPUTS:
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-5)
