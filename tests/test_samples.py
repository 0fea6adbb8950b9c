"""Samples, batches and their order: hand-worked arrays."""
import numpy as np
import pytest

from yolact_mx.data.sample import Sample
from yolact_mx.data.samples import UNKNOWN, EpochBatches, TrainingSamples, collate
from yolact_mx.errors import ConfigError
from yolact_mx.options import AugmentConfig, Config, InputConfig, TrainConfig

SIDE, PROTO, P3 = 64, (16, 16), (8, 8)
# cx, cy, w, h: the left upper quarter, the right lower quarter, the whole
ANCHORS = np.array([[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], [0.5, 0.5, 1, 1]], np.float32)


def config(**augment):
    return Config(input=InputConfig(size=SIDE, mean=[1, 2, 3], std=[10, 20, 30]),
                  augment=AugmentConfig(**augment), train=TrainConfig(seed=5))


def picture(boxes, labels=None, crowd=None, has_mask=None, side=128):
    """Sample of a blue image with filled boxes (xyxy, pixels of a square image)."""
    count = len(boxes)
    image = np.zeros((side, side, 3), np.uint8)
    image[..., 0] = 200  # BGR
    has_mask = np.array([True] * count if has_mask is None else has_mask, bool)
    masks = np.zeros((count, side, side), np.uint8)
    for mask, (x1, y1, x2, y2), known in zip(masks, boxes, has_mask):
        mask[y1:y2, x1:x2] = known
    return Sample(image, np.array(boxes, np.float32).reshape(-1, 4),
                  np.array([0] * count if labels is None else labels, np.int64), masks,
                  np.array([False] * count if crowd is None else crowd, bool), has_mask, "pic")


def samples(*pictures, augmented=False, **augment):
    return TrainingSamples(list(pictures), config(**augment), ANCHORS, [P3], PROTO, augmented)


def one(*args, **kwargs):
    return samples(picture(*args, **kwargs))[0, 0]


def filled(size, x1, y1, x2, y2, value=1):
    out = np.zeros(size, np.uint8)
    out[y1:y2, x1:x2] = value
    return out


