"""Imports within the package go in one direction (CONTRIBUTING.md)."""
import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "yolact_mx"

LEAVES = {"errors"}
# What a file (or all files of a folder) may import, beside errors and its own folder
ALLOWED = {
    "config": {"options"}, "options": set(), "errors": set(), "runtime": set(), "boxes": set(),
    "schedule": set(),
    "rle": set(), "class_names": set(), "nn": set(),
    "anchors": set(), "input_shapes": set(), "targets": {"boxes"},
    "models": {"nn", "anchors", "config", "input_shapes"},
    "losses": {"boxes", "nn", "anchors"}, "nms": {"boxes", "nn"},
    "detect": {"boxes", "nn", "anchors", "nms"},
    "data": {"boxes", "targets", "rle", "class_names"},
    "coco_files": {"rle"}, "evaluate": {"coco_files", "detect", "rle"}, "reference_map": {"rle"},
    "visualize": {"data"}, "report_figures": set(), "error_analysis": {"boxes", "rle"},
    "eval_report": {"data", "detect", "error_analysis", "evaluate", "report_figures", "visualize"},
    "checkpoint": set(), "convert": {"checkpoint", "models", "config"},
    "graph_passes": set(), "deploy": {"graph_passes"},
    "predict": {"checkpoint", "config", "data", "deploy", "detect", "graph_passes",
                "input_shapes", "models", "nn"},
    "video": set(), "sources": {"data", "video"}, "pipeline": {"detect", "sources"},
    "outputs": {"rle", "sources", "video", "visualize"}, "labelme": {"outputs"},
    "coco_ids": {"coco_files"},
    "export": {"checkpoint", "data", "deploy", "detect", "graph_passes", "models", "predict",
               "sources", "__version__"},
    "onnx_ops": set(), "onnx_graph": {"onnx_ops"},
    "export_onnx": {"data", "detect", "export", "onnx_graph", "predict"},
    "graph_cost": set(), "benchmark": set(),
    "benchmark_tasks": {"benchmark", "class_names", "cli", "config", "data", "detect",
                        "graph_cost", "models", "predict", "train_step", "trainer",
                        "training_data"},
    "model_zoo": {"checkpoint", "class_names", "config", "models", "detect"},
    "training_data": {"anchors", "data", "input_shapes"},
    "trainer": {"checkpoint", "config", "data", "distributed", "evaluate", "input_shapes",
                "loss_scale", "losses", "models", "nn", "predict", "schedule", "stopper",
                "train_step", "training_data", "training_log", "updater"},
    "train_step": {"graph_passes", "losses", "nn"}, "loss_scale": set(),
    "training_log": {"tensorboard"}, "tensorboard": {"visualize"}, "updater": {"distributed"},
    "distributed": {"checkpoint"}, "stopper": set(), "launcher": {"runtime"},
    "cli": set(), "__init__": {"runtime", "model_zoo"},
    "command": {"commands", "__version__"},  # which imports nothing of the others itself
}
# Commands may import anything but each other's dispatcher; nothing above imports them
ALLOWED["commands"] = set(ALLOWED) - {"command"}


def imported(path):
    """Top-level modules of the package that a file imports, also inside functions."""
    folder = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = list(folder[:len(folder) - (node.level - 1)]) + (node.module or "").split(".")
            parts = [part for part in parts if part]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("yolact_mx."):
            yield node.module.split(".")[1]
        assert not (isinstance(node, ast.Import) and any(
            alias.name.split(".")[0] == "tools" for alias in node.names)), path


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_imports(path):
    part = path.relative_to(PACKAGE).parts[0].replace(".py", "")
    assert part in ALLOWED, "say in ALLOWED what {} may import".format(part)
    extra = set(imported(path)) - ALLOWED[part] - LEAVES - {part}
    assert not extra, "{} imports {}".format(path.name, sorted(extra))
