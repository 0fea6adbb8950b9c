"""Images per second of one core that the loader makes, beside the reference's steps.

Both sides make batches of training samples with the full augmentation of the same images, in turns
in one process with one thread; a second is one of processor time, so other work on the machine
matters less.  Ours does more: the match of every anchor and the masks at the sizes of the losses
are in its samples, while the reference matches on the GPU and resizes masks there, once more.
"""
import argparse
import contextlib
import json
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import timing  # noqa: F401  (first: it prepares the process for MXNet)

# isort: split
import cv2
import numpy as np
from reference_loader import ReferenceSamples

from yolact_mx.anchors import build_anchors, input_sizes
from yolact_mx.config import load_config
from yolact_mx.data import annotations, images, samples, shapes, views
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.transforms import sample_rng

EXAMPLES = """
examples:
  python benchmarks/loader.py                        on generated shapes of 640 x 480
  python benchmarks/loader.py --scale 6              the same as photos of 11 megapixels
  python benchmarks/loader.py --data coco --rounds 3
  python benchmarks/loader.py --config yolact_plus_resnet50 --batch 4
"""
TILE = (240, 320)  # a generated picture is four scenes of about two objects each
# Stage -> what is timed under its name; a stage within another one counts once, as the inner one
OURS = {
    "decode": [(images.UnreadImage, "read")],
    "masks": [(annotations, "to_rle"), (annotations, "decode_part")],
    "photometric": [(views, "_coloured_planes")],
    "expand, crop, mirror": [(samples, "draw_view")],
    "resize": [(samples, "see_planes"), (samples, "_small_masks")],
    "normalise": [(samples, "normalize_planes")],
    "match": [(samples, "match_anchors")],
    "collate": [(samples, "collate")],
}
REFERENCE = {
    "decode": ["decode"], "masks": ["rasterise"], "photometric": ["photometric"],
    "expand, crop, mirror": ["expand", "crop", "mirror"], "resize": ["resize"],
    "normalise": ["normalise"], "match": [], "collate": ["collate"],
}
LINE = "{:24}{:>12}{:>12}"


