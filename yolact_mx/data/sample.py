"""One annotated image, as it travels from the COCO reader through the transforms."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass
class Sample:
    """An image and its objects.  The five per-object arrays always have the same length.

    image: (H, W, 3) BGR, uint8 as read or float32 in 0..255 during augmentation; an UnreadImage
        until its pixels are needed.
    boxes: (n, 4) float32 or float64, xyxy, pixels.
    labels: (n,) int64, contiguous foreground classes 0..C-1 (crowds keep their class).
    masks: (n, H, W) uint8, 0 or 1; MaskParts until they are needed.
    crowd: (n,) bool, True for COCO ``iscrowd`` regions (ignore regions, never targets).
    has_mask: (n,) bool, False when only the box of the object is known.
    image_id: id in the annotation file (int or str).
    """

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    masks: np.ndarray
    crowd: np.ndarray
    has_mask: np.ndarray
    image_id: object = 0

    def __len__(self):
        return len(self.boxes)

    def keep(self, index):
        """The sample with only the objects of ``index`` (boolean mask or positions)."""
        return replace(
            self,
            boxes=self.boxes[index],
            labels=self.labels[index],
            masks=self.masks[index],
            crowd=self.crowd[index],
            has_mask=self.has_mask[index],
        )
