"""The ONNX graph: equal to the network in ONNX Runtime, and refused where it cannot be."""
import subprocess
import sys

import cv2
import mxnet as mx
import numpy as np
import pytest
from tiny import CONFIG, ROOT, write_config

from yolact_mx.checkpoint import save_weights
from yolact_mx.config import load_config
from yolact_mx.data.images import read_image
from yolact_mx.errors import CheckpointError, ConfigError, UserError
from yolact_mx.models import build_yolact
from yolact_mx.predict import find_weights, load_predictor

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
export_onnx = pytest.importorskip("yolact_mx.export_onnx")

pytest_plugins = ("tiny_fixtures",)
ANY_SCORE = ["detect.score_threshold=0.001", "detect.max_detections=20"]


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    """PREFIX of the tiny YOLACT++ (deformable convolutions, mask re-scoring) in ONNX."""
    prefix = tmp_path_factory.mktemp("onnx") / "model"
    export_onnx.export_onnx(*reversed(find_weights(tiny_run.folder, overrides=ANY_SCORE)), prefix)
    return prefix


def test_pictures_in_any_batch(exported, tiny_run):
    """What ONNX Runtime finds is what the live network finds."""
    model = onnx.load(str(exported) + ".onnx")
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 16)]
    assert "GridSample" in {node.op_type for node in model.graph.node}
    session = onnxruntime.InferenceSession(str(exported) + ".onnx")
    live = load_predictor(tiny_run.folder, overrides=ANY_SCORE)
    pictures = sorted((tiny_run.data / "images").iterdir())[:3]
    batch = np.stack([live.prepare(read_image(path)) for path in pictures])
    expected = [value.asnumpy() for value in live.graph(mx.nd.array(batch))]
    assert (expected[1] >= 0).sum() > 3
    for images, part in ((batch, slice(None)), (batch[1:2], slice(1, 2))):
        found = session.run(["boxes", "scores", "mask_scores", "classes"], {"data": images})
        for ours, theirs in zip(expected, found):
            np.testing.assert_allclose(theirs, ours[part], atol=1e-4)


@pytest.mark.parametrize("nms", ["cross_class", "greedy"])
def test_other_suppressions_and_plain_yolact(tmp_path, nms):
    config = load_config(write_config(tmp_path), [
        "detect.nms=" + nms, "model.mask_iou=[]", "model.backbone.dcn_blocks=[0,0,0,0]"])
    config.classes = ["a", "b", "c"]
    save_weights(build_yolact(config, 3), tmp_path / "a.params")
    assert export_onnx.export_onnx(config, tmp_path / "a.params", tmp_path / "model") < 1e-4
    assert (tmp_path / "model.onnx").is_file() and (tmp_path / "model.json").is_file()


def test_a_difference_is_not_written(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(export_onnx, "_difference", lambda *_: np.nan)
    weights, config = find_weights(tiny_run.folder)
    with pytest.raises(CheckpointError, match="ONNX Runtime differs .*nothing was written"):
        export_onnx.export_onnx(config, weights, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_operators_without_translation():
    from yolact_mx.onnx_graph import to_onnx

    with pytest.raises(ConfigError, match="operator 'erf' with .* has no ONNX translation"):
        to_onnx({"out": mx.sym.erf(mx.sym.var("data"))}, {}, {"data": (3,)})
    with pytest.raises(ConfigError, match="operator 'Pooling' with pool_type=avg"):
        pooled = mx.sym.Pooling(mx.sym.var("data"), kernel=(2, 2), pool_type="avg")
        to_onnx({"out": pooled}, {}, {"data": (3, 8, 8)})


def test_without_onnx(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    weights, config = find_weights(tiny_run.folder)
    with pytest.raises(UserError, match="needs onnx and onnxruntime .*pip install onnx onnxrunt"):
        export_onnx.export_onnx(config, weights, tmp_path / "model")


def test_tool_and_example(tool, tiny_run, tmp_path):
    """The example finds what the network finds, and imports neither MXNet nor this package."""
    prefix = tmp_path / "model"
    code, out, err = tool("export", tiny_run.folder, prefix, "--format", "onnx", *ANY_SCORE)
    assert code == 0 and out.startswith("{p}.onnx, {p}.json: equal to".format(p=prefix)), err
    example = ROOT / "examples" / "onnx_predict.py"
    text = example.read_text()
    assert "import mxnet" not in text and "import yolact_mx" not in text
    pictures = [str(path) for path in sorted((tiny_run.data / "images").iterdir())[:2]]
    printed = subprocess.run(
        [sys.executable, str(example), str(prefix)] + pictures + [
            "--out", str(tmp_path / "drawn"), "--threshold", "0.01"],
        stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.splitlines()
    predictor = load_predictor(tiny_run.folder, overrides=ANY_SCORE)
    counts = [int((predictor([read_image(path)])[0].mask_scores > 0.01).sum()) for path in pictures]
    assert [int(line.split(": ")[1].split()[0]) for line in printed] == counts and sum(counts) > 0
    for line in printed:
        assert cv2.imread(line.split(" -> ")[1]).shape == (80, 100, 3)


assert "dcn_blocks: [0, 0, 0, 1]" in CONFIG  # or GridSample would go untested
