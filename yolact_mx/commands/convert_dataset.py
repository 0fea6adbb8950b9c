"""Convert a labelme, Pascal VOC, SBD or YOLO segmentation data set to COCO json.

Writes instances_train.json, instances_val.json and images/ (links to the pictures, which stay
where they are), as training expects them under --data.

  labelme  a folder of its .json files, at any depth
  voc      VOC2012, with JPEGImages, SegmentationObject, SegmentationClass and
           ImageSets/Segmentation
  sbd      SBD's folder dataset, with img, inst, train.txt and val.txt
  yolo     images, labels and data.yaml; splits as data.yaml says, or images/train, images/val

Prints what is left out, by reason, with the first places of each.
Exit code: 0 clean, 1 faults (the rest was converted), 2 nothing usable.
"""
import shlex
from argparse import ArgumentTypeError
from collections import Counter
from pathlib import Path

from ..cli import command_parser
from ..data.convert import FORMATS, Faults, convert_dataset

EXAMPLES = """examples:
  %(prog)s labelme photos --out my --val-share 0.1
  %(prog)s yolo dataset --out my
  %(prog)s voc VOCdevkit/VOC2012 --out voc
  %(prog)s sbd benchmark_RELEASE/dataset --out sbd
"""


def main(argv=None, prog=None):
    args = parse(argv, prog)
    faults = Faults()
    try:
        contents = convert_dataset(
            args.format, args.folder, args.out, faults, args.classes, args.val_share)
    finally:  # the reasons for "nothing usable" as well
        for line in faults.lines():
            print(line)
    for path, content in contents.items():
        print(summary(path, content))
    print("check:")
    for path in contents:
        print("  tools/check_dataset.py {} --images {}".format(
            shlex.quote(str(path)), shlex.quote(str(Path(args.out) / "images"))))
    return 1 if faults.dropped else 0


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("format", choices=sorted(FORMATS), help="what the data set is in")
    parser.add_argument("folder", help="the data set")
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="folder that gets instances_*.json and images/")
    parser.add_argument("--classes", metavar="FILE",
                        help="class names in their order, one a line; default: labelme's labels, "
                             "sorted; the 20 of Pascal; those of data.yaml")
    parser.add_argument("--val-share", type=share, default=0.0, metavar="SHARE",
                        help="share of the pictures, such as 0.1, that becomes the validation "
                             "set, for a data set without one")
    return parser.parse_args(argv)


def share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ArgumentTypeError("expected a number between 0 and 1, found '{}'".format(text))
    return value


def summary(path, content):
    """Two lines: how many pictures and objects, and how many of each class."""
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    counts = Counter(names[entry["category_id"]] for entry in content["annotations"])
    empty = len(content["images"]) - len({a["image_id"] for a in content["annotations"]})
    return "{}: {} pictures ({} without objects), {} objects\n  {}".format(
        path, len(content["images"]), empty, len(content["annotations"]),
        ", ".join("{} {}".format(name, counts[name]) for name in names.values()))
