"""One tiny trained network for all tests: ``pytest_plugins = ("tiny_fixtures",)``."""
from pathlib import Path
from typing import NamedTuple

import mxnet as mx
import pytest
from tiny import CLASSES, four_class_data, run, write_config

from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.trainer import Trainer

STEPS = 3
CPU = (mx.cpu(),)


class TinyRun(NamedTuple):
    """Where things are: data (as ``--data`` takes it), configuration file, run folder."""

    data: Path
    config: Path
    folder: Path


@pytest.fixture
def tool(capfd):
    """``tool("eval", arguments...)`` -> (exit code, stdout, stderr)."""
    def call(name, *arguments):
        capfd.readouterr()
        code = run(name, *arguments)
        return (code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """tools/train.py for three steps, with validation at the end."""
    folder = tmp_path_factory.mktemp("tiny")
    data, config = four_class_data(folder / "data"), write_config(folder)
    code = run("train", config, "--data", data, "--out", folder / "run", "--steps", STEPS)
    assert code == 0
    return TinyRun(data, config, folder / "run")


@pytest.fixture(scope="session")
def tiny_export(tiny_run):
    """PREFIX that tools/export.py wrote the network of ``tiny_run`` to."""
    prefix = tiny_run.folder.parent / "exported" / "model"
    assert run("export", tiny_run.folder, prefix) == 0
    return prefix


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """(training set, validation set) with the classes CLASSES."""
    folder = four_class_data(tmp_path_factory.mktemp("data"))
    return [CocoDataset(folder / "instances_{}.json".format(part), folder / "images")
            for part in ("train", "val")]


@pytest.fixture(scope="session")
def trainer(data, tmp_path_factory):
    """``trainer(out, *overrides, steps=..., ...)`` -> Trainer on the training set."""
    path = write_config(tmp_path_factory.mktemp("config"))

    def build(out, *overrides, steps=4, contexts=CPU, classes=CLASSES, val_set=None,
              workers=None):
        config = load_config(path, overrides)
        config.classes = list(classes)
        return Trainer(config, data[0], val_set, out, list(contexts), steps, workers=workers)

    return build
