"""COCO box and mask AP of a network, or of a COCO results file.
"""
import json
from pathlib import Path

from ..cli import command_parser, contexts, positive
from ..errors import ConfigError

EXAMPLES = """examples:
  %(prog)s runs/shapes --ann data/shapes/instances_val.json --images data/shapes/images
  %(prog)s runs/shapes/model-symbol.json --ann val.json --images val/ --out runs/shapes/eval
  %(prog)s --results results.json --ann val.json
  %(prog)s runs/shapes --ann val.json --images val/ --plots report/ detect.nms=greedy
"""


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument(
        "source",
        nargs="?",
        metavar="RUN_DIR_OR_PARAMS",
        help="run folder, .params file or exported NAME-symbol.json",
    )
    parser.add_argument("overrides", nargs="*", metavar="key.sub=value")
    parser.add_argument("--ann", required=True, metavar="FILE", help="COCO json of the truth")
    parser.add_argument("--images", metavar="DIR")
    parser.add_argument("--results", metavar="FILE", help="score this COCO results file instead")
    parser.add_argument("--config", help="configuration of a .params file without config.yml")
    parser.add_argument(
        "--out", metavar="DIR", help="where results and metrics.json go (default: RUN_DIR/eval)"
    )
    parser.add_argument(
        "--max-dets",
        type=positive,
        default=100,
        metavar="N",
        help="detections per image and class that count (COCO: 100)",
    )
    parser.add_argument(
        "--plots",
        metavar="DIR",
        help="write report.html: curves, confusion matrix, best and worst images",
    )
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--ctx", default="cpu", help="cpu | gpu:0")
    args = parser.parse_intermixed_args(argv)
    if args.results and args.source and "=" not in args.source:
        parser.error("give a network or --results, not both")
    return args


def evaluate_network(args):
    """Detect on all images; returns the evaluator."""
    from tqdm import tqdm

    from ..data.coco import CocoDataset
    from ..evaluate import CocoEvaluator
    from ..predict import load_predictor

    if not (args.source and args.images):
        raise ConfigError("name a network and --images DIR, or --results FILE")
    predictor = load_predictor(args.source, contexts(args.ctx)[0], args.config, args.overrides)
    dataset = CocoDataset(args.ann, args.images, classes=predictor.classes)
    evaluator = CocoEvaluator(args.ann, dataset.category_ids, args.max_dets)
    for image_id, found in tqdm(predictor.over(dataset, args.batch), "evaluate", len(dataset)):
        evaluator.process(image_id, found)
    return evaluator


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from ..evaluate import CocoEvaluator, format_table

    if args.results:
        evaluator = CocoEvaluator(args.ann, max_dets=args.max_dets)
        evaluator.load_results(args.results)
    else:
        evaluator = evaluate_network(args)
    metrics = evaluator.evaluate()
    print(format_table(metrics))
    source = Path(args.source) if args.source else None
    out = (
        Path(args.out)
        if args.out
        else ((source if source.is_dir() else source.parent) / "eval" if source else None)
    )
    if out:
        out.mkdir(parents=True, exist_ok=True)
        if not args.results:
            evaluator.write_results(out)
        (out / "metrics.json").write_text(
            json.dumps(metrics, indent=1, ensure_ascii=False), encoding="utf-8"
        )
        print("results and metrics: {}".format(out))
    if args.plots:
        from ..eval_report import write_report

        print("report: {}".format(write_report(args.plots, evaluator, args.images)))