class Stages:
    """Seconds of processor time by stage, of functions while they are watched."""

    def __init__(self, table):
        self.seconds = Counter()
        self._table, self._running = table, []

    @contextlib.contextmanager
    def watched(self):
        before = [(owner, name, getattr(owner, name)) for places in self._table.values()
                  for owner, name in places]
        for stage, places in self._table.items():
            for owner, name in places:
                setattr(owner, name, self._timed(stage, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _timed(self, stage, function):
        def timed(*args, **kwargs):
            start = time.process_time()
            self._running.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                passed = time.process_time() - start
                self.seconds[stage] += passed - self._running.pop()
                if self._running:
                    self._running[-1] += passed
        return timed


def generate(folder, count, scale=1):
    """COCO data set of ``count`` pictures of 640 x 480 with about nine shapes each, enlarged
    ``scale`` times (then without those that are no polygons)."""
    (folder / "images").mkdir()
    pictures, entries = [], []
    rows, columns = TILE
    for number in range(1, count + 1):
        picture = np.zeros((2 * rows, 2 * columns, 3), np.uint8)
        for tile in range(4):
            y, x = rows * (tile // 2), columns * (tile % 2)
            scene, instances = shapes.draw_scene(sample_rng(0, number, tile), columns)
            picture[y:y + rows, x:x + columns] = scene[:rows]
            for instance in instances:
                mask = np.zeros(picture.shape[:2], bool)
                mask[y:y + rows, x:x + columns] = instance.mask[:rows]
                entry = enlarged(shapes.annotate(instance._replace(mask=mask)), scale) \
                    if mask.any() else None
                if entry:
                    entries.append(dict(entry, id=len(entries) + 1, image_id=number))
        name = "{}.jpg".format(number)
        picture = cv2.resize(picture, None, fx=scale, fy=scale)
        cv2.imwrite(str(folder / "images" / name), picture)
        pictures.append(dict(id=number, file_name=name, width=picture.shape[1],
                             height=picture.shape[0]))
    categories = [dict(id=k + 1, name=name) for k, name in enumerate(shapes.CLASSES)]
    (folder / "instances_train.json").write_text(json.dumps(
        dict(images=pictures, annotations=entries, categories=categories)), encoding="utf-8")


def enlarged(entry, scale):
    """An annotation of polygons ``scale`` times as large, None for another one."""
    if scale == 1:
        return entry
    if isinstance(entry["segmentation"], dict):
        return None
    return dict(entry, bbox=[scale * value for value in entry["bbox"]],
                segmentation=[[scale * value for value in part] for part in entry["segmentation"]])


def open_data(folder, config):
    """(our samples, the reference's, number of images, objects per image), of the images that
    have objects: the reference leaves out the others."""
    ann_file = sorted(folder.glob("instances_*.json"))[0]
    dataset = CocoDataset(ann_file, folder / "images", keep_empty=False)
    count = len(dataset)
    objects = sum(len(dataset.annotations(i)) for i in range(count)) / count
    _, levels, proto_size = input_sizes(config)
    ours = samples.TrainingSamples(dataset, config, build_anchors(config), levels, proto_size)
    with contextlib.redirect_stdout(None):  # pycocotools says what it does
        reference = ReferenceSamples(str(ann_file), folder / "images", dataset.image_ids,
                                     config.input.size)
    return ours, reference, count, objects


def measure(sides, batches):
    """{name: images per second} of sides {name: samples} that make each batch in turns."""
    seconds = Counter()
    for keys in batches:
        for name, side in sides.items():
            start = time.process_time()
            side.batch(keys)
            seconds[name] += time.process_time() - start
    return {name: sum(map(len, batches)) / seconds[name] for name in sides}


def memory(side, keys):
    """Most bytes that making a batch takes at a time, the batch included."""
    tracemalloc.start()
    side.batch(keys)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def report(sides, batches):
    """Prints images per second, milliseconds by stage and memory of our side and the other."""
    measure(sides, batches[:1])  # warm up
    rates = measure(sides, batches)
    ours, reference = sides.values()
    print(LINE.format("", *sides))
    print(LINE.format("images/s a core", *("{:.1f}".format(rate) for rate in rates.values())))
    tables = [OURS, {stage: [(reference, name) for name in names]
                     for stage, names in REFERENCE.items()}]
    stages = [Stages(table) for table in tables]
    with stages[0].watched(), stages[1].watched():
        again = measure(sides, batches)
    count = sum(map(len, batches))
    for stage in OURS:
        print(LINE.format(stage + ", ms", *("{:.2f}".format(1e3 * side.seconds[stage] / count)
                                            for side in stages)))
    print(LINE.format("all the rest, ms", *(
        "{:.2f}".format(1e3 / rate - 1e3 * sum(side.seconds.values()) / count)
        for rate, side in zip(again.values(), stages))))
    print(LINE.format("memory of a batch, MB", *("{:.0f}".format(
        max(memory(side, keys) for keys in batches[:3]) / 1e6) for side in sides.values())))
    print("ours makes {:.1f} times as many images a second".format(
        rates["ours"] / rates["reference"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR",
                        help="folder with images/ and instances_*.json; default: generated shapes")
    parser.add_argument("--scale", type=int, default=1,
                        help="enlarge the generated pictures so many times")
    parser.add_argument("--config", default="yolact_resnet50")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2, help="epochs that are timed")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    config = load_config(options.config)
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            generate(Path(folder), max(8, 32 // options.scale), options.scale)
        ours, reference, count, objects = open_data(options.data or Path(folder), config)
        batches = samples.EpochBatches(count, min(options.batch, count), 0, 0,
                                       options.rounds * (count // min(options.batch, count)))
        print("{}: {} images of {:.1f} objects, input {}, batches of {}".format(
            options.data or "generated shapes", count, objects, config.input.size,
            options.batch))
        report({"ours": ours, "reference": reference}, list(batches))


if __name__ == "__main__":
    main()
