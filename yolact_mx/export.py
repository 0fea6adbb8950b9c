"""The inference graph on disk: symbol.json + params, for MXNet without this package."""

import json
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

from . import __version__
from .checkpoint import load_weights
from .detect import OUTPUTS, build_detector
from .errors import CheckpointError
from .models import build_yolact
from .predict import load_exported

INPUT = "data"
# Outputs may differ by rounding only: the graph is the same
_TOLERANCE = 1e-5


def export_network(config, weights, prefix, native_dcn=True):
    """Write ``PREFIX-symbol.json``, ``PREFIX-0000.params`` and ``PREFIX.json``, and check them.

    The graph takes ``data`` (B, 3, S, S), RGB, 0..255, resized to the input size S, any B, and
    returns finished detections (``detect.OUTPUTS``; see :class:`Detect`): normalisation,
    decoding, NMS, mask assembly and re-scoring are inside.  Outputs are found by name
    (``boxes_output``, ...).  ``PREFIX.json`` describes input, outputs and classes.

    Parameters
    ----------
    config : Config
        With ``classes``.
    weights : path
        .params file of the trained network.
    native_dcn : bool
        Deformable convolutions as MXNet's own operator (fast, and all that a bare MXNet needs);
        False composes them of basic operators.

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
    side = config.input.size
    detector = load_detector(config, weights, native_dcn)
    images = mx.nd.array(
        np.random.RandomState(0).randint(0, 256, (2, 3, side, side)), dtype="float32"
    )
    live = detector(images)  # imperative: independent of the graph that is written
    detector.hybridize(static_alloc=True)
    detector(images)
    mx.nd.waitall()
    with tempfile.TemporaryDirectory(dir=str(prefix.parent)) as folder:
        path = Path(folder) / prefix.name
        detector.export(str(path))
        write_description(str(path) + ".json", config, live)
        exported = load_exported(str(path) + "-symbol.json", mx.cpu()).graph(images)
        # NumPy's maximum is NaN when any is, Python's is not
        worst = np.max([np.abs(a.asnumpy() - b.asnumpy()).max() for a, b in zip(live, exported)])
        if not worst <= _TOLERANCE:
            raise CheckpointError(
                "the exported graph differs from the network by {:.3g}, expected at "
                "most {:g}; nothing was written".format(worst, _TOLERANCE)
            )
        for suffix in ("-symbol.json", "-0000.params", ".json"):
            Path(str(path) + suffix).replace(str(prefix) + suffix)
    return float(worst)


def load_detector(config, weights, native_dcn):
    """The inference graph of a configuration with the weights of a .params file."""
    net = build_yolact(config, len(config.classes), native_dcn=native_dcn)
    load_weights(net, weights)
    return build_detector(config, net, len(config.classes))


def write_description(path, config, outputs):
    """``PREFIX.json``: input, outputs (examples of them are given) and classes."""
    content = {
        "name": config.name,
        "yolact_mx": __version__,
        "mxnet": mx.__version__,
        "input": {
            "name": INPUT,
            "layout": "NCHW",
            "size": config.input.size,
            "colour": "RGB",
            "range": [0, 255],
        },
        "outputs": {name: [None] + list(value.shape[1:]) for name, value in zip(OUTPUTS, outputs)},
        "classes": list(config.classes),
    }
    Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
