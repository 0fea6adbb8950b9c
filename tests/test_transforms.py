"""Augmentation: hand-worked cases, and image, boxes and masks staying in step."""
from dataclasses import replace

import numpy as np
import pytest

from yolact_mx.data import transforms
from yolact_mx.data.sample import Sample
from yolact_mx.options import AugmentConfig


class Script:
    """A random generator whose draws are given: integers, or shares of the range asked for."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def randint(self, high):
        draw = self.draws.pop(0)
        assert isinstance(draw, int) and 0 <= draw < high
        return draw

    def uniform(self, low, high):
        draw = self.draws.pop(0)
        assert isinstance(draw, float)
        return low + draw * (high - low)


def make_sample(boxes, width=20, height=10, crowd=None, image=None):
    """Objects whose masks fill their (whole-pixel) boxes; image noise unless given."""
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    masks = np.zeros((len(boxes), height, width), np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes.astype(int)):
        mask[y1:y2, x1:x2] = 1
    if image is None:
        image = np.random.RandomState(0).randint(0, 256, (height, width, 3)).astype(np.uint8)
    n = len(boxes)
    return Sample(image, boxes, np.arange(n), masks, np.array(crowd or [False] * n, bool),
                  np.ones(n, bool), image_id=7)


def random_sample(seed, width=40, height=30, objects=4):
    rng = np.random.RandomState(seed)
    x1, y1 = rng.randint(0, width - 4, objects), rng.randint(0, height - 4, objects)
    x2, y2 = [a + 1 + rng.randint(0, b - a) for a, b in ((x1, width), (y1, height))]
    return make_sample(np.stack([x1, y1, x2, y2], 1), width, height,
                       crowd=list(np.arange(objects) == objects - 1))


def mask_boxes(masks):
    return [[np.flatnonzero(m.any(0))[0], np.flatnonzero(m.any(1))[0],
             np.flatnonzero(m.any(0))[-1] + 1, np.flatnonzero(m.any(1))[-1] + 1] for m in masks]


def test_expand_places_the_image_on_a_mean_canvas():
    sample = make_sample([[2, 1, 6, 5]])
    # expand; ratio 1 + 1/3 * (4 - 1) = 2; left 0.35 * 20 = 7; top 0.55 * 10 = 5.5
    out = transforms.expand(sample, Script(0, 1 / 3, 0.35, 0.55))
    assert out.image.shape == (20, 40, 3) and out.masks.shape == (1, 20, 40)
    np.testing.assert_array_equal(out.image[5:15, 7:27], sample.image)
    np.testing.assert_array_equal(out.boxes, [[9, 6, 13, 10]])
    assert mask_boxes(out.masks) == [[9, 6, 13, 10]] and out.masks.sum() == 16
    as_float = transforms.expand(replace(sample, image=sample.image.astype(np.float32)),
                                 Script(0, 1 / 3, 0.35, 0.55))
    np.testing.assert_array_equal(as_float.image[0, 0], np.float32(transforms.MEAN_BGR))


def test_crop_clips_boxes_and_drops_objects_whose_centre_is_outside():
    sample = make_sample([[2, 1, 9, 5], [0, 0, 4, 4], [12, 2, 18, 10]])
    # width 6 + 0.5 * 14 = 13, height 3 + 0.75 * 7 = 8.25; left 0.5 * 7 = 3.5, top 0.5 * 1.75
    out = transforms.random_crop(sample, Script(3, 0.5, 0.75, 0.5, 0.5))
    np.testing.assert_array_equal(out.image, sample.image[0:9, 3:16])
    np.testing.assert_array_equal(out.labels, [0, 2])  # centres 5.5 and 15; 2 is left of 3
    np.testing.assert_array_equal(out.boxes, [[0, 1, 6, 5], [9, 2, 13, 9]])
    assert mask_boxes(out.masks) == [[0, 1, 6, 5], [9, 2, 13, 9]]
    np.testing.assert_array_equal(sample.boxes[0], [2, 1, 9, 5])  # the input is left alone


def test_crop_needs_an_object_that_is_no_crowd():
    sample = make_sample([[14, 1, 18, 5], [0, 0, 6, 6]], crowd=[False, True])
    left_half, right_half = (0.3, 1.0, 0.0, 0.0), (0.3, 1.0, 1.0, 0.0)  # 10.2 pixels wide
    out = transforms.random_crop(sample, Script(1, *left_half, *right_half))
    np.testing.assert_array_equal(out.labels, [0])
    np.testing.assert_array_equal(out.boxes, [[5, 1, 9, 5]])  # left = int(20 - 10.2)


def test_crop_one_choice_of_six_and_unsuitable_images_stay_whole():
    sample = make_sample([[2, 1, 9, 5]])
    assert transforms.random_crop(sample, Script(0)).image.shape == (10, 20, 3)
    panorama = make_sample([[2, 1, 9, 5]], width=200)  # no crop of it has an aspect above 0.5
    out = transforms.random_crop(panorama, np.random.RandomState(0))
    np.testing.assert_array_equal(out.image, panorama.image)


@pytest.mark.parametrize("sample", [make_sample([]), make_sample([[0, 0, 20, 10]], crowd=[True])],
                         ids=["no objects", "only a crowd"])
def test_crop_of_a_negative_image_is_free(sample):
    out = transforms.random_crop(sample, Script(1, 0.5, 0.75, 0.5, 0.5))
    np.testing.assert_array_equal(out.image, sample.image[0:9, 3:16])
    assert out.masks.shape == (len(out), 9, 13) and out.boxes.shape == (len(out), 4)


def test_crop_offsets_reach_both_ends():
    """The reference's ``uniform(W - w)`` takes that as the lower end, with 1.0 as the upper."""
    sample = make_sample([[0, 0, 20, 10]])
    out = transforms.random_crop(sample, Script(1, 0.5, 0.75, 0.0, 0.0))
    np.testing.assert_array_equal(out.image, sample.image[:8, :13])
    out = transforms.random_crop(sample, Script(1, 0.5, 0.75, 1.0, 1.0))
    np.testing.assert_array_equal(out.image, sample.image[1:10, 7:20])


