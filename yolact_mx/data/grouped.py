"""Samples and batches of images in groups: those of a batch have one shape of network input."""

from itertools import count

import numpy as np

from .samples import EpochBatches
from .transforms import sample_rng


class GroupedSamples:
    """What :class:`TrainingSamples` is, for images of several input shapes.

    Parameters
    ----------
    parts : list of TrainingSamples
        Of the same data set, one per group.
    groups : sequence of int
        Group of each image.
    """

    def __init__(self, parts, groups):
        self._parts, self._groups = parts, groups

    def __len__(self):
        return len(self._groups)

    def __getitem__(self, key):
        return self._part(key)[key]

    @property
    def image_values(self):
        return max(part.image_values for part in self._parts)

    def batch(self, keys, memory=None):
        """See :meth:`TrainingSamples.batch`; all ``keys`` are of one group."""
        return self._part(keys[0]).batch(keys, memory)

    def _part(self, key):
        return self._parts[self._groups[key[1]]]


class GroupedBatches(EpochBatches):
    """Indices of every step of a run, those of a step all of one group.

    The images come in the order of :class:`EpochBatches`; a batch is there as soon as one of the
    groups has enough.  Those left when an epoch ends wait for the next, so none is left out and
    none used more often than others; a batch may hold images of several epochs.  All of it
    depends on the seed alone: a run that starts at ``first`` continues the one that was stopped
    there, and all workers go through the same sequence.

    Parameters
    ----------
    groups : sequence of int
        Group of each image.
    """

    def __init__(self, groups, batch_size, seed, first, last, part=(0, 1)):
        super().__init__(len(groups), batch_size, seed, first, last, part)
        self._groups = np.asarray(groups)

    def __iter__(self):
        step = 0
        for batches in self._epochs():
            for batch in batches[max(self._first - step, 0) : max(self._last - step, 0)]:
                yield [(int(epoch), int(index)) for epoch, index in batch[self._own]]
            step += len(batches)
            if step >= self._last:
                return

    def unused(self):
        """How many images are in no batch of the run, because their group is never complete."""
        used, left = np.zeros(self._num_samples, bool), self._last
        for batches in self._epochs():
            used[batches[:left, :, 1]] = True
            left -= len(batches)
            if left <= 0 or used.all():
                return int((~used).sum())

    def _epochs(self):
        """Yields the batches that each epoch completes: (n, batch size, 2), epoch and index."""
        size = self._batch_size
        waiting = {group: np.zeros((0, 2), int) for group in np.unique(self._groups)}
        for epoch in count():
            order = sample_rng(self._seed, epoch, 0).permutation(self._num_samples)
            batches, completed_at = [], []
            for group, left in waiting.items():
                places = np.flatnonzero(self._groups[order] == group)
                new = np.stack([np.full(len(places), epoch), order[places]], axis=1)
                keys = np.concatenate([left, new])
                whole = len(keys) // size
                batches.append(keys[: whole * size].reshape(whole, size, 2))
                completed_at.append(places[np.arange(1, whole + 1) * size - 1 - len(left)])
                waiting[group] = keys[whole * size :]
            yield np.concatenate(batches)[np.argsort(np.concatenate(completed_at))]
