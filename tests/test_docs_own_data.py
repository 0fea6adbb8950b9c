"""docs/own_data.md, followed word by word on a dozen small photographs."""
import json
import os
import re
import subprocess
import sys

import cv2
import mxnet as mx
import numpy as np
import pytest
from foreign_formats import labelme_json, labelme_shape, picture_bytes, write
from tiny import ROOT

from yolact_mx.models.backbone import gluoncv_network

SIZE = 96
# All that is changed in the page's commands: the number of steps, and the download for the file
# that the page offers in its place
CHANGED = {"--steps 400": "--steps 3",
           "model.backbone.weights=imagenet": "model.backbone.weights=backbone.params"}


def photographs(folder, numbers):
    """A square, a disc and a triangle in each, outlined as labelme does."""
    for number in numbers:
        rng = np.random.RandomState(number)
        image = rng.randint(0, 60, (SIZE, SIZE, 3)).astype(np.uint8)
        x, y, side = (int(v) for v in rng.randint((5, 5, 25), (20, 30, 40)))
        cv2.rectangle(image, (x, y), (x + side, y + side), (60, 200, 60), -1)
        cv2.circle(image, (76, 24), 14, (220, 120, 30), -1)
        triangle = [60, 90, 92, 90, 76, 58]
        cv2.fillPoly(image, [np.reshape(triangle, (-1, 2))], (40, 60, 220))
        shapes = [labelme_shape("square", [x, y, x + side, y, x + side, y + side, x, y + side]),
                  labelme_shape("disc", [76, 24, 76, 38], "circle"),
                  labelme_shape("triangle", triangle)]
        write(folder / "{}.png".format(number), picture_bytes(image))
        if folder.name == "photos":
            write(folder / "{}.json".format(number),
                  labelme_json(shapes, "{}.png".format(number), SIZE, SIZE))


def commands():
    """The indented lines of the page, continuation lines joined."""
    page = (ROOT / "docs" / "own_data.md").read_text(encoding="utf-8")
    return re.findall(r"^    (\S.*)$", re.sub(r"\\\n +", "", page), re.MULTILINE)


@pytest.fixture
def follow(tmp_path):
    """``follow(command)`` runs a line in the shell and returns what it printed."""
    tool = write(tmp_path / "bin" / "yolact-mx", (
        '#!/bin/sh\nexec "{}" -c "from yolact_mx.command import console; console()" "$@"\n'
    ).format(sys.executable))
    tool.chmod(0o755)
    env = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1",
               PATH="{}{}{}".format(tool.parent, os.pathsep, os.environ["PATH"]))

    def run(command):
        done = subprocess.run(["sh", "-c", command], cwd=str(tmp_path), env=env, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True)
        assert done.returncode == 0, "{}\n{}".format(command, done.stdout[-2000:])
        return done.stdout

    return run


def test_every_command_in_its_order(follow, tmp_path):
    photographs(tmp_path / "photos", range(12))
    photographs(tmp_path / "more", range(20, 22))
    backbone = gluoncv_network("mobilenetv2_1.0")
    backbone.initialize(mx.init.Xavier())
    backbone(mx.nd.zeros((1, 3, 64, 64)))
    backbone.save_parameters(str(tmp_path / "backbone.params"))
    lines, printed = commands(), ""
    for old, new in CHANGED.items():
        assert sum(old in line for line in lines) == 1
        lines = [line.replace(old, new) for line in lines]
    for line in lines:
        printed += follow(line)
    assert "10 pictures" in printed and "2 pictures" in printed
    assert "no faults found" in printed and "parameters from backbone.params" in printed
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found >= {
        "my/instances_train.json", "my/instances_val.json", "runs/my/best.params",
        "runs/my/log.jsonl", "report/report.html", "found.json", "runs/my/model-symbol.json",
        "more/20.json", "more/21.json"}
    for folder, count in (("truth", 10), ("overlays", 12), ("overlays-of-the-export", 12),
                          ("overlays-of-more", 2)):
        assert sum(name.startswith(folder + "/") for name in found) == count
    assert isinstance(json.loads((tmp_path / "found.json").read_text(encoding="utf-8")), list)
