"""The inference graph on disk: symbol.json + params, for MXNet without this package."""

import json
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

from . import __version__
from .checkpoint import load_weights
from .data.images import read_image
from .data.transforms import input_planes, normalize_planes
from .deploy import block_of, compile_network
from .detect import OUTPUTS, build_detector
from .errors import CheckpointError, DatasetError
from .graph_passes import INPUT
from .models import build_yolact
from .models.yolact import check_input
from .predict import read_exported
from .sources import find_sources, is_video

# Outputs may differ by rounding only: the graph is the same
_TOLERANCE = 1e-5
# Pictures that show int8 the range of each value: enough, and half a minute
_CALIBRATION = 32


def export_network(config, weights, prefix, dcn_sampler="mxnet", dtype="float32",
                   calibration=None, image_size=None):
    """Write ``PREFIX-symbol.json``, ``PREFIX-0000.params`` and ``PREFIX.json``, and check them.

    The graph takes ``data`` (B, 3, H, W), RGB, 0..255, resized to the input size, any B, and
    returns finished detections (``detect.OUTPUTS``; see :class:`Detect`): normalisation,
    decoding, NMS, mask assembly and re-scoring are inside.  Outputs are found by name
    (``boxes_output``, ...).  ``PREFIX.json`` describes input, outputs and classes.

    Parameters
    ----------
    config : Config
        With ``classes``.
    weights : path
        .params file of the trained network.
    dcn_sampler : str
        ``mxnet``: deformable convolutions by MXNet's own operator (fast, and all that a bare
        MXNet needs); ``composed``: of basic operators.
    dtype : {'float32', 'bfloat16', 'int8'}
        Of the network's convolutions; inputs, outputs and detection are float32.  float32 runs
        anywhere; the others, with operators fused, on CPUs by MXNet's oneDNN backend.
    calibration : (n, 3, H, W) NumPy, for int8
        From :func:`calibration_batch`.
    image_size : (H, W), optional
        Of the input, by default the square: a graph has the anchors of one shape.

    Returns
    -------
    float
        Largest difference between the exported graph, read back, and the live network.

    Raises
    ------
    CheckpointError
        When the two disagree; nothing is left at ``prefix`` then.
    """
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    image_size = image_size or (config.input.size, config.input.size)
    detector = load_detector(config, weights, dcn_sampler, dtype, calibration, image_size)
    images = np.random.RandomState(0).randint(0, 256, (2, 3) + image_size)
    images = mx.nd.array(images, dtype="float32")
    live = detector(images)  # imperative: independent of the graph that is written
    detector.hybridize(static_alloc=True)
    detector(images)
    mx.nd.waitall()
    with tempfile.TemporaryDirectory(dir=str(prefix.parent)) as folder:
        path = Path(folder) / prefix.name
        detector.export(str(path), remove_amp_cast=False)
        write_description(str(path) + ".json", config, live, image_size, dtype)
        worst = _difference(str(path) + "-symbol.json", images, live)
        if not worst <= _TOLERANCE:
            raise CheckpointError(
                "the exported graph differs from the network by {:.3g}, expected at "
                "most {:g}; nothing was written".format(worst, _TOLERANCE)
            )
        for suffix in ("-symbol.json", "-0000.params", ".json"):
            Path(str(path) + suffix).replace(str(prefix) + suffix)
    return float(worst)


def _difference(symbol_file, images, live):
    """Largest difference of what an export, read back, finds in ``images`` from ``live``."""
    graph, _ = read_exported(symbol_file, mx.cpu())
    exported = block_of(graph, mx.cpu())(images)
    # NumPy's maximum is NaN when any is, Python's is not
    return np.max([np.abs(a.asnumpy() - b.asnumpy()).max() for a, b in zip(live, exported)])


def load_detector(
    config, weights, dcn_sampler, dtype="float32", calibration=None, image_size=None
):
    """The inference graph of a configuration with the weights of a .params file."""
    check_input(config, image_size and [image_size])
    net = build_yolact(config, len(config.classes), dcn_sampler=dcn_sampler)
    load_weights(net, weights)
    network = None
    if dtype != "float32":
        network = compile_network(net, mx.cpu(), dtype, calibration)
    return build_detector(config, net, len(config.classes), network, image_size)


def calibration_batch(config, sources, image_size=None):
    """(n, 3, H, W) normalised pictures from files and folders, at most ``_CALIBRATION``.

    Of more, every so many-th is taken.  Raises DatasetError for what cannot be read.
    """
    paths = [path for path in find_sources(sources) if not is_video(path)]
    if not paths:
        raise DatasetError("calibration: expected pictures, found none in {}".format(
            ", ".join(map(str, sources))))
    paths = paths[:: -(-len(paths) // _CALIBRATION)]
    height, width = image_size or (config.input.size, config.input.size)
    pictures = (input_planes(read_image(path), (width, height)) for path in paths)
    mean, std = config.input.mean, config.input.std
    return np.stack([normalize_planes(planes, mean, std) for planes in pictures])


def write_description(path, config, outputs, image_size, dtype="float32"):
    """``PREFIX.json``: input, outputs (examples of them are given) and classes."""
    content = {
        "name": config.name,
        "yolact_mx": __version__,
        "mxnet": mx.__version__,
        "dtype": dtype,
        "input": {
            "name": INPUT,
            "layout": "NCHW",
            "size": config.input.size,
            "width": image_size[1],
            "height": image_size[0],
            "colour": "RGB",
            "range": [0, 255],
        },
        "outputs": {name: [None] + list(value.shape[1:]) for name, value in zip(OUTPUTS, outputs)},
        "classes": list(config.classes),
    }
    Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
