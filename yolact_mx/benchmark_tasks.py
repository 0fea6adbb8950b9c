"""What a process of ``yolact-mx benchmark`` measures: inference, training, a matrix product.

Phases are measured one at a time: MXNet's engine is waited for between them.  Where they follow
each other without waiting they overlap, and in training loader processes work beside them; so the
total is measured separately, over whole steps, and is no sum of its phases.
"""
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.parameter import Constant

from .benchmark import summary, timed
from .class_names import default_classes
from .cli import contexts
from .config import load_config
from .data.coco import CocoDataset, require_trainable
from .data.loader import build_loader
from .data.shapes import make_shapes
from .data.transforms import normalize_planes
from .detect import build_detector, split_batch, to_image_size
from .errors import UserError
from .graph_cost import count
from .models import build_yolact
from .predict import predictor_of
from .train_step import batch_totals, build_step
from .trainer import BATCH_INPUTS, Trainer
from .training_data import build_batches

GEMM_SIDE = 2048
PICTURE = (480, 640)  # rows and columns of the pictures that instances are found in
_SHAPES_SIDE = 640  # of generated training pictures
# Steps before those that are timed.  The first two compile: forward, then backward, which reaches
# into the interval after them; in the next the engine still takes memory, and the loader fills
_STEADY = 4
# Weights stay as they are: a network that diverges, far from any weights, would be no measure
_NO_LEARNING = ("train.lr=1e-12", "train.warmup_lr=1e-12")
# Every picture gets detect.max_detections instances, whatever random weights find
_ALL_FOUND = ("detect.score_threshold=0",)


class Progress:
    """Says after every round how many of how many are done."""

    def __init__(self, total, answer):
        self._done, self._total, self._answer = 0, total, answer

    def __call__(self):
        self._done += 1
        self._answer({"done": self._done, "of": self._total})


def inference(answer, config, overrides, batch, rounds, folder, dtype="float32", ctx="cpu"):
    """Phases of ``batch`` pictures, from their pixels to instances with masks of their size."""
    config, ctx = read_config(config, _ALL_FOUND + tuple(overrides)), contexts(ctx)[0]
    base, progress = peak_mb(), Progress(2 * (rounds + 1), answer)
    pictures = list(np.random.RandomState(0).randint(0, 256, (batch,) + PICTURE + (3,), np.uint8))
    s = SimpleNamespace()

    def load():
        net = build_yolact(config, len(config.classes), ctx)
        ranges = calibration(config) if dtype == "int8" else None
        s.predictor = predictor_of(config, net, config.classes, ctx, dtype, ranges)
        s.predictor(pictures[:1])

    def assemble(found):
        for instances in found:
            for _ in to_image_size(instances, PICTURE[1], PICTURE[0]).masks:
                pass  # used in turn: together they would fill memory

    start, cpu = time.perf_counter(), time.process_time()
    load()
    first = [(time.perf_counter() - start, time.process_time() - cpu)]
    total = timed({"total": lambda: assemble(s.predictor(pictures))}, rounds, progress)
    peak, steps = peak_mb(), inference_phases(s, pictures, ctx, assemble)
    samples = dict(timed(steps, rounds, progress), load=first, **total)
    phases = {name: summary(part) for name, part in samples.items()}
    cost, network = inference_cost(config, batch)
    phases["total"]["flops"], phases["forward"]["flops"] = cost.flops, network.flops
    notes = ["The ranges of int8 are those of random pictures"] if dtype == "int8" else []
    return dict(facts(config, batch, ctx, rounds), dtype=dtype, parameters=cost.parameters,
                flops=cost.flops, base_mb=base, peak_mb=peak, phases=phases, notes=notes)


def inference_phases(s, pictures, ctx, assemble):
    """{phase: callable}, each of which takes up what the one before it left in ``s``."""
    detector = s.predictor.graph
    mean, std = (constant.data(ctx) for constant in (detector.mean, detector.std))

    def prepare():
        s.images = mx.nd.array(np.stack([s.predictor.prepare(p) for p in pictures]), ctx=ctx)

    def forward():
        images = mx.nd.broadcast_div(mx.nd.broadcast_sub(s.images, mean), std)
        s.outputs = detector.net(images)

    def detection():
        s.found = split_batch(detector.detect(*s.outputs))

    return {"prepare": prepare, "forward": forward, "detection": detection,
            "masks": lambda: assemble(s.found)}


