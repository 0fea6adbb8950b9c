"""Seconds and memory against batch size, image size, number of objects and of classes.

    python benchmarks/scaling.py                                   all, on yolact_mobilenet
    python benchmarks/scaling.py --axis size batch --what inference
    python benchmarks/scaling.py --config yolact_resnet50 --rounds 5 --threads 2

One setting is changed at a time: from a batch of 1, the configuration's input size, 10 objects and
80 classes.  Objects are what a picture holds in training, and detect.max_detections in inference.
"x" is how many times that of the first row a figure is, "/ work" the quotient of two such growths:
above 1 something grows faster than its work.  Times are CPU seconds, which the machine's other
work hardly changes.  Work is the FLOPs of convolutions and matrix products; that of detection is
the values it goes through: scores and pairs of boxes in NMS, pixels of masks.  Memory is what is
taken beyond the libraries.
"""
import argparse
import json
import tempfile
from pathlib import Path

import timing  # noqa: F401  (first: it finds the package)

# isort: split
import cv2
import numpy as np

from yolact_mx.anchors import build_anchors, input_sizes
from yolact_mx.benchmark import measure
from yolact_mx.cli import positive
from yolact_mx.commands.benchmark import default_threads
from yolact_mx.config import load_config
from yolact_mx.nms import GREEDY_CANDIDATES

AXES = {"batch": (1, 2, 4, 8), "size": (138, 256, 700), "objects": (1, 10, 300),
        "classes": (1, 80, 1000)}
BASE = {"batch": 1, "objects": 10, "classes": 80}
PICTURES, SIDE = 4, 512  # of a generated training set: how many, and how large
# Every picture keeps all of its objects, whatever their size
AS_DRAWN = ("train.workers=1", "augment.crop=false", "augment.expand=false", "augment.min_side=0")


