"""Batches of images of one shape: none lost, none preferred, the same for all who make them."""
from collections import Counter

import numpy as np
import pytest

from yolact_mx.data.grouped import GroupedBatches, GroupedSamples
from yolact_mx.errors import ConfigError

GROUPS = [0] * 11 + [4] * 5 + [2] * 3 + [7]  # 20 images


def batches(first=0, last=40, batch_size=4, seed=1, groups=GROUPS, **options):
    return GroupedBatches(groups, batch_size, seed, first, last, **options)


def test_a_batch_is_of_one_group():
    steps = list(batches())
    assert len(steps) == len(batches()) == 40 and batches().steps_per_epoch == 5
    for keys in steps:
        assert len(keys) == 4 and len({GROUPS[index] for _, index in keys}) == 1
        assert all(type(number) is int for key in keys for number in key)


def test_every_image_once_an_epoch():
    """Beyond those that still wait: at most three of each of the four groups."""
    keys = sum(batches(), [])
    assert len(set(keys)) == len(keys) == 160
    seen = Counter(index for _, index in keys)
    for group, size in Counter(GROUPS).items():
        images = [index for index in range(20) if GROUPS[index] == group]
        drawn = sum(seen[index] for index in images)
        epochs = [epoch for epoch, index in keys if GROUPS[index] == group]
        assert drawn % 4 == 0 and max(epochs) < 160 / 20 + 1
        assert max(seen[i] for i in images) - min(seen[i] for i in images) <= 1 + 3 // size
    assert seen[19] == 8  # alone in its group: two batches in eight epochs, with itself
    # what an epoch began is complete, in its order, before the next one's images follow
    for group in set(GROUPS):
        epochs = [epoch for epoch, index in keys if GROUPS[index] == group]
        assert epochs == sorted(epochs)


def test_groups_that_divide_evenly_are_permutations():
    groups = [0, 1] * 8
    steps = list(batches(last=12, groups=groups))
    for epoch in range(3):
        keys = sum(steps[4 * epoch : 4 * epoch + 4], [])
        assert sorted(keys) == [(epoch, index) for index in range(16)]
    kinds = [groups[keys[0][1]] for keys in steps]
    assert sorted(kinds) == [0] * 6 + [1] * 6 and kinds != sorted(kinds)
    assert steps[:4] != [[(0, i) for _, i in keys] for keys in steps[4:8]]


def test_a_run_goes_on_where_it_was_stopped():
    whole = list(batches())
    for first in (0, 1, 5, 17, 39, 40):
        assert list(batches(first=first)) == whole[first:]
    assert list(batches(seed=2)) != whole


@pytest.mark.parametrize("size", [2, 4])
def test_workers_go_through_the_same_sequence(size):
    parts = [list(batches(part=(rank, size))) for rank in range(size)]
    assert [sum(own, []) for own in zip(*parts)] == list(batches())
    assert all(len(keys) == 4 // size for keys in parts[0])


def test_images_that_no_batch_of_the_run_has():
    assert batches(last=40).unused() == 0
    for last in (1, 5, 8, 18):
        used = {index for _, index in sum(batches(last=last), [])}
        assert batches(last=last).unused() == 20 - len(used)
    assert batches(last=1).unused() == 16


def test_too_few_images():
    with pytest.raises(ConfigError, match="train.batch_size.*at most the 20 .*found 21"):
        batches(batch_size=21)


class Part:
    def __init__(self, values):
        self.image_values = values

    def __getitem__(self, key):
        return key, self.image_values

    def batch(self, keys, memory=None):
        return keys, self.image_values, memory


def test_samples_come_from_the_part_of_their_group():
    samples = GroupedSamples([Part(12), Part(30), Part(20)], [2, 0, 2])
    assert len(samples) == 3 and samples.image_values == 30
    assert samples[5, 1] == ((5, 1), 12) and samples[5, 2] == ((5, 2), 20)
    memory = np.zeros(3)
    assert samples.batch([(0, 0), (1, 2)], memory) == ([(0, 0), (1, 2)], 20, memory)
