"""Generate the shapes data set, in COCO format."""
from argparse import ArgumentTypeError

from ..cli import command_parser
from ..data.shapes import make_shapes
from ..errors import DatasetError

EXAMPLES = """examples:
  %(prog)s data/shapes --train 4000 --val 200 --size 128
"""


def natural(text):
    if not text.isdigit():
        raise ArgumentTypeError("expected a whole number, found '{}'".format(text))
    return int(text)


def main(argv=None, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
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
