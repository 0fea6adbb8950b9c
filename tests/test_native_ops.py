"""The library of C++ operators: built, found, loaded, and right for any number of threads."""
import logging
import os
import shutil
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from native_library import assert_threads_do_not_show, require_library, usable
from tiny import ROOT, assert_close, losses, weights

from yolact_mx.commands import build_ops
from yolact_mx.errors import UserError
from yolact_mx.models import yolact
from yolact_mx.nn import native_ops

pytest_plugins = ("tiny_fixtures",)
SETTINGS = {"kernel_width": 3, "stride_y": 1, "stride_x": 2, "pad_y": 1, "pad_x": 0}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native_ops, "load", native_ops.load.__wrapped__)
    return tmp_path


def inputs(shape=(2, 50, 6, 9)):
    """Data, offsets and masks; no sample is nearer than 0.2 to a line between pixels."""
    rng, out = np.random.RandomState(0), (shape[0], 9, 6, 4)
    offset = rng.randint(-4, 4, (out[0], 18) + out[2:]) + rng.uniform(0.2, 0.8, (out[0], 18, 6, 4))
    return [mx.nd.array(a) for a in (rng.standard_normal(shape), offset, rng.uniform(size=out))]


def columns_and_gradients():
    require_library()
    arrays = inputs()
    for array in arrays:
        array.attach_grad()
    with mx.autograd.record():
        columns = mx.nd.yolact_deform_im2col(*arrays, **SETTINGS)
    head = np.random.RandomState(1).standard_normal(columns.shape).astype(np.float32)
    columns.backward(mx.nd.array(head))
    return arrays, head, [columns.asnumpy()] + [array.grad.asnumpy() for array in arrays]


def test_columns():
    """Against the definition, one sample after the other."""
    (data, offset, mask), _, (columns, *_) = columns_and_gradients()
    data, offset, mask = (array.asnumpy().astype(np.float64) for array in (data, offset, mask))
    padded = np.pad(data, ((0, 0), (0, 0), (40, 40), (40, 40)))
    expected = np.zeros(columns.shape)
    for b, tap, row, column in np.ndindex(mask.shape):
        y = row * 1 - 1 + tap // 3 + offset[b, 2 * tap, row, column] + 40
        x = column * 2 + tap % 3 + offset[b, 2 * tap + 1, row, column] + 40
        top, left = int(y), int(x)
        value = sum(
            padded[b, :, top + i, left + j] * (1 - abs(y - top - i)) * (1 - abs(x - left - j))
            for i in (0, 1) for j in (0, 1))
        expected[b, row, column, 50 * tap:50 * tap + 50] = mask[b, tap, row, column] * value
    assert columns.shape == (2, 6, 4, 9 * 50)
    np.testing.assert_allclose(columns, expected, atol=1e-5)


def test_gradients_match_finite_differences():
    """Between the lines the function is linear in each number: the step may be large."""
    arrays, head, (_, *grads) = columns_and_gradients()
    rng = np.random.RandomState(2)
    for array, grad in zip(arrays, grads):
        for place in zip(*(rng.randint(0, size, 25) for size in array.shape)):
            start, ends = float(array[place].asscalar()), []
            for step in (0.1, -0.1):
                array[place] = start + step
                columns = mx.nd.yolact_deform_im2col(*arrays, **SETTINGS).asnumpy()
                ends.append((columns * head).sum(dtype=np.float64))
            array[place] = start
            assert grad[place] == pytest.approx((ends[0] - ends[1]) / 0.2, rel=1e-3, abs=1e-3)


def test_threads_do_not_show(tmp_path):
    """Results of any number of threads are the same numbers."""
    _, _, here = columns_and_gradients()
    assert_threads_do_not_show(
        here, "test_native_ops.columns_and_gradients()[2]", (2, 7), tmp_path)


@pytest.mark.parametrize("change, text", [
    ({"offset": (2, 17, 6, 4)}, "two offsets a mask"), ({"mask": (1, 9, 6, 4)}, "one batch size"),
    ({"mask": (2, 9, 6)}, "four dimensions"), ({"data": "float64"}, "float32"),
    ({"stride_y": None}, "stride_y is missing")])
