"""Export a trained network, for bare MXNet or for ONNX Runtime.

The graph takes RGB pixels (0..255) of the network's input size and returns finished detections:
boxes, scores, mask_scores, classes and masks at prototype size.  It is read back and compared
with the live network before success is reported.
"""
from ..cli import command_parser

EXAMPLES = """examples:
  %(prog)s runs/shapes runs/shapes/model
  %(prog)s runs/shapes runs/shapes/model --format onnx
  %(prog)s runs/shapes runs/shapes/model detect.max_detections=20 detect.nms=cross_class
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
    return parser.parse_intermixed_args(argv)


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from ..predict import find_weights

    weights, config = find_weights(args.source, args.config, args.overrides)
    if args.format == "onnx":
        from ..export_onnx import export_onnx

        worst, files = export_onnx(config, weights, args.prefix), "{p}.onnx, {p}.json"
    else:
        from ..export import export_network

        worst = export_network(config, weights, args.prefix, native_dcn=not args.composed_dcn)
        files = "{p}-symbol.json, {p}-0000.params, {p}.json"
    print(
        "{}: equal to the live network (largest difference {:.2g})".format(
            files.format(p=args.prefix), worst
        )
    )