def calibration(config):
    """Normalised random pictures, for the ranges of int8."""
    side = config.input.size
    pictures = np.random.RandomState(0).randint(0, 256, (2, 3, side, side)).astype(np.float32)
    mean, std = config.input.mean, config.input.std
    return np.stack([normalize_planes(planes, mean, std) for planes in pictures])


def training(answer, config, overrides, batch, rounds, folder, ctx="cpu", data=None):
    """Phases of a step, and whole steps as the trainer takes them, with its loader processes.

    CPU seconds and memory are those of this process, without loader processes.
    """
    overrides = _NO_LEARNING + tuple(overrides)
    config, ctx = read_config(config, overrides), contexts(ctx)[0]
    config.train.batch_size = batch = batch or config.train.batch_size
    base, progress = peak_mb(), Progress(2 * rounds + _STEADY + 1, answer)
    dataset = training_set(config, data, Path(folder))
    config.classes = list(dataset.classes)
    trainer = Trainer(config, dataset, None, folder, [ctx])
    total = whole_steps(trainer, rounds, progress)
    peak = peak_mb()
    steps, first = training_phases(trainer, rounds)
    samples = dict(timed(steps, rounds, progress), total=total)
    phases = {name: summary(part) for name, part in samples.items()}
    cost = training_cost(config, {name: first[name].shape for name in BATCH_INPUTS})
    # the backward pass has two products for each of the forward pass: for either factor one
    for name, times in (("forward", 1), ("backward", 2), ("total", 3)):
        phases[name]["flops"] = times * cost.flops
    return dict(facts(config, batch, ctx, rounds), dtype=trainer.dtype, parameters=cost.parameters,
                flops=3 * cost.flops, base_mb=base, peak_mb=peak, phases=phases, notes=[
                    "Loader processes beside it: {}, not in CPU seconds and memory".format(
                        config.train.workers)] if config.train.workers else [])


def whole_steps(trainer, rounds, progress):
    """[(seconds, CPU seconds)] from the end of one step to that of the next.

    The losses of a step are waited for while the next one is under way, as the training log does.
    """
    config = trainer.config
    batches = build_batches(config, trainer.train_set, 0, rounds + _STEADY)
    batches = build_loader(trainer.samples, batches, config.train.workers)
    samples, before, then = [], None, None
    for batch in batches:
        _, terms = trainer.update(batch)
        for part in before or ():
            part.wait_to_read()
        now = time.perf_counter(), time.process_time()
        samples.append(then and (now[0] - then[0], now[1] - then[1]))
        before, then = terms, now
        progress()
    mx.nd.waitall()
    return samples[_STEADY:]


def training_phases(trainer, rounds):
    """({phase: callable}, the first batch)."""
    config, (ctx,) = trainer.config, trainer.contexts
    batches = build_batches(config, trainer.train_set, 0, rounds + 2)
    batches = build_loader(trainer.samples, batches, 0)
    s = SimpleNamespace(batch=next(batches))
    first, parts = s.batch, [ctx] * config.train.accumulate

    def load():
        s.batch = next(batches)

    def forward():
        inputs = zip(*[gluon.utils.split_and_load(s.batch[name], parts) for name in BATCH_INPUTS])
        totals = batch_totals(s.batch["match"].asnumpy()).as_in_context(ctx)
        with autograd.record():
            s.losses = [trainer.graph(*part, totals)[0] for part in inputs]

    updater = trainer.updater
    return {"load": load, "forward": forward, "backward": lambda: updater.backward(s.losses),
            "update": lambda: updater.step(config.train.lr)}, first


def training_set(config, data, folder):
    """The training set in ``data`` (DIR of --data), or one that is generated into ``folder``."""
    if data is None:
        make_shapes(folder, max(8, config.train.batch_size), 0, _SHAPES_SIDE)
        path = folder / "instances_train.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        content["categories"] = [dict(id=k, name=n) for k, n in enumerate(config.classes)]
        for entry in content["annotations"]:
            entry["category_id"] %= len(config.classes)
        path.write_text(json.dumps(content), encoding="utf-8")
        data, classes = folder, config.classes
    else:
        classes = None
    dataset = CocoDataset(Path(data) / "instances_train.json", Path(data) / "images", classes,
                          config.train.keep_empty)
    require_trainable(dataset)
    return dataset


