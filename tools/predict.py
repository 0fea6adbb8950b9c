#!/usr/bin/env python3
"""Draw the instances that a network finds in pictures.

examples:
  tools/predict.py runs/shapes picture.jpg folder/ --out overlays/
  tools/predict.py runs/shapes/model-symbol.json folder/ --out overlays/ --json found.json
"""

import argparse
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yolact_mx.cli import contexts, positive  # noqa: E402
from yolact_mx.errors import run_tool  # noqa: E402


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source",
        metavar="RUN_DIR_OR_PARAMS",
        help="run folder, .params file or exported NAME-symbol.json",
    )
    parser.add_argument("pictures", nargs="+", help="image files and folders")
    parser.add_argument("--out", default="overlays", metavar="DIR")
    parser.add_argument("--json", metavar="FILE", help="also write box, score, class and RLE mask")
    parser.add_argument("--threshold", type=float, default=0.3, help="lowest score (default 0.3)")
    parser.add_argument("--top-k", type=positive, default=100, help="instances per picture")
    parser.add_argument("--scale", type=positive, default=1, help="enlarge small pictures so much")
    parser.add_argument("--config", help="configuration of a .params file without config.yml")
    parser.add_argument("--ctx", default="cpu", help="cpu | gpu:0")
    args = parser.parse_args(argv)

    from tqdm import tqdm

    from yolact_mx.predict import find_pictures, load_predictor, predict_files

    predictor = load_predictor(args.source, contexts(args.ctx)[0], args.config)
    files, failed = find_pictures(args.pictures), 0
    records = []
    for _, found in tqdm(
        predict_files(predictor, files, args.out, args.threshold, args.top_k, args.scale),
        "predict",
        len(files),
    ):
        if isinstance(found, Exception):
            logging.error("%s", found)
            failed += 1
        else:
            records.extend(found)
    if args.json:
        Path(args.json).write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    print(
        "{} pictures, {} instances: {}{}".format(
            len(files) - failed,
            len(records),
            args.out,
            "; {} pictures could not be read".format(failed) if failed else "",
        )
    )
    return 1 if failed else 0


if __name__ == "__main__":
    run_tool(main)
