"""Using a trained network: from pictures to detections."""

import gc
import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mxnet as mx
import numpy as np

from .checkpoint import AVERAGE, first_line, latest_checkpoint, load_weights
from .config import load_config
from .data.transforms import input_planes
from .deploy import block_of, compile_network, exported_graph, inference_graph
from .detect import OUTPUTS, build_detector, split_batch, to_image_size
from .errors import CheckpointError, ConfigError
from .input_shapes import PerShape, input_shapes, nearest_shape
from .models import build_yolact
from .nn import native_ops


class Predictor:
    """A detector with what is needed to use it.

    Parameters
    ----------
    graph : callable
        images (B, 3, H, W) RGB 0..255 on ``ctx`` -> the five outputs of `Detect`.
    classes : list of str
    input_shapes : list of (H, W)
        Those that ``graph`` takes; a picture is resized to the nearest.
    ctx : Context
    """

    def __init__(self, graph, classes, input_shapes, ctx):
        self.graph, self.classes, self.ctx = graph, list(classes), ctx
        self.input_shapes = list(input_shapes)

    def __call__(self, images):
        """BGR uint8 pictures of any sizes -> a list of :class:`Detections`."""
        return self.detect([self.prepare(image) for image in images])

    def prepare(self, image):
        """(rows, columns, 3) BGR -> (3, H, W) float32 RGB, 0..255."""
        height, width = nearest_shape(self.input_shapes, *image.shape[:2])
        return input_planes(image, (width, height))

    def detect(self, prepared):
        """Arrays of :meth:`prepare` -> a list of :class:`Detections`, in their order.

        Those of one shape are one batch of the graph.
        """
        batches, found = defaultdict(list), [None] * len(prepared)
        for index, image in enumerate(prepared):
            batches[image.shape].append(index)
        for indices in batches.values():
            images = mx.nd.array(np.stack([prepared[i] for i in indices]), ctx=self.ctx)
            for index, detections in zip(indices, split_batch(self.graph(images))):
                found[index] = detections
        return found

    def over(self, dataset, batch_size=1):
        """All images of a CocoDataset: yields (image id, ImageDetections) in its order.

        Images are read by threads while the network works.
        """

        def load(index):
            return self.prepare(dataset.read_image(index))

        count = len(dataset)
        with ThreadPoolExecutor(2) as pool:
            ahead = min(count, 2 * batch_size)
            pending = [pool.submit(load, i) for i in range(ahead)]
            for start in range(0, count, batch_size):
                indices = range(start, min(start + batch_size, count))
                images = [pending.pop(0).result() for _ in indices]
                while ahead < min(count, indices[-1] + 1 + 2 * batch_size):
                    pending.append(pool.submit(load, ahead))
                    ahead += 1
                for index, found in zip(indices, self.detect(images)):
                    yield dataset.image_ids[index], to_image_size(found, *dataset.size(index))


def load_predictor(source, ctx=None, config=None, overrides=()):
    """A predictor from whatever training or export left behind.

    Parameters
    ----------
    source : path
        A run folder (its best weights, or the last checkpoint), a .params file beside its
        ``config.yml``, or an exported ``NAME-symbol.json``.
    ctx : Context
    config : str, optional
        Configuration of a .params file that lies elsewhere.
    overrides : sequence of ``key=value``
        For example ``detect.nms=greedy``; not for exported graphs, which are fixed.
    """
    source, ctx = Path(source), ctx or mx.cpu()
    if source.name.endswith("-symbol.json"):
        if overrides or config:
            raise ConfigError(
                "'{}' is an exported graph: its configuration is fixed".format(source)
            )
        return load_exported(source, ctx)
    weights, config = find_weights(source, config, overrides)
    net = build_yolact(config, len(config.classes), ctx)
    load_weights(net, weights)
    predictor = predictor_of(config, net, config.classes, ctx)
    del net
    gc.collect()  # blocks refer to each other: the weights would stay in memory beside their copy
    return predictor