def test_mirror_twice_is_the_identity():
    sample = make_sample([[2, 1, 9, 5]])
    once = transforms.mirror(sample, Script(1))
    np.testing.assert_array_equal(once.boxes, [[11, 1, 18, 5]])
    np.testing.assert_array_equal(once.image, sample.image[:, ::-1])
    assert mask_boxes(once.masks) == [[11, 1, 18, 5]]
    twice = transforms.mirror(once, Script(1))
    np.testing.assert_array_equal(twice.boxes, sample.boxes)
    np.testing.assert_array_equal(twice.masks, sample.masks)
    np.testing.assert_array_equal(transforms.mirror(sample, Script(0)).image, sample.image)


def test_resize_scales_width_and_height_by_their_own_factor():
    sample = make_sample([[2, 1, 8, 5]])
    out = transforms.resize(sample, (40, 30))
    assert out.image.shape == (30, 40, 3) and out.image.dtype == np.float32
    np.testing.assert_allclose(out.boxes, [[4, 3, 16, 15]])
    assert mask_boxes(out.masks) == [[4, 3, 16, 15]] and out.masks.max() == 1


def test_photometric_by_hand():
    grey = np.full((2, 2, 3), 100, np.uint8)
    sample = make_sample([], 2, 2, image=grey)
    nothing = transforms.photometric(sample, Script(0, 0, 0, 0, 0))
    np.testing.assert_allclose(nothing.image, 100, atol=1e-3)
    # brightness 0.75 of -32..32 = 16; contrast first, 1 of 0.5..1.5 = 1.5: (100 + 16) * 1.5
    out = transforms.photometric(sample, Script(1, 0.75, 1, 1, 1.0, 0, 0))
    np.testing.assert_allclose(out.image, 174, atol=1e-3)
    assert (sample.image == 100).all() and out.image.dtype == np.float32
    # Nothing is clipped, and contrast last reaches values that only exist in float
    out = transforms.photometric(replace(sample, image=grey + 150), Script(0, 0, 0, 0, 1, 1.0))
    np.testing.assert_allclose(out.image, 375, atol=1e-3)


@pytest.mark.parametrize("share, expected", [(1.0, (0, 76.5, 255)), (0.0, (76.5, 0, 255))])
def test_hue_turns_round_the_circle(share, expected):
    """Pure red (BGR) by 18 degrees either way: 18/60 of green or of blue."""
    red = np.tile(np.array([0, 0, 255], np.uint8), (2, 2, 1))
    out = transforms.photometric(make_sample([], 2, 2, image=red), Script(0, 0, 0, 1, share, 0))
    np.testing.assert_allclose(out.image[0, 0], expected, atol=1e-2)


def test_saturation_zero_effect_on_grey_and_half_on_colour():
    blue = np.tile(np.array([200, 100, 100], np.uint8), (1, 1, 1))
    out = transforms.photometric(make_sample([], 1, 1, image=blue), Script(0, 0, 1, 0.0, 0, 0))
    np.testing.assert_allclose(out.image[0, 0], (200, 150, 150), atol=1e-2)  # half of 100 away


