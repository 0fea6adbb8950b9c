"""Train YOLACT or YOLACT++ on a data set in COCO format.
"""
import logging

from ..cli import command_parser, contexts, data_paths, positive

EXAMPLES = """examples:
  %(prog)s shapes --data data/shapes --out runs/shapes
  %(prog)s yolact_mobilenet --train-ann train.json --train-images train/ \\
      --val-ann val.json --val-images val/ model.backbone.weights=mobilenetv2.params
  %(prog)s yolact_plus_resnet50 --data coco --ctx gpu:0,1 model.backbone.weights=imagenet
  %(prog)s shapes --data data/shapes --out runs/shapes --resume
  launch.py -n 4 -- %(prog)s yolact_resnet50 --data coco --kvstore dist_sync  # docs/distributed.md
"""


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("config", help="name in configs/ or a YAML file")
    parser.add_argument(
        "overrides", nargs="*", metavar="key.sub=value", help="change any configuration key"
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="DIR",
        help="folder with instances_train.json, instances_val.json and images/",
    )
    data.add_argument("--train-ann", metavar="FILE", help="COCO json of the training set")
    data.add_argument("--train-images", metavar="DIR")
    data.add_argument("--val-ann", metavar="FILE", help="COCO json of the validation set")
    data.add_argument("--val-images", metavar="DIR")
    parser.add_argument("--out", metavar="RUN_DIR", help="default: runs/CONFIG")
    parser.add_argument("--ctx", default="cpu", help="cpu | gpu:0 | gpu:0,1 | cpu:0,1")
    parser.add_argument(
        "--kvstore",
        choices=("dist_sync", "dist_device_sync", "horovod"),
        help="train as one of several workers; train.batch_size is that of all together",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="stop after so many steps")
    length.add_argument("--epochs", type=positive, help="stop after so many epochs")
    parser.add_argument("--no-augment", action="store_true", help="only resize the images")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--pretrained",
        metavar="FILE.params",
        help="start from these parameters, as far as they fit",
    )
    start.add_argument("--resume", action="store_true", help="continue the run in --out")
    return parser.parse_intermixed_args(argv)


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from ..distributed import connect  # of a server it does not return

    workers, devices = connect(args.kvstore, contexts(args.ctx))
    with workers:
        if workers.rank:
            logging.getLogger().setLevel(logging.WARNING)  # worker 0 says it all
        run(args, workers, devices)


def run(args, workers, devices):
    from ..config import load_config
    from ..data.coco import CocoDataset, require_trainable
    from ..evaluate import format_table
    from ..trainer import Trainer

    config = load_config(args.config, args.overrides)
    train, val = data_paths(args)
    train_set = CocoDataset(
        *train, classes=config.classes or None, keep_empty=config.train.keep_empty
    )
    require_trainable(train_set)
    val_set = CocoDataset(*val, classes=train_set.classes) if val else None
    for name, data in (("training", train_set), ("validation", val_set)):
        for line in data.report.summary() if data else ():
            logging.info("%s: %s", name, line)
    config.classes = list(train_set.classes)
    steps = args.steps or (
        args.epochs and args.epochs * (len(train_set) // config.train.batch_size)
    )
    trainer = Trainer(
        config,
        train_set,
        val_set,
        args.out or "runs/" + config.name,
        devices,
        steps,
        augmented=not args.no_augment,
        workers=workers,
    )
    if args.pretrained:
        trainer.load_pretrained(args.pretrained)
    if args.resume:
        trainer.resume()
    logging.info(
        "%d images, %d classes; %d steps of %d images, lr %g",
        len(train_set),
        len(config.classes),
        trainer.steps,
        config.train.batch_size,
        trainer.schedule.lr,
    )
    metrics = trainer.fit()
    if metrics:
        print(format_table(metrics))
    if workers.rank == 0:
        print("weights and log: {}".format(trainer.out_dir))