def find_weights(source, config=None, overrides=()):
    """(.params file, Config with class names) of a run folder, a checkpoint or a .params file.

    Raises ConfigError or CheckpointError that says what is missing.
    """
    weights = _weights_of(Path(source))
    config = load_config(config or _config_of(weights), overrides)
    if not config.classes:
        raise ConfigError(
            "configuration '{}' has no class names: give the config.yml that training "
            "wrote into the run folder".format(config.name)
        )
    return weights, config


def predictor_of(config, net, classes, ctx, dtype="float32", calibration=None):
    """A predictor around a network in memory, with its present weights.

    dtype, calibration: see :func:`~yolact_mx.deploy.compile_network`.
    """
    network = compile_network(net, ctx, dtype, calibration)
    shapes = input_shapes(config)
    native = ctx.device_type == "cpu" and native_ops.load()

    def build(shape):
        detector = build_detector(config, net, len(classes), network, shape, native)
        # static memory of the graphs of several shapes would add up; static_shape: see block_of
        static = len(shapes) == 1
        detector.hybridize(static_alloc=static, static_shape=static)
        return detector

    graph = PerShape(build) if len(shapes) > 1 else build(shapes[0])
    return Predictor(graph, classes, shapes, ctx)


def load_exported(symbol_file, ctx):
    """A predictor from ``NAME-symbol.json``, ``NAME-0000.params`` and ``NAME.json``."""
    graph, info = read_exported(symbol_file, ctx)
    dtype = info.get("dtype", "float32")
    if dtype == "float32":  # others have been made fast by the export
        graph = inference_graph(graph)
    elif ctx.device_type != "cpu":
        raise CheckpointError(
            "exported network '{}' is {}: it runs on CPUs only".format(symbol_file, dtype)
        )
    size = info["input"]["size"]  # of exports that state no width and height
    shape = tuple(info["input"].get(side, size) for side in ("height", "width"))
    return Predictor(block_of(graph, ctx), info["classes"], [shape], ctx)


def read_exported(symbol_file, ctx):
    """(Graph, content of ``NAME.json``) of an export; raises CheckpointError."""
    symbol_file = Path(symbol_file)
    name = str(symbol_file)[: -len("-symbol.json")]
    params, info = Path(name + "-0000.params"), Path(name + ".json")
    for needed in (symbol_file, params, info):
        if not needed.is_file():
            raise CheckpointError(
                "exported network '{}': {} is missing".format(symbol_file, needed)
            )
    try:
        info = json.loads(info.read_text(encoding="utf-8"))
        info["classes"], info["input"]["size"]  # are needed
        graph = exported_graph(symbol_file, params, OUTPUTS, ctx)
        missing = set(graph.symbol.list_inputs()) - set(graph.params) - {info["input"]["name"]}
        if missing:
            raise ValueError("{} has no value of {}".format(params, min(missing)))
    except (mx.MXNetError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            "exported network '{}' cannot be read: {}".format(symbol_file, first_line(error))
        ) from None
    return graph, info


def _weights_of(source):
    if not source.exists():
        raise CheckpointError(
            "'{}' does not exist: expected a run folder, a .params file or a "
            "NAME-symbol.json".format(source)
        )
    if source.is_file():
        return source
    if (source / "best.params").is_file():
        return source / "best.params"
    checkpoint = (
        source if (source / "state.json").is_file() else latest_checkpoint(source / "checkpoints")
    )
    if checkpoint is None:
        raise CheckpointError("'{}' holds neither best.params nor a checkpoint".format(source))
    average = Path(checkpoint) / AVERAGE
    return average if average.is_file() else Path(checkpoint) / "model.params"


def _config_of(weights):
    beside = Path(weights).with_suffix(".yml")  # of tools/convert_weights.py
    if beside.is_file():
        return beside
    for folder in list(Path(weights).resolve().parents)[:3]:
        if (folder / "config.yml").is_file():
            return folder / "config.yml"
    raise ConfigError("no config.yml beside '{}': name the configuration".format(weights))
