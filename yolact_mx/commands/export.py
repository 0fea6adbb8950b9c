"""Export a trained network, for bare MXNet or for ONNX Runtime.

The graph takes RGB pixels (0..255) of the network's input size and returns finished detections:
boxes, scores, mask_scores, classes and masks at prototype size.  It is read back and compared
with the live network (of the same --dtype) before success is reported.
"""
import re
from argparse import ArgumentTypeError

from ..cli import command_parser
from ..errors import ConfigError

DTYPES = ("float32", "bfloat16", "int8")
SMALLEST = 32  # pixels of a side

EXAMPLES = """examples:
  %(prog)s runs/shapes runs/shapes/model
  %(prog)s runs/shapes runs/shapes/model --format onnx
  %(prog)s runs/shapes runs/shapes/small --dtype int8 --calibration my/images
  %(prog)s runs/shapes runs/shapes/model detect.max_detections=20 detect.nms=cross_class
  %(prog)s runs/keep_ratio runs/keep_ratio/model --size 635x476
"""


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("source", metavar="RUN_DIR_OR_PARAMS")
    parser.add_argument(
        "prefix",
        help="writes PREFIX-symbol.json, PREFIX-0000.params (or PREFIX.onnx) and PREFIX.json",
    )
    parser.add_argument("overrides", nargs="*", metavar="key.sub=value")
    parser.add_argument("--config", help="configuration of a .params file without config.yml")
    parser.add_argument(
        "--format",
        choices=("mxnet", "onnx"),
        default="mxnet",
        help="mxnet: symbol.json and .params (default); onnx: one file, opset 16",
    )
    parser.add_argument(
        "--composed-dcn",
        action="store_true",
        help="deformable convolutions from basic operators, which can be trained on "
        "(always so in ONNX)",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="of the convolutions; bfloat16 and int8 are for CPUs (AVX-512 with BF16 or VNNI), "
        "and tools/eval.py tells what they cost in AP (default: float32)",
    )
    parser.add_argument(
        "--calibration",
        nargs="+",
        metavar="FILE_OR_FOLDER",
        help="pictures whose values int8 takes its ranges from (at most 32 are used)",
    )
    parser.add_argument(
        "--size",
        type=image_size,
        metavar="WIDTHxHEIGHT",
        help="of the input, for a network with input.keep_ratio (default: the square)",
    )
    args = parser.parse_intermixed_args(argv)
    if (args.dtype == "int8") != bool(args.calibration):
        parser.error("--dtype int8 and --calibration go together")
    if args.dtype != "float32" and args.composed_dcn:
        parser.error("--dtype {}: --composed-dcn is for float32".format(args.dtype))
    if args.dtype != "float32" and args.format == "onnx":
        parser.error("--dtype {} is for --format mxnet".format(args.dtype))
    return args


def image_size(text):
    """``635x476`` (width first) -> (476, 635), for argparse."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match or min(map(int, match.groups())) < SMALLEST:
        raise ArgumentTypeError(
            "expected WIDTHxHEIGHT, each at least {} pixels, found '{}'".format(SMALLEST, text))
    return int(match.group(2)), int(match.group(1))


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from ..predict import find_weights

    weights, config = find_weights(args.source, args.config, args.overrides)
    if args.size and not config.input.keep_ratio:
        raise ConfigError(
            "--size is for networks with input.keep_ratio, which '{}' has not: its input is "
            "square, of input.size pixels".format(config.name))
    if args.format == "onnx":
        from ..export_onnx import export_onnx

        worst = export_onnx(config, weights, args.prefix, args.size)
        files = "{p}.onnx, {p}.json"
    else:
        from ..export import calibration_batch, export_network

        pictures = None
        if args.calibration:
            pictures = calibration_batch(config, args.calibration, args.size)
        sampler = "composed" if args.composed_dcn else "mxnet"
        worst = export_network(
            config, weights, args.prefix, sampler, args.dtype, pictures, args.size)
        files = "{p}-symbol.json, {p}-0000.params, {p}.json"
    print(
        "{}: equal to the live network (largest difference {:.2g})".format(
            files.format(p=args.prefix), worst
        )
    )
