#!/usr/bin/env python3
"""Export a trained network as symbol.json + params that run in bare MXNet.

The graph takes RGB pixels (0..255) of the network's input size and returns finished detections:
boxes, scores, mask_scores, classes and masks at prototype size.  It is read back and compared
with the live network before success is reported.

examples:
  tools/export.py runs/shapes runs/shapes/model
  tools/export.py runs/shapes runs/shapes/model detect.max_detections=20 detect.nms=cross_class
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yolact_mx.errors import run_tool  # noqa: E402


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="RUN_DIR_OR_PARAMS")
    parser.add_argument("prefix", help="writes PREFIX-symbol.json, PREFIX-0000.params, PREFIX.json")
    parser.add_argument("overrides", nargs="*", metavar="key.sub=value")
    parser.add_argument("--config", help="configuration of a .params file without config.yml")
    parser.add_argument(
        "--composed-dcn",
        action="store_true",
        help="deformable convolutions from basic operators, which can be trained on",
    )
    args = parser.parse_intermixed_args(argv)
    from yolact_mx.export import export_network
    from yolact_mx.predict import find_weights

    weights, config = find_weights(args.source, args.config, args.overrides)
    worst = export_network(config, weights, args.prefix, native_dcn=not args.composed_dcn)
    print(
        "{p}-symbol.json, {p}-0000.params, {p}.json: equal to the live network "
        "(largest difference {:.2g})".format(worst, p=args.prefix)
    )


if __name__ == "__main__":
    run_tool(main)
