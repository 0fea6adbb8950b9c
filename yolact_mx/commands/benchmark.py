"""Seconds, memory and FLOPs of configurations on this machine: inference and training.

For each configuration a table, in Markdown, of its phases: median, least and most seconds, CPU
seconds, images a second, and the share of the machine's speed at a matrix product (GEMM) of the
same number format, measured in the same run.  Each measurement has a process of its own, so its
peak memory is its own, too.

  inference  pictures of 640 x 480 to detect.max_detections instances each, with masks of that
             size; weights are random (times hardly depend on them)
  training   steps as the trainer takes them; weights stay as they are

Phases are measured one at a time, each waited for; in whole steps they overlap, so the total is
measured separately.  FLOPs are those of convolutions and matrix products, one multiply-add being
two, and three times the forward pass for a training step.
"""
import json
import os
from pathlib import Path

from ..cli import command_parser, contexts, positive
from ..errors import ConfigError, UserError
from ..runtime import available_cores

EXAMPLES = """examples:
  %(prog)s yolact_resnet50
  %(prog)s yolact_mobilenet yolact_im400 --what inference --rounds 9
  %(prog)s yolact_resnet50 --what inference --dtype int8 --threads 1
  %(prog)s yolact_mobilenet --what training --batch 16 --data my train.workers=4
  %(prog)s shapes --size 256 --json figures.json detect.nms=greedy
"""
DTYPES = ("float32", "bfloat16", "int8")


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("names", nargs="+", metavar="CONFIG",
                        help="names in configs/ or YAML files; among them key.sub=value, which "
                             "changes any configuration key of all")
    parser.add_argument("--what", choices=("inference", "training", "both"), default="both")
    parser.add_argument("--batch", type=positive, metavar="N",
                        help="images (default: 1 for inference, train.batch_size for training)")
    parser.add_argument("--size", type=positive, metavar="PIXELS",
                        help="side of the network's square input (default: input.size)")
    parser.add_argument("--threads", type=positive, metavar="N",
                        help="of MXNet (default: OMP_NUM_THREADS, or one a core)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32",
                        help="of convolutions (default: float32); in training bfloat16 is "
                             "train.amp; int8, with the ranges of random pictures, is for "
                             "inference alone")
    parser.add_argument("--ctx", default="cpu", help="cpu | gpu:0")
    parser.add_argument("--rounds", type=positive, default=5,
                        help="how often everything is timed, after a round that is not (default: "
                             "5)")
    parser.add_argument("--data", metavar="DIR",
                        help="data set to train on, instances_train.json and images/ (default: "
                             "generated pictures of 640 x 640 with two or three objects)")
    parser.add_argument("--json", metavar="FILE", help="also write all figures there")
    args = parser.parse_intermixed_args(argv)
    args.overrides = [name for name in args.names if "=" in name]
    args.names = [name for name in args.names if "=" not in name]
    if not args.names:
        parser.error("name at least one configuration")
    if args.dtype == "int8" and args.what == "training":
        parser.error("--dtype int8 is for inference")
    if args.data and args.what == "inference":
        parser.error("--data DIR is for training")
    return args


def main(argv=None, prog=None):
    args = parse(argv, prog)
    check(args)
    from ..benchmark import markdown, measure, with_rates

    tasks = ("inference", "training") if args.what == "both" else (args.what,)
    common = dict(threads=args.threads or default_threads(), rounds=args.rounds, ctx=args.ctx)
    peaks, results = {}, []
    for name in args.names:
        for task in tasks:
            own = ({"dtype": args.dtype, "batch": args.batch or 1} if task == "inference" else
                   {"data": args.data, "batch": args.batch})
            result = measure(task, config=name, overrides=args.overrides, **common, **own)
            dtype = result["dtype"]
            peaks[dtype] = peaks.get(dtype) or measure("gemm", dtype=dtype, **common)
            results.append(with_rates(result, peaks[dtype]))
            print(markdown(results[-1]), flush=True)
    if args.json:
        content = {"cores": available_cores(), "load_average": os.getloadavg()[0], "gemm": peaks,
                   "results": results}
        Path(args.json).write_text(json.dumps(content, indent=1), encoding="utf-8")


def check(args):
    """Find mistakes before anything is measured; --size becomes an override."""
    from ..config import load_config

    # so that what the user states himself comes last
    args.overrides = (
        (["input.size={}".format(args.size)] if args.size else [])
        + (["train.amp=true"] if args.dtype == "bfloat16" else [])
        + args.overrides
    )
    for name in args.names:
        load_config(name, args.overrides)
    devices = contexts(args.ctx)
    if len(devices) > 1:
        raise ConfigError("--ctx {}: expected one device".format(args.ctx))
    if args.dtype != "float32" and devices[0].device_type != "cpu":
        raise ConfigError("--dtype {}: runs on CPUs only, found --ctx {}".format(
            args.dtype, args.ctx))
    if args.data and not (Path(args.data) / "instances_train.json").is_file():
        raise UserError("--data {}: expected instances_train.json there".format(args.data))
    if args.json:
        with open(args.json, "a", encoding="utf-8"):
            pass  # or what has been measured would be lost


def default_threads():
    """What MXNet takes in this process; the runtime has set it, if the user has not."""
    found = os.environ["OMP_NUM_THREADS"]
    if not found.isdigit():
        raise ConfigError("OMP_NUM_THREADS: expected a whole number, found '{}'; --threads "
                          "overrules it".format(found))
    return int(found)
