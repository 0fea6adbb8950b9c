"""Exports in bfloat16 and int8: written, read back, used and described."""
import json

import mxnet as mx
import numpy as np
import pytest

from yolact_mx.commands import export as command
from yolact_mx.errors import CheckpointError, DatasetError
from yolact_mx.export import calibration_batch, export_network
from yolact_mx.predict import find_weights, load_exported, load_predictor

pytest_plugins = ("tiny_fixtures",)


@pytest.fixture(scope="module")
def trained(tiny_run):
    return find_weights(tiny_run.folder, overrides=["detect.score_threshold=0.001"])


def test_calibration_pictures(tiny_run, trained, tmp_path):
    _, config = trained
    folder = tiny_run.data / "images"
    count = len(list(folder.iterdir()))
    batch = calibration_batch(config, [folder])
    assert batch.shape == (min(count, 32), 3, 64, 64) and batch.dtype == np.float32
    assert np.abs(batch).max() < 3  # normalised
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="empty"):
        calibration_batch(config, [tmp_path / "empty"])


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_round_trip(tiny_run, trained, tmp_path, dtype):
    weights, config = trained
    pictures = calibration_batch(config, [tiny_run.data / "images"]) if dtype == "int8" else None
    prefix = tmp_path / "model"
    assert export_network(config, weights, prefix, dtype=dtype, calibration=pictures) < 1e-5
    assert json.loads((tmp_path / "model.json").read_text())["dtype"] == dtype
    assert "_sg_mkldnn_conv" in (tmp_path / "model-symbol.json").read_text()
    low = load_predictor(str(prefix) + "-symbol.json")
    full = load_predictor(tiny_run.folder, overrides=["detect.score_threshold=0.001"])
    image = np.random.RandomState(0).randint(0, 256, (64, 64, 3), np.uint8)
    found, wanted = low([image] * 2), full([image] * 2)
    for a, b in zip(found, wanted):
        assert len(a) and len(b)
        assert abs(a.scores[0] - b.scores[0]) < {"bfloat16": 0.02, "int8": 0.2}[dtype]
    np.testing.assert_array_equal(found[0].boxes, found[1].boxes)


def test_gpus_are_told(trained, tmp_path):
    weights, config = trained
    export_network(config, weights, tmp_path / "model", dtype="bfloat16")
    with pytest.raises(CheckpointError, match="bfloat16: it runs on CPUs only"):
        load_exported(tmp_path / "model-symbol.json", mx.Context("cpu_pinned"))


@pytest.mark.parametrize("arguments, message", [
    (["--dtype", "int8"], "--calibration"),
    (["--calibration", "folder"], "--dtype int8"),
    (["--dtype", "bfloat16", "--format", "onnx"], "--format mxnet"),
    (["--dtype", "bfloat16", "--composed-dcn"], "--composed-dcn is for float32"),
])
def test_options_that_do_not_go_together(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.parse(["run", "model"] + arguments)
    assert message in capsys.readouterr().err
