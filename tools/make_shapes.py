#!/usr/bin/env python
"""Generate the shapes data set (COCO format): make_shapes.py DIR [--train N] [--val N] ..."""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yolact_mx.data.shapes import make_shapes  # noqa: E402
from yolact_mx.errors import DatasetError, run_tool  # noqa: E402


def natural(text):
    if not text.isdigit():
        raise argparse.ArgumentTypeError("expected a whole number, found '{}'".format(text))
    return int(text)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", help="folder that gets instances_*.json and images/")
    parser.add_argument("--train", type=natural, default=600, help="training images (600)")
    parser.add_argument("--val", type=natural, default=100, help="validation images (100)")
    parser.add_argument("--size", type=natural, default=160, help="side in pixels (160)")
    parser.add_argument("--seed", type=natural, default=0)
    args = parser.parse_args(argv)
    try:
        make_shapes(args.dir, args.train, args.val, args.size, args.seed)
    except OSError as error:
        raise DatasetError("{}: {}".format(error.filename, error.strerror)) from error
    print("{}: {} training and {} validation images of {}x{} pixels".format(
        args.dir, args.train, args.val, args.size, args.size))


if __name__ == "__main__":
    run_tool(main)