def test_a_sample():
    sample = one([[0, 0, 64, 64], [64, 64, 128, 128]], labels=[2, 1])
    assert sample["image"].shape == (3, SIDE, SIDE) and sample["image"].dtype == np.float32
    # RGB: (0 - 1) / 10, (0 - 2) / 20, (200 - 3) / 30
    np.testing.assert_allclose(sample["image"][:, 5, 5], [-0.1, -0.1, 197 / 30], rtol=1e-6)
    np.testing.assert_array_equal(sample["boxes"], [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
    assert sample["boxes"].dtype == sample["labels"].dtype == np.float32
    assert sample["labels"].tolist() == [2, 1] and sample["image_id"] == "pic"
    # the whole-image anchor has IoU 1/4 with both: background
    assert sample["match"].tolist() == [1, 2, 0] and sample["match"].dtype == np.int32
    np.testing.assert_array_equal(sample["masks"], [filled(PROTO, 0, 0, 8, 8),
                                                    filled(PROTO, 8, 8, 16, 16)])
    np.testing.assert_array_equal(sample["semantic"], [filled(P3, 0, 0, 4, 4),
                                                       filled(P3, 4, 4, 8, 8)])


def test_an_object_without_mask_is_unknown_within_its_box():
    sample = one([[0, 0, 64, 64], [32, 64, 96, 128]], has_mask=[True, False])
    np.testing.assert_array_equal(sample["masks"], [filled(PROTO, 0, 0, 8, 8),
                                                    filled(PROTO, 4, 8, 12, 16, UNKNOWN)])
    np.testing.assert_array_equal(sample["semantic"][1], filled(P3, 2, 4, 6, 8, UNKNOWN))
    assert len(sample["boxes"]) == 2 and set(sample["match"]) >= {1, 2}  # its box is learnt


def test_crowds_are_in_match_only():
    sample = one([[64, 64, 128, 128], [0, 0, 64, 64]], labels=[1, 0], crowd=[True, False])
    assert sample["labels"].tolist() == [0]  # the object behind the crowd has moved up
    assert sample["match"].tolist() == [1, -1, 0]
    np.testing.assert_array_equal(sample["masks"], [filled(PROTO, 0, 0, 8, 8)])
    assert sample["boxes"].shape == (1, 4) and len(sample["semantic"]) == 1


@pytest.mark.parametrize("boxes, crowd, match", [([], [], [0, 0, 0]),
                                                 ([[0, 0, 64, 64]], [True], [-1, 0, 0])])
def test_nothing_to_learn(boxes, crowd, match):
    sample = one(boxes, crowd=crowd)
    assert sample["match"].tolist() == match
    assert sample["boxes"].shape == (0, 4) and sample["labels"].shape == (0,)
    assert sample["masks"].shape == (0,) + PROTO and sample["semantic"].shape == (0,) + P3


def test_augmentation_depends_on_seed_epoch_and_index_only():
    rng = np.random.RandomState(0)
    pictures = [picture([[10, 20, 90, 100]]) for _ in range(2)]
    for item in pictures:
        item.image[:] = rng.randint(0, 256, item.image.shape)
    first, second = (samples(*pictures, augmented=True) for _ in range(2))
    here = first[3, 1]
    first[4, 0], first[3, 0]
    for name, value in second[3, 1].items():
        np.testing.assert_array_equal(value, here[name])
    assert np.abs(here["image"] - first[4, 1]["image"]).max() > 0.01


def test_batch_layout_and_padding():
    pictures = [picture([[0, 0, 64, 64], [64, 64, 128, 128]], labels=[2, 1]),
                picture([]),
                picture([[64, 64, 128, 128], [0, 0, 64, 64]], crowd=[True, False], labels=[0, 2])]
    source = samples(*pictures)
    single = [source[0, i] for i in range(3)]
    batch = collate(single)
    assert {name: value.shape for name, value in batch.items() if hasattr(value, "shape")} == {
        "images": (3, 3, SIDE, SIDE), "match": (3, 3), "gt_boxes": (3, 8, 4),
        "gt_labels": (3, 8), "gt_masks": (3, 8) + PROTO, "gt_semantic": (3, 8) + P3}
    assert batch["gt_masks"].dtype == batch["gt_semantic"].dtype == np.uint8
    assert batch["match"].tolist() == [[1, 2, 0], [0, 0, 0], [1, -1, 0]]
    assert batch["num_positives"] == 3 and batch["image_ids"] == ["pic"] * 3
    assert batch["gt_labels"].tolist() == [[2, 1] + [-1] * 6, [-1] * 8, [2] + [-1] * 7]
    np.testing.assert_array_equal(batch["gt_boxes"][0, :3],
                                  [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 1, 1]])
    np.testing.assert_array_equal(batch["gt_boxes"][1], [[0, 0, 1, 1]] * 8)
    for i, count in enumerate((2, 0, 1)):
        np.testing.assert_array_equal(batch["images"][i], single[i]["image"])
        for name in ("masks", "semantic"):
            np.testing.assert_array_equal(batch["gt_" + name][i, :count], single[i][name])
            assert not batch["gt_" + name][i, count:].any()


@pytest.mark.parametrize("objects, room", [(0, 8), (8, 8), (9, 16), (17, 32), (1025, 1025)])
def test_room_for_objects_is_one_of_a_few_sizes(objects, room):
    """Every other number of objects would be another shape, and another graph."""
    sample = {"image": np.zeros((3, 4, 4), np.float32), "match": np.zeros(2, np.int32),
              "boxes": np.zeros((objects, 4)), "labels": np.zeros(objects),
              "masks": np.zeros((objects, 1, 1)), "semantic": np.zeros((objects, 1, 1)),
              "image_id": 1}
    assert collate([sample])["gt_labels"].shape == (1, room)


def batches(num_samples=7, batch_size=2, seed=1, first=0, last=9):
    return EpochBatches(num_samples, batch_size, seed, first, last)


def test_an_epoch_is_a_permutation_without_the_remainder():
    steps = list(batches())
    assert len(batches()) == len(steps) == 9 and batches().steps_per_epoch == 3
    for epoch in range(3):
        keys = sum(steps[3 * epoch:3 * epoch + 3], [])
        indices = [index for _, index in keys]
        assert {number for number, _ in keys} == {epoch}
        assert len(set(indices)) == 6 and set(indices) <= set(range(7))
    assert all(type(index) is int for step in steps for _, index in step)


def test_epochs_and_seeds_differ():
    steps, other = list(batches(40, 8, last=10)), list(batches(40, 8, seed=2, last=10))
    first, second = ([index for step in part for _, index in step]
                     for part in (steps[:5], steps[5:]))
    assert sorted(first) == sorted(second) == list(range(40)) and first != second
    assert steps != other


def test_resumable_from_any_step():
    steps = list(batches())
    for first in range(9):
        assert list(batches(first=first)) == steps[first:]
        assert len(batches(first=first)) == 9 - first
    assert list(batches(last=4)) == steps[:4]  # the length of a run does not change its order


def test_a_batch_larger_than_the_set():
    assert len(list(batches(7, 7, last=2))) == 2
    with pytest.raises(ConfigError, match="train.batch_size.*at most the 7 training images.*8"):
        batches(7, 8)
