"""Training samples and batches as NumPy arrays: what the loader's processes compute."""

from dataclasses import replace

import cv2
import numpy as np

from ..errors import ConfigError
from ..targets import match_anchors
from .transforms import draw_view, normalize_planes, sample_rng
from .views import View, each_mask, see_boxes, see_planes, whole

UNKNOWN = 255  # mask pixels of an object of which only the box is known
# Ground truths are padded to one of these counts, so that few shapes of graph are needed
_BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)


class TrainingSamples:
    """``samples[(epoch, index)]`` -> the arrays of one training sample (NumPy).

    image (3, H, W) float32 normalised RGB; match (N,) int32; boxes (n, 4) float32 relative;
    labels (n,) float32; masks (n, Hp, Wp) and semantic (n, H3, W3) uint8 0, 1 or UNKNOWN;
    image_id.  Crowds appear in ``match`` only (ignored anchors).

    Parameters
    ----------
    dataset : CocoDataset, or any list of Sample
    config : Config
    anchors : (N, 4)
    levels : list of (H, W) of P3..P7
    proto_size : (Hp, Wp)
    augmented : bool
        False only resizes the images (for overfitting checks and benchmarks).
    image_size : (H, W), optional
        Of the network input that anchors and sizes are for; by default the square.
    """

    def __init__(
        self, dataset, config, anchors, levels, proto_size, augmented=True, image_size=None
    ):
        self._dataset, self._config, self._anchors = dataset, config, anchors
        # What a crop leaves out need not be decoded
        self._read = getattr(dataset, "unread", dataset.__getitem__)
        self._sizes, self._augmented = (proto_size, levels[0]), augmented
        self._image_size = tuple(image_size or (config.input.size, config.input.size))

    def __len__(self):
        return len(self._dataset)

    def __getitem__(self, key):
        return self.load(key)

    def load(self, key, image=None):
        """The same; ``image``: array that the image is written to, and then is."""
        epoch, index = key
        config, (height, width) = self._config, self._image_size
        sample = self._read(index)
        if self._augmented:
            rng = sample_rng(config.train.seed, epoch, index)
            sample, view = draw_view(sample, rng, (width, height), config.augment)
        else:
            view = View(whole(sample.image), (width, height))
            sample = replace(sample, boxes=see_boxes(sample.boxes, view))
        image = see_planes(sample.image, view, image)
        boxes = sample.boxes / np.array((width, height) * 2, sample.boxes.dtype)
        boxes = boxes.astype(np.float32).reshape(-1, 4)
        objects, loss = ~sample.crowd, config.loss
        match = match_anchors(
            self._anchors,
            boxes[objects],
            boxes[sample.crowd],
            loss.positive_iou,
            loss.negative_iou,
            loss.crowd_iou,
        )
        sample, boxes = sample.keep(objects), boxes[objects]
        masks, semantic = _small_masks(sample, view, boxes, self._sizes)
        return {
            "image": normalize_planes(image, config.input.mean, config.input.std),
            "match": match,
            "boxes": boxes,
            "labels": sample.labels.astype(np.float32),
            "masks": masks,
            "semantic": semantic,
            "image_id": sample.image_id,
        }

    @property
    def image_values(self):
        """Numbers that an image consists of."""
        return 3 * self._image_size[0] * self._image_size[1]

    def batch(self, keys, memory=None):
        """:func:`collate` of the samples of ``keys``; images are written to the start of
        ``memory`` (n,) float32, by default to new one."""
        size = len(keys) * self.image_values
        memory = np.empty(size, np.float32) if memory is None else memory[:size]
        images = memory.reshape((len(keys), 3) + self._image_size)
        return collate([self.load(key, image) for key, image in zip(keys, images)], images)


def _small_masks(sample, view, boxes, sizes):
    """Masks as seen through a view, resized once more, to each of ``sizes`` (rows, columns):
    bilinear without antialias, then > 0.5."""
    small = [np.zeros((len(sample),) + tuple(size), np.uint8) for size in sizes]
    full = np.empty(view.shape, np.float32)
    for i, mask in enumerate(each_mask(sample.masks, view)):
        if mask is not None:
            full[:] = mask
        for out, (rows, columns) in zip(small, sizes):
            if not sample.has_mask[i]:
                x1, y1, x2, y2 = np.round(boxes[i] * (columns, rows, columns, rows)).astype(int)
                out[i, max(y1, 0) : y2, max(x1, 0) : x2] = UNKNOWN
            elif mask is not None:
                out[i] = cv2.resize(full, (columns, rows), interpolation=cv2.INTER_LINEAR) > 0.5
    return small


def collate(samples, images=None):
    """Samples -> a batch: a dict of arrays.  ``images``: those of the samples, already in one.

    images (B, 3, H, W), match (B, N) int32, gt_boxes (B, M, 4), gt_labels (B, M),
    gt_masks (B, M, Hp, Wp), gt_semantic (B, M, H3, W3); num_positives, image_ids.  M is the
    same for all of a batch; padding has the box (0, 0, 1, 1), the label -1 and an empty mask.
    """
    count, room = len(samples), max(len(s["boxes"]) for s in samples)
    room = next((b for b in _BUCKETS if b >= room), room)
    batch = {
        "images": np.stack([s["image"] for s in samples]) if images is None else images,
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
    stopped there.  ``part`` (k, n) is worker k's n-th of every batch.
    """

    def __init__(self, num_samples, batch_size, seed, first, last, part=(0, 1)):
        if num_samples < batch_size:
            raise ConfigError(
                "key 'train.batch_size': expected at most the {} training images, found {}".format(
                    num_samples, batch_size
                )
            )
        self._num_samples, self._batch_size, self._seed = num_samples, batch_size, seed
        self._first, self._last = first, last
        own = batch_size // part[1]
        self._own = slice(part[0] * own, (part[0] + 1) * own)
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
            batch = order[start : start + self._batch_size]
            yield [(epoch, int(i)) for i in batch[self._own]]