def test_wrong_use_is_an_error(change, text):
    require_library()
    arrays = dict(zip(("data", "offset", "mask"), inputs()))
    settings = dict(SETTINGS)
    for name, value in change.items():
        if value is None:
            del settings[name]
        elif isinstance(value, str):
            arrays[name] = arrays[name].astype(value)
        else:
            arrays[name] = mx.nd.zeros(value)
    with pytest.raises(mx.MXNetError, match=text):
        mx.nd.yolact_deform_im2col(*arrays.values(), **settings).wait_to_read()


# ------------------------------------------------------------------ building and loading

def test_not_built(cache, caplog):
    assert not native_ops.load() and not caplog.records


def test_a_damaged_library_is_one_warning(cache, caplog):
    path = native_ops.library_path()
    path.parent.mkdir()
    path.write_text("no library")
    with caplog.at_level(logging.INFO):
        assert not native_ops.load()
    record, = caplog.records
    assert record.levelname == "WARNING" and path.name in record.getMessage()
    assert "slower operators take its place" in record.getMessage()


def test_another_source_is_another_library(cache, monkeypatch):
    path = native_ops.library_path()
    assert path.parent == cache / "yolact_mx" and mx.__version__ in path.name
    changed = cache / "csrc"
    shutil.copytree(str(native_ops.SOURCES), str(changed))
    with monkeypatch.context() as patch:
        patch.setattr(native_ops, "SOURCES", changed)
        assert native_ops.library_path() == path
        with open(str(changed / "deform_im2col.h"), "a") as header:
            header.write("\n")
        assert native_ops.library_path() != path
    monkeypatch.setattr(native_ops, "processor", lambda: "another")
    assert native_ops.library_path() != path


@pytest.mark.parametrize("compiler", ["none-such", ""])
def test_no_compiler(cache, monkeypatch, compiler):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(UserError, match="^no C.. compiler found .*cannot be built$"):
        build_ops.main([])
    assert not native_ops.library_path().exists()


def test_a_compiler_that_fails(cache, monkeypatch):
    """All flags are tried; the first error is told, and nothing is left behind."""
    fake = cache / "fake"
    fake.write_text("#!/bin/sh\necho \"$@\" >> {}/calls\necho 'x.cc:1: fatal error: no such thing' "
                    ">&2\necho 'another error' >&2\nexit 1\n".format(cache))
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(UserError) as caught:
        build_ops.main([])
    assert str(caught.value) == (
        "{} cannot compile the faster operators: x.cc:1: fatal error: no such thing".format(fake))
    calls = (cache / "calls").read_text().splitlines()
    assert len(calls) == len(native_ops.FLAGS) and "-march=native" not in calls[-1]
    assert list((cache / "yolact_mx").iterdir()) == []


def test_build(tmp_path):
    """The tool, in a process of its own: it loads what it compiled."""
    if native_ops.find_compiler() is None:
        pytest.skip("no C++ compiler for the library of operators")
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "build_ops.py")],
                          env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path)),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    built, = (tmp_path / "yolact_mx").iterdir()
    assert done.stdout == "{}: compiled by {} {}\n".format(
        built, native_ops.find_compiler(), " ".join(native_ops.FLAGS[0]))


# ------------------------------------------------------------------ in a network

def test_training_with_either_is_equal(trainer, tmp_path, monkeypatch):
    runs = []
    for sampler in ("composed", "library"):
        usable(sampler)
        monkeypatch.setattr(yolact, "default_sampler", lambda *args, name=sampler: name)
        run = trainer(tmp_path / sampler, "train.accumulate=2", steps=4)
        layer = run.net.backbone.layer4[0].conv2
        assert layer._sampler == sampler
        layer.conv_offset_mask.weight.set_data(mx.nd.array(  # samples between pixels from the start
            np.random.RandomState(0).normal(0, 0.02, layer.conv_offset_mask.weight.shape)))
        run.fit()
        runs.append(weights(run))
    composed, library = (losses(tmp_path / sampler) for sampler in ("composed", "library"))
    assert len(composed) == 4
    np.testing.assert_allclose(library, composed, rtol=1e-5)
    assert_close(*runs, 1e-5)
