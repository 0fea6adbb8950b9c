"""Run lengths: read as pycocotools writes them, and refused where it would go astray."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as mask_utils

from yolact_mx.rle import run_lengths, to_rle

HEIGHT, WIDTH = 30, 40
SQUARE = [10, 5, 20, 5, 20, 15, 10, 15]


def compressed(counts, height=HEIGHT, width=WIDTH):
    """Counts as text, by pycocotools."""
    return mask_utils.frPyObjects({"size": [height, width], "counts": counts},
                                  height, width)["counts"].decode()


@pytest.mark.parametrize("counts", [
    [1200], [0, 1200], [5, 7, 1188], [600, 15, 16, 1, 32, 31, 505], [0, 1, 1100, 1, 1, 1, 96],
    [1] * 1200, [1000, 1, 1, 100, 1, 1, 90, 6]])
def test_compressed_counts(counts):
    assert run_lengths(compressed(counts)).tolist() == counts
    assert run_lengths(compressed(counts).encode()).tolist() == counts
    assert run_lengths(counts).tolist() == counts


def test_counts_of_a_large_mask():
    rng = np.random.RandomState(0)
    mask = np.asfortranarray(rng.rand(900, 1300) < 0.001, dtype=np.uint8)
    mask[:, 400:900] = 1
    runs = run_lengths(mask_utils.encode(mask)["counts"])
    assert runs.sum() == mask.size and runs[1::2].sum() == mask.sum()


@pytest.mark.parametrize("counts", [
    "", b"", "zzzz", "é", " ", "0\n", "P", "00?", None, 5, {}, [-1, 5], [1.5], [float("nan")],
    [1 << 32], [10 ** 400], ["5"], "oooooooooo0", "5N"])
def test_counts_that_mean_nothing(counts):
    runs = run_lengths(counts)
    assert runs is None or runs.sum() != HEIGHT * WIDTH
    assert to_rle({"size": [HEIGHT, WIDTH], "counts": counts}, HEIGHT, WIDTH) is None


def test_negative_runs_are_refused():
    # From the fourth number on the text holds differences: 3, 3, 3, then 3 - 5.
    assert run_lengths("333K") is None
    assert run_lengths("3330").tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("size", [[WIDTH, HEIGHT], [HEIGHT, WIDTH, 1], None, "30x40"])
def test_size_must_be_that_of_the_image(size):
    assert to_rle({"size": size, "counts": [HEIGHT * WIDTH]}, HEIGHT, WIDTH) is None
    assert to_rle({"counts": [HEIGHT * WIDTH]}, HEIGHT, WIDTH) is None


def test_valid_forms_are_kept():
    whole = {"size": [HEIGHT, WIDTH], "counts": [100, 60, 1040]}
    assert mask_utils.area(to_rle(whole, HEIGHT, WIDTH)) == 60
    text = {"size": [HEIGHT, WIDTH], "counts": compressed([100, 60, 1040])}
    assert to_rle(text, HEIGHT, WIDTH) == text
    floats = {"size": [HEIGHT, WIDTH], "counts": [100.0, 60.0, 1040.0]}
    assert mask_utils.area(to_rle(floats, HEIGHT, WIDTH)) == 60


@pytest.mark.parametrize("parts, area", [
    ([SQUARE], 100), ([SQUARE, [25, 5, 35, 5, 35, 15, 25, 15]], 200), ([SQUARE, SQUARE], 100),
    ([[1, 2, 3, 4], SQUARE], 100), ([SQUARE, [5, 5]], 100), ([SQUARE, [float("inf")] * 8], 100),
    ([SQUARE, [0, 0, 2e6, 0, 2e6, 9]], 100), ([[-500, -500, 900, -500, 900, 900, -500, 900]], 1200),
    ([[]], None), ([], None), ([[1, 2, 3, 4]], None), ([["1"] * 8], None), ("text", None),
    (None, None)])
def test_polygons(parts, area):
    rle = to_rle(parts, HEIGHT, WIDTH)
    assert (rle if rle is None else mask_utils.area(rle)) == area


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text("0123456789:;<=>?@PQRSTNoabK\n", max_size=12), st.binary(max_size=12),
                 st.lists(st.integers(-3, 1300), max_size=5)))
def test_whatever_passes_is_a_mask(counts):
    rle = to_rle({"size": [HEIGHT, WIDTH], "counts": counts}, HEIGHT, WIDTH)
    if rle is not None:
        mask = mask_utils.decode(rle)
        assert mask.shape == (HEIGHT, WIDTH) and mask.max() <= 1
        assert mask.sum() == mask_utils.area(rle) == run_lengths(counts)[1::2].sum()
