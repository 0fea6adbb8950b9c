#!/usr/bin/env python
"""Convert weights of the PyTorch reference into a .params file.

Takes the official YOLACT and YOLACT++ checkpoints (yolact_base_54_800000.pth, ...) and
backbone files (resnet50-19c8e357.pth, darknet53.pth); needs PyTorch to read them.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yolact_mx.config import load_config  # noqa: E402
from yolact_mx.convert import convert_file  # noqa: E402
from yolact_mx.errors import run_tool  # noqa: E402

EXAMPLES = """examples:
  %(prog)s yolact_base_54_800000.pth yolact_base.params --config yolact_base
  %(prog)s resnet50-19c8e357.pth resnet50.params --config yolact_resnet50
      then train with: model.backbone.weights=resnet50.params
"""


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN.pth")
    parser.add_argument("target", metavar="OUT.params")
    parser.add_argument("--config", required=True, help="configuration that the weights belong to")
    args = parser.parse_args(argv)
    conversion = convert_file(args.source, args.target, load_config(args.config))
    for theirs, ours, shape in conversion.mapped:
        print("{} -> {} {}".format(theirs, ours, shape))
    for name in conversion.unused:
        print("not used: {}".format(name))
    print("{}: {} parameters, {} entries not used".format(
        args.target, len(conversion.mapped), len(conversion.unused)))


if __name__ == "__main__":
    run_tool(main)