def generate(folder, pictures, objects, classes):
    """COCO data set of noise with ``objects`` ellipses each, on a grid, of classes in turn."""
    (folder / "images").mkdir()
    cells = int(np.ceil(np.sqrt(objects)))
    step, radius = SIDE / cells, 0.45 * SIDE / cells
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    ellipse = np.stack([np.cos(angles), 0.8 * np.sin(angles)], axis=1) * radius
    images, entries = [], []
    for image in range(pictures):
        noise = np.random.RandomState(image).randint(0, 256, (SIDE, SIDE, 3), np.uint8)
        cv2.imwrite(str(folder / "images" / "{}.jpg".format(image)), noise)
        images.append(dict(id=image, file_name="{}.jpg".format(image), width=SIDE, height=SIDE))
        for k in range(objects):
            centre = (np.array([k % cells, k // cells]) + 0.5) * step
            points = centre + ellipse
            (x, y), (w, h) = points.min(axis=0), np.ptp(points, axis=0)
            entries.append(dict(
                id=len(entries), image_id=image, category_id=k % classes, iscrowd=0,
                segmentation=[points.ravel().round(2).tolist()], area=float(w * h),
                bbox=[float(x), float(y), float(w), float(h)]))
    names = [dict(id=k, name=name) for k, name in enumerate(names_of(classes))]
    (folder / "instances_train.json").write_text(json.dumps(
        dict(images=images, annotations=entries, categories=names)), encoding="utf-8")


def names_of(classes):
    return ["class{}".format(k) for k in range(classes)]


def point(what, setting, options):
    """The result of one setting, {"batch": ..., "size": ..., "objects": ..., "classes": ...}."""
    common = dict(threads=options.threads, config=options.config, rounds=options.rounds,
                  batch=setting["batch"])
    overrides = options.overrides + ["input.size={}".format(setting["size"])]
    if what == "inference":
        overrides += ["detect.max_detections={}".format(setting["objects"]),
                      "classes=[{}]".format(", ".join(names_of(setting["classes"])))]
        return dict(measure(what, overrides=overrides, **common),
                    values=detection_values(options, setting))
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), max(PICTURES, setting["batch"]), setting["objects"],
                 setting["classes"])
        return measure(what, overrides=overrides + list(AS_DRAWN), data=folder, **common)


def detection_values(options, setting):
    """Scores, pairs of boxes and mask pixels that detection goes through in a batch."""
    config = load_config(options.config, options.overrides + [
        "input.size={}".format(setting["size"])])
    anchors, classes = len(build_anchors(config)), setting["classes"]
    candidates = min(config.detect.top_k, anchors)
    pairs = {"fast": classes * candidates ** 2, "cross_class": candidates ** 2,
             "greedy": min(GREEDY_CANDIDATES, anchors * classes) ** 2}[config.detect.nms]
    pixels = setting["objects"] * int(np.prod(input_sizes(config)[2]))
    return setting["batch"] * (classes * anchors + pairs + pixels)


def figures(result):
    """{title: (number, its format, title of the work it is to be compared with)} of a point."""
    phases, memory = result["phases"], result["peak_mb"] - result["base_mb"]
    found = {"total s": (phases["total"]["median"], "{:.3f}", None)}
    if result["what"] == "inference":
        found["GFLOPs"] = (phases["forward"]["flops"] / 1e9, "{:.2f}", None)
        found["forward"] = (phases["forward"]["cpu"], "{:.3f}", "GFLOPs")
        found["M values"] = (result["values"] / 1e6, "{:.2f}", None)
        found["detection"] = (phases["detection"]["cpu"], "{:.3f}", "M values")
        found["masks"] = (phases["masks"]["cpu"], "{:.4f}", None)
    else:
        found["GFLOPs"] = (result["flops"] / 1e9, "{:.2f}", None)
        found["step"] = (phases["total"]["cpu"], "{:.3f}", "GFLOPs")
        found["load"] = (phases["load"]["cpu"], "{:.4f}", None)
    found["memory MB"] = (memory, "{:.0f}", "GFLOPs")
    return found


def table(axis, what, results):
    """Markdown of the results {value of the axis: result}; the first one is the measure."""
    rows = {value: figures(result) for value, result in results.items()}
    first = next(iter(rows.values()))
    titles = [axis]
    for title, (_, _, work) in first.items():
        titles += [title, "x"] if title != "total s" else [title]
        titles += ["/ work"] if work else []
    lines = ["### {} against {}\n".format(what, axis), "| {} |".format(" | ".join(titles)),
             "|{}".format(" --- |" * len(titles))]
    for value, row in rows.items():
        growth = {title: cell[0] / first[title][0] for title, cell in row.items()}
        cells = [str(value)]
        for title, (number, form, work) in row.items():
            cells.append(form.format(number))
            cells += ["{:.2f}".format(growth[title])] if title != "total s" else []
            cells += ["{:.2f}".format(growth[title] / growth[work])] if work else []
        lines.append("| {} |".format(" | ".join(cells)))
    return "\n".join(lines) + "\n"


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key.sub=value")
    parser.add_argument("--config", default="yolact_mobilenet")
    parser.add_argument("--axis", nargs="+", choices=tuple(AXES), default=tuple(AXES))
    parser.add_argument("--what", choices=("inference", "training", "both"), default="both")
    parser.add_argument("--rounds", type=positive, default=2,
                        help="default 2: three minutes; more are steadier")
    parser.add_argument("--threads", type=positive, default=default_threads())
    return parser.parse_intermixed_args(argv)


def main():
    options = parse()
    base = dict(BASE, size=load_config(options.config, options.overrides).input.size)
    known = {}
    for what in ("inference", "training") if options.what == "both" else (options.what,):
        for axis in options.axis:
            results = {}
            for value in AXES[axis]:
                setting = dict(base, **{axis: value})
                key = (what,) + tuple(sorted(setting.items()))
                if key not in known:
                    known[key] = point(what, setting, options)
                results[value] = known[key]
            print(table(axis, what, results), flush=True)


if __name__ == "__main__":
    main()
