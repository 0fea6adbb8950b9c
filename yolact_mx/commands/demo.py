"""The whole way once, on generated data: train, evaluate, export, run the export, draw.

Writes OUT/metrics.json, OUT/model-symbol.json + .params, OUT/overlays/*.png, OUT/sheet.png and
OUT/curves.png.
"""
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ..cli import command_parser, positive
from ..errors import UserError

EXAMPLES = """examples:
  %(prog)s --out runs/demo
  %(prog)s --out /tmp/quick --steps 20
"""
TRAIN_IMAGES, VAL_IMAGES, UNSEEN_IMAGES = 4000, 200, 12


def start_afresh(out):
    """Remove an earlier demo; refuse a folder that holds anything else."""
    mark = out / ".demo"
    if mark.is_file():
        shutil.rmtree(str(out))
    elif out.exists() and any(out.iterdir()):
        raise UserError("--out {}: expected a new folder or an earlier demo's".format(out))
    out.mkdir(parents=True, exist_ok=True)
    mark.touch()


def main(argv=None, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("--out", default="runs/demo", metavar="DIR")
    parser.add_argument("--steps", type=positive, help="train less than the configuration says")
    args = parser.parse_args(argv)
    started = time.time()

    import cv2
    import mxnet as mx

    from ..config import configs_dir, load_config
    from ..data.coco import CocoDataset
    from ..data.shapes import make_shapes
    from ..evaluate import format_table
    from ..export import export_network
    from ..trainer import Trainer
    from ..visualize import contact_sheet, plot_history

    config, out = load_config("shapes"), Path(args.out)
    start_afresh(out)
    side = config.input.size
    print("1/5 data: generated shapes, {}x{} pixels".format(side, side))
    make_shapes(out / "data", TRAIN_IMAGES, VAL_IMAGES, side, seed=0)
    train_set, val_set = (
        CocoDataset(out / "data" / "instances_{}.json".format(part), out / "data" / "images")
        for part in ("train", "val"))
    for line in train_set.report.summary():
        print("   ", line)

    print("2/5 training configs/shapes.yml (YOLACT++)")
    config.classes = train_set.classes
    trainer = Trainer(config, train_set, val_set, out, [mx.cpu()], args.steps)
    metrics = trainer.fit()
    print("3/5 evaluation on {} held-out images".format(len(val_set)))
    print(format_table(metrics))
    plot_history(out / "log.jsonl", out / "curves.png")

    print("4/5 export")
    worst = export_network(config, out / "best.params", out / "model")
    print("    {}-symbol.json + .params, equal to the network within {:.1g}".format(
        out / "model", worst))

    print("5/5 the exported graph in bare MXNet on unseen images")
    make_shapes(out / "unseen", 0, UNSEEN_IMAGES, side, seed=1)
    pictures = sorted(str(p) for p in (out / "unseen" / "images").iterdir())
    subprocess.run([sys.executable, str(configs_dir().parent / "examples" / "mxnet_predict.py"),
                    str(out / "model"), "--out", str(out / "overlays")] + pictures, check=True)
    overlays = [cv2.imread(str(p)) for p in sorted((out / "overlays").glob("*.png"))]
    cv2.imwrite(str(out / "sheet.png"), contact_sheet(overlays, columns=4))

    metrics = {kind: metrics[kind] for kind in ("bbox", "segm")}
    metrics["seconds"] = round(time.time() - started, 1)
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    print("box AP {:.3f} AP50 {:.3f}; mask AP {:.3f} AP50 {:.3f}; {:.0f} s: {}".format(
        metrics["bbox"]["AP"], metrics["bbox"]["AP50"], metrics["segm"]["AP"],
        metrics["segm"]["AP50"], metrics["seconds"], out / "metrics.json"))
    print("pictures: {0}/sheet.png, {0}/curves.png, {0}/overlays/".format(out))
