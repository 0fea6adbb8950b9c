"""One tiny trained network for all tests: ``pytest_plugins = ("tiny_fixtures",)``."""
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny import four_class_data, run, write_config

STEPS = 3


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
