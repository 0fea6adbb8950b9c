"""Anchors of every configuration and input size against the figures of the reference."""
import re

import numpy as np
import pytest
from golden_support import configuration, load

from yolact_mx.models import build_anchors
from yolact_mx.models.yolact import input_sizes

SUM = 1e-12  # float64 sums of the same float32 numbers: only the order of adding differs


@pytest.fixture(scope="module")
def figures(golden):
    return load(golden, "priors.npz")


def test_anchors(figures):
    names = figures["names"].tolist()
    assert names
    for name in names:
        config, size, height, width = re.fullmatch(
            r"(.+)@(\d+)(?:_in(\d+)x(\d+))?", name).groups()
        config = configuration(config, int(size))
        image = (int(height), int(width)) if height else None
        anchors = build_anchors(config, image)
        figures.exact("shape", anchors.shape, figures[name + "/shape"])
        figures.exact("rows", anchors[figures[name + "/rows_idx"]], figures[name + "/rows"])
        wide = anchors.astype(np.float64)
        figures.close("column sums", wide.sum(0), figures[name + "/colsum"], SUM)
        figures.close("column sums", (wide ** 2).sum(0), figures[name + "/colsumsq"], SUM)
        if name + "/conv_hw" in figures:
            figures.exact("level sizes", input_sizes(config, image)[1], figures[name + "/conv_hw"])