def gemm(answer, rounds, folder, dtype="float32", ctx="cpu"):
    """The machine's speed at a product of matrices of 2048 x 2048, as a 1x1 convolution.

    The best of the rounds is the peak.  int8 is of unsigned by signed numbers.
    """
    side, ctx = GEMM_SIDE, contexts(ctx)[0]
    shapes = (1, side, side // 64, 64), (side, side, 1, 1)
    x, weight = (mx.nd.random.uniform(-1, 1, shape, ctx=ctx) for shape in shapes)
    settings = dict(kernel=(1, 1), num_filter=side, no_bias=True)
    if dtype == "int8":
        x, weight = (x.abs() * 255).astype("uint8"), (weight * 127).astype("int8")
        ranges = [mx.nd.array([value]) for value in (0, 255, -127, 127)]
        run = lambda: mx.nd.contrib.quantized_conv(x, weight, *ranges, **settings)  # noqa: E731
    else:
        x, weight = (mx.nd.amp_cast(part, dtype=dtype) for part in (x, weight))
        run = lambda: mx.nd.Convolution(x, weight, **settings)  # noqa: E731
    result = summary(timed({"gemm": run}, rounds, Progress(rounds + 1, answer))["gemm"])
    return dict(result, dtype=dtype, side=side, flops_per_second=2 * side ** 3 / result["min"])


def read_config(name, overrides):
    """A configuration with classes (its own, or those that it is for) and a square input.

    The other shapes of ``input.keep_ratio`` have as many pixels.
    """
    config = load_config(name, overrides)
    config.input.keep_ratio = False
    config.classes = list(config.classes or default_classes(config.name))
    return config


def facts(config, batch, ctx, rounds):
    return {"config": config.name, "input": config.input.size, "batch": batch,
            "classes": len(config.classes), "device": str(ctx), "rounds": rounds}


def inference_cost(config, batch):
    """Costs of the whole inference graph and of the network alone, both before compilation."""
    net = build_yolact(config, len(config.classes), dcn_sampler="mxnet")
    detector = build_detector(config, net, len(config.classes))
    return tuple(graph_cost(graph, block, data=(batch, 3) + (config.input.size,) * 2)
                 for graph, block in ((detector(mx.sym.var("data")), detector),
                                      (net(mx.sym.var("data")), net)))


def training_cost(config, shapes):
    """Cost of network and loss for inputs of these ``shapes`` (of ``BATCH_INPUTS``)."""
    net = build_yolact(config, len(config.classes), training=True, dcn_sampler="mxnet")
    step = build_step(config, net, len(config.classes), [mx.cpu()])
    names = BATCH_INPUTS + ("totals",)
    return graph_cost(step(*map(mx.sym.var, names)), step, **dict(shapes, totals=(2,)))


def graph_cost(outputs, block, **shapes):
    """Cost of an initialised block's graph of symbols; its constants are no parameters."""
    graph, values = mx.sym.Group(list(outputs)), block.collect_params()
    # not all shapes could be inferred: layers can compute their weights from others
    known = {name: values[name].shape for name in graph.list_inputs() if name in values.keys()}
    cost = count(graph, **dict(shapes, **known))
    return cost._replace(parameters=sum(
        int(np.prod(known[name])) for name in set(graph.list_arguments()) & set(known)
        if not isinstance(values[name], Constant)))


def peak_mb():
    """Peak resident memory of this process in MB (2^20 bytes)."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would count the process that started this one, too
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2 ** 10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2 ** (20 if sys.platform == "darwin" else 10)


def main():
    """Run the task of the command line; its answers are lines of json on the standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing that a library prints comes between

    def answer(content):
        print(json.dumps(content), file=answers, flush=True)

    options = json.loads(sys.argv[1])
    task = {"inference": inference, "training": training, "gemm": gemm}[options.pop("task")]
    try:
        answer({"result": task(answer, **options)})
    except (UserError, OSError) as error:
        answer({"error": str(error)})


if __name__ == "__main__":
    main()
