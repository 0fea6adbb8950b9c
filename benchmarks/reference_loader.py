"""The reference's way from a COCO annotation to a training sample, written from its description.

Same steps in the same order, with NumPy, OpenCV and pycocotools as there: every mask of an image is
rasterised at full size, and each transform makes a new image and new masks.  Matching is left out:
the reference matches in its loss, on the GPU.
"""
from pathlib import Path

import cv2
import numpy as np
from pycocotools.coco import COCO

MEAN, STD = (103.94, 116.78, 123.68), (57.38, 57.12, 58.40)  # BGR
MIN_SIDE = 4 / 550  # compared with pixels there, so hardly anything is dropped


class ReferenceSamples:
    """``samples.batch(keys)`` -> images (B, 3, S, S), lists of targets (n, 5) and of masks
    (n, S, S); keys are (epoch, index) with an index into ``ids``."""

    def __init__(self, ann_file, image_dir, ids, size):
        self._coco, self._dir, self._ids, self._size = COCO(ann_file), Path(image_dir), ids, size

    def batch(self, keys):
        return self.collate([self.sample(epoch, index) for epoch, index in keys])

    def sample(self, epoch, index):
        rng = np.random.RandomState((epoch, index))
        entries = self._coco.loadAnns(self._coco.getAnnIds(self._ids[index]))
        entries.sort(key=lambda entry: entry["iscrowd"])  # crowds last
        image = self.decode(self._coco.loadImgs(self._ids[index])[0])
        masks = self.rasterise(entries, image)
        boxes = np.array([entry["bbox"] for entry in entries], np.float64)
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([-1 if entry["iscrowd"] else entry["category_id"] for entry in entries])
        image = self.photometric(image.astype(np.float32), rng)
        image, masks, boxes = self.expand(image, masks, boxes, rng)
        image, masks, boxes, labels = self.crop(image, masks, boxes, labels, rng)
        image, masks, boxes = self.mirror(image, masks, boxes, rng)
        image, masks, boxes, labels = self.resize(image, masks, boxes, labels)
        targets = np.hstack([boxes / self._size, labels[:, None]])
        return self.normalise(image), targets, masks

    def decode(self, entry):
        return cv2.imread(str(self._dir / entry["file_name"]))

    def rasterise(self, entries, image):
        masks = np.vstack([self._coco.annToMask(entry).reshape(-1) for entry in entries])
        return masks.reshape((-1,) + image.shape[:2])

    def photometric(self, image, rng):
        image = image.copy()
        if rng.randint(2):
            image += rng.uniform(-32, 32)
        first = rng.randint(2)
        if first:
            image = _contrast(image, rng)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        if rng.randint(2):
            image[:, :, 1] *= rng.uniform(0.5, 1.5)
        if rng.randint(2):
            image[:, :, 0] += rng.uniform(-18, 18)
            image[:, :, 0][image[:, :, 0] > 360] -= 360
            image[:, :, 0][image[:, :, 0] < 0] += 360
        image = cv2.cvtColor(image, cv2.COLOR_HSV2BGR)
        return image if first else _contrast(image, rng)

    def expand(self, image, masks, boxes, rng):
        if rng.randint(2):
            return image, masks, boxes
        height, width, _ = image.shape
        ratio = rng.uniform(1, 4)
        left = int(rng.uniform(0, width * ratio - width))
        top = int(rng.uniform(0, height * ratio - height))
        shape = int(height * ratio), int(width * ratio)
        place = np.s_[top:top + height, left:left + width]
        canvas = np.zeros(shape + (3,), image.dtype)
        canvas[:] = MEAN
        canvas[place] = image
        larger = np.zeros((len(masks),) + shape, masks.dtype)
        larger[(slice(None),) + place] = masks
        return canvas, larger, boxes + [left, top, left, top]

    def crop(self, image, masks, boxes, labels, rng):
        height, width, _ = image.shape
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        while rng.randint(6):
            for _ in range(50):
                w, h = rng.uniform(0.3 * width, width), rng.uniform(0.3 * height, height)
                if not 0.5 <= h / w <= 2:
                    continue
                left, top = rng.uniform(width - w), rng.uniform(height - h)  # as it is there
                x1, y1, x2, y2 = rect = np.array([left, top, left + w, top + h]).astype(int)
                kept = ((centres > rect[:2]) & (centres < rect[2:])).all(1)
                if not (kept & (labels >= 0)).any():
                    continue
                corners = np.clip(boxes[kept].reshape(-1, 2, 2), rect[:2], rect[2:]) - rect[:2]
                return (image[y1:y2, x1:x2], masks[kept][:, y1:y2, x1:x2], corners.reshape(-1, 4),
                        labels[kept])
        return image, masks, boxes, labels

    def mirror(self, image, masks, boxes, rng):
        if not rng.randint(2):
            return image, masks, boxes
        boxes = boxes.copy()
        boxes[:, [0, 2]] = image.shape[1] - boxes[:, [2, 0]]
        return image[:, ::-1], masks[:, :, ::-1], boxes

    def resize(self, image, masks, boxes, labels):
        height, width, _ = image.shape
        size = (self._size, self._size)
        image = cv2.resize(image, size)
        masks = cv2.resize(masks.transpose(1, 2, 0), size).reshape(size + (-1,)).transpose(2, 0, 1)
        boxes = boxes * (np.array(size * 2) / (width, height, width, height))
        large = (boxes[:, 2:] - boxes[:, :2] > MIN_SIDE).all(1)
        return image, masks[large], boxes[large], labels[large]

    def normalise(self, image):
        image = (image.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
        return image[:, :, ::-1].transpose(2, 0, 1)

    def collate(self, samples):
        images, targets, masks = zip(*samples)
        return np.stack(images), targets, masks


def _contrast(image, rng):
    if rng.randint(2):
        image *= rng.uniform(0.5, 1.5)
    return image