def test_drop_small_is_relative_and_strict():
    sample = make_sample([[0, 0, 2, 9], [0, 0, 3, 1], [0, 0, 3, 2], [5, 5, 10, 10]],
                         crowd=[False, False, True, False])
    kept = transforms.drop_small(sample, 0.1)  # more than 2 pixels wide and 1 high
    np.testing.assert_array_equal(kept.labels, [2, 3])
    np.testing.assert_array_equal(kept.crowd, [True, False])
    assert len(transforms.drop_small(make_sample([]))) == 0


def test_normalize_is_rgb_planes():
    image = np.zeros((2, 3, 3), np.uint8)
    image[1, 2] = (30, 20, 10)  # blue, green, red
    planes = transforms.normalize(image, mean=(1, 2, 3), std=(3, 6, 9))
    assert planes.shape == (3, 2, 3) and planes.dtype == np.float32 and planes.flags.c_contiguous
    np.testing.assert_allclose(planes[:, 1, 2], [3, 3, 3])
    np.testing.assert_allclose(planes[:, 0, 0], [-1 / 3, -1 / 3, -1 / 3])


def test_rng_depends_on_seed_epoch_and_index_only():
    draws = {key: transforms.sample_rng(*key).uniform() for key in
             [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2 ** 40)]}
    assert len(set(draws.values())) == 5
    assert transforms.sample_rng(0, 1, 0).uniform() == draws[0, 1, 0]


@pytest.mark.parametrize("objects", [4, 0])
def test_augment_equals_its_parts_one_by_one(objects):
    size = (24, 28)
    # Crops of an expanded negative differ: augment wants to see some of the image in them
    options = AugmentConfig(expand=objects > 0)
    for seed in range(60):
        sample = random_sample(seed, objects=objects)
        image, boxes = sample.image.copy(), sample.boxes.copy()
        ours = transforms.augment(sample, np.random.RandomState(seed), size, options)
        rng = np.random.RandomState(seed)
        step = transforms.photometric(sample, rng)
        step = transforms.expand(step, rng) if options.expand else step
        step = transforms.random_crop(step, rng)
        step = transforms.mirror(step, rng)
        step = transforms.drop_small(transforms.resize(step, size))
        np.testing.assert_allclose(ours.image, step.image, atol=1e-3)
        np.testing.assert_array_equal(ours.masks, step.masks)
        np.testing.assert_allclose(ours.boxes, step.boxes, atol=1e-9)
        np.testing.assert_array_equal(ours.labels, step.labels)
        assert ours.image_id == 7 and len(ours.has_mask) == len(ours.crowd) == len(ours)
        np.testing.assert_array_equal(sample.image, image)
        np.testing.assert_array_equal(sample.boxes, boxes)


def test_boxes_and_masks_stay_in_step():
    """Masks fill their boxes; so they must after every transform of whole pixels."""
    for seed in range(100):
        rng = transforms.sample_rng(seed, 0, 0)
        sample = random_sample(seed)
        for transform in (transforms.expand, transforms.random_crop, transforms.mirror):
            sample = transform(sample, rng)
            np.testing.assert_array_equal(mask_boxes(sample.masks), sample.boxes)
            assert sample.masks.shape[1:] == sample.image.shape[:2]
            assert (sample.masks.sum((1, 2)) == np.prod(
                sample.boxes[:, 2:] - sample.boxes[:, :2], axis=1)).all()


def test_negatives_always_show_some_of_the_image():
    black = make_sample([], 40, 30, image=np.zeros((30, 40, 3), np.uint8))
    options = AugmentConfig(photometric=False)
    for seed in range(300):
        out = transforms.augment(black, np.random.RandomState(seed), (60, 60), options)
        assert out.image.min() < 100  # the canvas around it is brighter


def test_switches():
    off = AugmentConfig(photometric=False, expand=False, crop=False, mirror=False, min_side=0)
    sample = random_sample(3)
    out = transforms.augment(sample, Script(), (30, 30), off)  # draws nothing
    plain = transforms.resize(sample, (30, 30))
    for name in ("image", "boxes", "masks", "labels"):
        np.testing.assert_array_equal(getattr(out, name), getattr(plain, name))


def test_float32_boxes_stay_float32():
    sample = random_sample(1)
    sample = replace(sample, boxes=sample.boxes.astype(np.float32))
    for seed in range(20):
        out = transforms.augment(sample, np.random.RandomState(seed), (30, 30), AugmentConfig())
        assert out.boxes.dtype == np.float32
