"""A tiny configuration, its data, and the tools in this process; fixtures: tiny_fixtures.py."""
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from coco_builder import tiny_dataset

from yolact_mx.errors import run_tool

ROOT = Path(__file__).resolve().parent.parent
TERMS = ["class", "box", "mask", "semantic", "mask_iou"]
CLASSES = ["square", "unused", "disc", "bar"]  # in the order of their ids 0, 3, 7, 90
# A YOLACT++ with every part, as small as it can be: DCNv2, mask re-scoring, five losses
CONFIG = """
base: yolact_plus_resnet50
reference_compatible: false
input: {size: 64}
model:
  backbone: {name: resnet10_v1b, dcn_blocks: [0, 0, 0, 1]}
  fpn: {channels: 16}
  protonet: {channels: 16, prototypes: 8}
  head: {channels: 16}
  mask_iou: [4, 8]
anchors:
  scales: [[10], [18], [28], [40], [54]]
train:
  batch_size: 2
  reference_batch: 0
  lr: 0.005
  warmup_steps: 0
  freeze_bn: "yes"
  workers: 0
  checkpoint_every: 2
  log_every: 1
"""


def write_config(folder):
    """CONFIG as a file in ``folder``."""
    path = Path(folder) / "tiny.yml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def four_class_data(folder):
    """``tiny_dataset`` with a fourth category (id 3) that no object has."""
    folder = tiny_dataset(folder)
    for path in folder.glob("instances_*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["categories"].append({"id": 3, "name": "unused"})
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def run(name, *arguments):
    """Exit code of tools/NAME.py in this process."""
    folder = str(ROOT / "tools")
    if folder not in sys.path:
        sys.path.append(folder)
    with pytest.raises(SystemExit) as stop:
        run_tool(importlib.import_module(name).main, [str(argument) for argument in arguments])
    return stop.value.code


def weights(run):
    return {name: parameter.data(run.contexts[0]).asnumpy()
            for name, parameter in run.net._collect_params_with_prefix().items()}


def assert_close(first, second, tolerance):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=0, atol=tolerance, err_msg=name)


def log_lines(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses(folder):
    return np.array([[line["loss"][term] for term in TERMS] for line in log_lines(folder)])
