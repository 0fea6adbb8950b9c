"""What was wrong with an annotation file: counts by reason, with the ids concerned."""
from dataclasses import dataclass, field
from typing import Dict, List

IDS_SHOWN = 5

# Every reason there is.  A key names annotations, or images and categories where it says so.
REASONS = {
    "annotation_not_an_object": "the entry is not a json object; # gives its position",
    "annotation_id_missing": "no usable id; # gives the position of the entry",
    "duplicate_annotation": "equal to an earlier annotation of the same image",
    "duplicate_annotation_id": "the id was used before by another annotation",
    "unknown_image_id": "image_id is not in images",
    "unknown_category_id": "category_id is not in categories",
    "ambiguous_image_id": "image_id is used by several images, so the image is unknown",
    "iscrowd_invalid": "iscrowd is neither 0 nor 1; taken as 0",
    "box_not_four_numbers": "bbox is not a list of four finite numbers",
    "box_no_size": "width or height of bbox is zero or negative",
    "box_outside": "bbox lies outside the image",
    "box_clipped": "bbox reaches outside the image; clipped",
    "box_not_around_mask": "bbox and segmentation overlap by less than half; "
                           "the box of the segmentation is used",
    "segmentation_missing": "no segmentation",
    "segmentation_empty": "segmentation is empty",
    "segmentation_unknown": "segmentation is neither a list of polygons nor an RLE",
    "polygon_too_short": "polygon part of fewer than 6 numbers; removed",
    "polygon_odd_length": "polygon part with an odd number of values; removed",
    "polygon_not_numeric": "polygon part that is not a list of numbers; removed",
    "polygon_not_finite": "polygon part with NaN or infinite values; removed",
    "polygon_outside": "polygon part outside the image; removed",
    "polygon_far_outside": "polygon part reaching absurdly far out of the image; removed",
    "polygon_degenerate": "polygon part that covers no pixel; removed",
    "polygon_clipped": "polygon part reaching outside the image; clipped",
    "rle_size_mismatch": "size of the RLE is not [height, width] of the image",
    "rle_bad_counts": "counts of the RLE are damaged or do not add up to its size",
    "rle_empty": "the RLE covers no pixel",
    "box_only": "kept with its box alone, without a mask",
    "image_id_ambiguous": "images: several files under one id; left out",
    "image_repeated": "images: the same entry more than once; counted once",
    "image_file_repeated": "images: another id has the same file",
    "image_size_missing": "images: no usable width and height; taken from the image file",
    "image_unusable": "images: the file is missing, damaged or of another size",
    "category_repeated": "categories: the same entry more than once; counted once",
    "category_name_repeated": "categories: another id has the same name; the id was appended",
}


@dataclass
class DatasetReport:
    """Counts of one annotation file; filled by the reader, read by the tools.

    images, annotations: entries in the file, usable or not.
    crowds: usable annotations with ``iscrowd`` 1.
    empty_images: ids of images without a usable object.
    crowd_only_images: ids of images all of whose objects are crowds.
    images_left_out: listed images that the data set does not serve.
    dropped: reason -> ids of annotations that are not used; each one under one reason.
    warnings: reason -> ids of annotations (or images, categories) used after a repair.
    """
    images: int = 0
    annotations: int = 0
    crowds: int = 0
    empty_images: List = field(default_factory=list)
    crowd_only_images: List = field(default_factory=list)
    images_left_out: int = 0
    dropped: Dict[str, List] = field(default_factory=dict)
    warnings: Dict[str, List] = field(default_factory=dict)

    def drop(self, reason, identity):
        """Count an annotation that is not used."""
        self.dropped.setdefault(reason, []).append(identity)

    def warn(self, reason, identity):
        """Count an annotation, image or category that is used after a repair."""
        self.warnings.setdefault(reason, []).append(identity)

    @property
    def num_dropped(self):
        return sum(map(len, self.dropped.values()))

    @property
    def clean(self):
        """True when nothing was dropped and nothing had to be repaired."""
        return not self.dropped and not self.warnings

    def to_dict(self):
        """``{"images": n, "annotations": n, "dropped": {reason: ids}, "warnings": ...}``."""
        return {"images": self.images, "annotations": self.annotations,
                "dropped": self.dropped, "warnings": self.warnings}

    def summary(self):
        """The report as a list of lines, for a terminal."""
        lines = ["{} images: {} without objects, {} with crowds only, {} left out".format(
                     self.images, len(self.empty_images), len(self.crowd_only_images),
                     self.images_left_out),
                 "{} annotations: {} usable ({} of them crowds), {} dropped".format(
                     self.annotations, self.annotations - self.num_dropped, self.crowds,
                     self.num_dropped)]
        if 2 * self.crowds > self.annotations:
            lines.append("note: {:.0f} % of the annotations are crowds (iscrowd=1); these are "
                         "regions to ignore and never learnt, is that intended?".format(
                             100 * self.crowds / self.annotations))
        lines += _reason_lines("dropped", self.dropped)
        lines += _reason_lines("warnings", self.warnings)
        return lines + ["no faults found"] if self.clean else lines


def _reason_lines(title, reasons):
    lines = ["{}:".format(title)] if reasons else []
    for reason, ids in sorted(reasons.items()):
        shown = ", ".join(map(repr, ids[:IDS_SHOWN])) + (", ..." if len(ids) > IDS_SHOWN else "")
        lines.append("  {}: {} ({}): {}".format(reason, len(ids), REASONS[reason], shown))
    return lines
