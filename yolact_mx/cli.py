"""What several command-line tools need of their arguments."""

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from pathlib import Path

from .errors import ConfigError, DatasetError


def command_parser(description, examples, prog=None):
    """An argument parser that keeps the line breaks; ``%(prog)s`` in the examples is its name.

    prog: how the command was called; by default the name of the script.
    """
    return ArgumentParser(
        prog=prog,
        description=description,
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
    )


def positive(text):
    """A whole number above 0, for argparse."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError("expected a whole number above 0, found {}".format(text))
    return value


def contexts(text):
    """``cpu``, ``gpu:0``, ``gpu:0,1`` or ``cpu:0,1`` -> a list of contexts."""
    import mxnet as mx

    kind, _, ids = text.partition(":")
    try:
        ids = [int(i) for i in (ids or "0").split(",")]
    except ValueError:
        ids = []
    if kind not in ("cpu", "gpu") or not ids:
        raise ConfigError("--ctx: expected cpu, gpu:0, gpu:0,1 or cpu:0,1, found '{}'".format(text))
    if kind == "gpu" and max(ids) >= mx.context.num_gpus():
        raise ConfigError("--ctx {}: this MXNet sees {} GPUs".format(text, mx.context.num_gpus()))
    return [mx.Context(kind, i) for i in ids]


def data_paths(args):
    """((train json, images), (val json, images) or None) from --data or the four single options."""
    if args.data:
        folder = Path(args.data)
        train, val = (
            (folder / "instances_{}.json".format(part), folder / "images")
            for part in ("train", "val")
        )
        if not train[0].is_file():
            raise DatasetError("--data {}: expected instances_train.json there".format(folder))
        return train, val if val[0].is_file() else None
    if not (args.train_ann and args.train_images):
        raise DatasetError("name the data: --data DIR, or --train-ann FILE and --train-images DIR")
    if bool(args.val_ann) != bool(args.val_images):
        raise DatasetError("--val-ann and --val-images go together")
    return (args.train_ann, args.train_images), (
        args.val_ann,
        args.val_images,
    ) if args.val_ann else None
