"""Training samples and batches as NumPy arrays: what the loader's processes compute."""

import cv2
import numpy as np

from ..errors import ConfigError
from ..targets import match_anchors
from .transforms import augment, normalize, resize, sample_rng

UNKNOWN = 255  # mask pixels of an object of which only the box is known
# Ground truths are padded to one of these counts, so that few shapes of graph are needed
_BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)


class TrainingSamples:
    """``samples[(epoch, index)]`` -> the arrays of one training sample (NumPy).

    image (3, S, S) float32 normalised RGB; match (N,) int32; boxes (n, 4) float32 relative;
    labels (n,) float32; masks (n, Hp, Wp) and semantic (n, H3, W3) uint8 0, 1 or UNKNOWN;
    image_id.  Crowds appear in ``match`` only (ignored anchors).

    Parameters
    ----------
    dataset : CocoDataset
    config : Config
    anchors : (N, 4)
    levels : list of (H, W) of P3..P7
    proto_size : (Hp, Wp)
    augmented : bool
        False only resizes the images (for overfitting checks and benchmarks).
    """

    def __init__(self, dataset, config, anchors, levels, proto_size, augmented=True):
        self._dataset, self._config, self._anchors = dataset, config, anchors
        self._sizes, self._augmented = (proto_size, levels[0]), augmented

    def __len__(self):
        return len(self._dataset)

    def __getitem__(self, key):
        epoch, index = key
        config, side = self._config, self._config.input.size
        sample = self._dataset[index]
        if self._augmented:
            rng = sample_rng(config.train.seed, epoch, index)
            sample = augment(sample, rng, (side, side), config.augment)
        else:
            sample = resize(sample, (side, side))
        boxes = (sample.boxes / side).astype(np.float32).reshape(-1, 4)
        objects = ~sample.crowd
        loss = config.loss
        match = match_anchors(
            self._anchors,
            boxes[objects],
            boxes[sample.crowd],
            loss.positive_iou,
            loss.negative_iou,
            loss.crowd_iou,
        )
        masks, semantic = (_resize_masks(sample, boxes, size) for size in self._sizes)
        return {
            "image": normalize(sample.image, config.input.mean, config.input.std),
            "match": match,
            "boxes": boxes[objects],
            "labels": sample.labels[objects].astype(np.float32),
            "masks": masks[objects],
            "semantic": semantic[objects],
            "image_id": sample.image_id,
        }


def _resize_masks(sample, boxes, size):
    """Masks (n, S, S) at ``size`` (rows, columns): bilinear without antialias, then > 0.5."""
    out = np.zeros((len(sample),) + tuple(size), np.uint8)
    for i, mask in enumerate(sample.masks):
        if sample.has_mask[i]:
            small = cv2.resize(
                mask.astype(np.float32), (size[1], size[0]), interpolation=cv2.INTER_LINEAR
            )
            out[i] = small > 0.5
        else:
            x1, y1, x2, y2 = np.round(boxes[i] * (size[1], size[0], size[1], size[0])).astype(int)
            out[i, max(y1, 0) : y2, max(x1, 0) : x2] = UNKNOWN
    return out


def collate(samples):
    """Samples -> a batch: a dict of arrays.

    images (B, 3, S, S), match (B, N) int32, gt_boxes (B, M, 4), gt_labels (B, M),
    gt_masks (B, M, Hp, Wp), gt_semantic (B, M, H3, W3); num_positives, image_ids.  M is the
    same for all of a batch; padding has the box (0, 0, 1, 1), the label -1 and an empty mask.
    """
    count, room = len(samples), max(len(s["boxes"]) for s in samples)
    room = next((b for b in _BUCKETS if b >= room), room)
    batch = {
        "images": np.stack([s["image"] for s in samples]),
        "match": np.stack([s["match"] for s in samples]),
        "gt_boxes": np.tile(np.array([0, 0, 1, 1], np.float32), (count, room, 1)),
        "gt_labels": np.full((count, room), -1, np.float32),
    }
    for name, source in (("gt_masks", "masks"), ("gt_semantic", "semantic")):
        batch[name] = np.zeros((count, room) + samples[0][source].shape[1:], np.uint8)
    for i, sample in enumerate(samples):
        for name, source in (
            ("gt_boxes", "boxes"),
            ("gt_labels", "labels"),
            ("gt_masks", "masks"),
            ("gt_semantic", "semantic"),
        ):
            batch[name][i, : len(sample[source])] = sample[source]
    batch["num_positives"] = int((batch["match"] > 0).sum())
    batch["image_ids"] = [s["image_id"] for s in samples]
    return batch


class EpochBatches:
    """Indices of every step of a run: lists of (epoch, index).

    Each epoch is a new permutation that depends on (seed, epoch) only, and has
    len // batch_size steps; so a run that starts at ``first`` continues exactly the run that was
    stopped there.
    """

    def __init__(self, num_samples, batch_size, seed, first, last):
        if num_samples < batch_size:
            raise ConfigError(
                "key 'train.batch_size': expected at most the {} training images, found {}".format(
                    num_samples, batch_size
                )
            )
        self._num_samples, self._batch_size, self._seed = num_samples, batch_size, seed
        self._first, self._last = first, last
        self.steps_per_epoch = num_samples // batch_size

    def __len__(self):
        return self._last - self._first

    def __iter__(self):
        order, epoch = None, None
        for step in range(self._first, self._last):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = sample_rng(self._seed, epoch, 0).permutation(self._num_samples)
            start = (step % self.steps_per_epoch) * self._batch_size
            yield [(epoch, int(i)) for i in order[start : start + self._batch_size]]
