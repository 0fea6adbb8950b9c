"""The inference graph as one ONNX file, for ONNX Runtime without MXNet and this package."""

import tempfile
from pathlib import Path

import matplotlib
import mxnet as mx
import numpy as np

from .data.images import read_image
from .detect import OUTPUTS, split_batch
from .errors import CheckpointError, UserError
from .export import INPUT, load_detector, write_description
from .predict import Predictor

# Two implementations of each operator round differently
_TOLERANCE = 1e-4
_PREDICTIONS = ("class_logits", "box_deltas", "mask_coefs", "proto")


def export_onnx(config, weights, prefix, image_size=None):
    """Write ``PREFIX.onnx`` and ``PREFIX.json``, and check them.

    Input, outputs and description are those of :func:`export.export_network`, the outputs called
    ``boxes``, ``scores``, ...; opset 16.  ONNX Runtime must agree with the live network on noise
    and on a photograph, alone and as a batch, and also on each half of the graph: the network,
    and detection on made-up predictions, since an image may hold nothing that is detected.
    image_size: (H, W) of the input, by default the square.

    Returns
    -------
    float
        Largest difference between ONNX Runtime and the live network.  Masks may differ in the
        pixels that a box's edge goes through, and rows of equal scores may swap.

    Raises
    ------
    UserError
        When onnx or onnxruntime is not installed.
    ConfigError
        When the graph has an operator that cannot be translated.
    CheckpointError
        When the two disagree; nothing is left at ``prefix`` then.
    """
    to_onnx = _converter()
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    image_size = image_size or (config.input.size, config.input.size)
    detector = load_detector(config, weights, dcn_sampler="composed", image_size=image_size)
    images = _images(detector, config, image_size)
    live = detector(mx.nd.array(images))
    # oneDNN reorders weights while an operator runs that only reads them: to read them then,
    # for ONNX, gives wrong values
    mx.nd.waitall()
    params = {name: p.data() for name, p in detector.collect_params().items()}
    shape = images.shape[1:]
    model = to_onnx(_named(OUTPUTS, detector(mx.sym.var(INPUT))), params, {INPUT: shape})
    with tempfile.TemporaryDirectory(dir=str(prefix.parent)) as folder:
        path = Path(folder) / prefix.name
        Path(str(path) + ".onnx").write_bytes(model.SerializeToString())
        write_description(str(path) + ".json", config, live, image_size)
        run = _session(str(path) + ".onnx", OUTPUTS)
        worst = [_network_difference(to_onnx, detector.net, params, images),
                 _detection_difference(to_onnx, detector, params, shape)]
        for batch in (images, images[1:]):
            worst.append(_difference(detector(mx.nd.array(batch)), run({INPUT: batch})))
        # NumPy's maximum is NaN when any is, Python's is not
        if not np.max(worst) <= _TOLERANCE:
            raise CheckpointError(
                "ONNX Runtime differs from the network by {:.3g}, expected at most {:g} "
                "(network {:.3g}, detection {:.3g}, both {:.3g}); nothing was written".format(
                    np.max(worst), _TOLERANCE, *worst[:2], np.max(worst[2:])
                )
            )
        for suffix in (".onnx", ".json"):
            Path(str(path) + suffix).replace(str(prefix) + suffix)
    return float(np.max(worst))


def _converter():
    try:
        import onnxruntime  # noqa: F401

        from .onnx_graph import to_onnx
    except ImportError as error:
        # without the version pip would bring a NumPy that MXNet cannot import
        raise UserError(
            "the ONNX export needs onnx and onnxruntime ({}): pip install onnx onnxruntime "
            "numpy=={}".format(error, np.__version__)
        ) from None
    return to_onnx


def _session(model, outputs):
    """``run({input: array})`` -> arrays of ``outputs``; of a file or of a serialised model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(list(outputs), inputs)


def _named(names, values):
    return dict(zip(names, values))


def _images(detector, config, image_size):
    """(2, 3, H, W): noise, and a photograph, which Matplotlib has with it."""
    photograph = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    predictor = Predictor(detector, config.classes, [image_size], mx.cpu())
    noise = np.random.RandomState(0).randint(0, 256, (3,) + image_size).astype(np.float32)
    return np.stack([noise, predictor.prepare(read_image(photograph))])


def _network_difference(to_onnx, net, params, images):
    """Largest difference of the predictions, as a share of the largest of each (at least 1)."""
    normalised = (images - 128) / 64
    graph = _named(_PREDICTIONS, net(mx.sym.var(INPUT)))
    model = to_onnx(graph, params, {INPUT: images.shape[1:]})
    found = _session(model.SerializeToString(), _PREDICTIONS)({INPUT: normalised})
    live = [value.asnumpy() for value in net(mx.nd.array(normalised))]
    return np.max([np.abs(a - b).max() / max(1, np.abs(a).max()) for a, b in zip(live, found)])


def _detection_difference(to_onnx, detector, params, image_shape):
    """Largest difference of the detections of made-up predictions."""
    predictions = _made_up(detector.net(mx.nd.zeros((1,) + image_shape)))
    shapes = {name: value.shape[1:] for name, value in predictions.items()}
    graph = _named(OUTPUTS, detector.detect(*map(mx.sym.var, _PREDICTIONS)))
    model = to_onnx(graph, params, shapes)
    found = _session(model.SerializeToString(), OUTPUTS)(predictions)
    return _difference(detector.detect(*map(mx.nd.array, predictions.values())), found)


def _made_up(like):
    """Predictions of two images in which groups of neighbouring anchors see something."""
    rng = np.random.RandomState(1)
    logits, deltas, coefs, proto = (
        rng.normal(0, 1, (2,) + value.shape[1:]).astype(np.float32) for value in like
    )
    groups = np.linspace(0, logits.shape[1] - 8, 12).astype(int)
    seen = (groups[:, None] + np.arange(8)).ravel()
    logits[:, :, 0] += 10
    logits[:, seen, 0] -= 10
    logits[:, seen, 1:] *= 2
    return _named(_PREDICTIONS, (logits, deltas / 2, np.tanh(coefs), np.maximum(proto, 0)))


def _difference(live, found):
    """Largest difference of the detections of a batch, best first; infinite if others are found."""
    worst = [0]
    for ours, theirs in zip(split_batch(live), split_batch(found)):
        if len(ours) != len(theirs):
            return np.inf
        theirs = theirs.keep(_order(ours, theirs))
        masks = np.abs(ours.masks - theirs.masks)
        masks[_on_edges(ours.boxes, masks.shape[1:])] = 0
        worst += [np.abs(getattr(ours, name) - getattr(theirs, name)).max(initial=0)
                  for name in OUTPUTS[:-1]]
        worst.append(masks.max(initial=0))
    return np.max(worst)


def _order(ours, theirs):
    """Rows of ``theirs`` in the order of ``ours``; those whose scores tie are free to swap."""
    free, order = list(range(len(theirs))), []
    for box, score, label in zip(ours.boxes, ours.scores, ours.classes):
        ties = [i for i in free if abs(theirs.scores[i] - score) <= _TOLERANCE] or free[:1]
        order.append(min(ties, key=lambda i: np.abs(theirs.boxes[i] - box).max()
                         + (theirs.classes[i] != label)))
        free.remove(order[-1])
    return order


def _on_edges(boxes, size):
    """(D, H, W): pixels that rounding may put inside or outside the crop (``boxes.crop_mask``)."""
    height, width = size
    corners = boxes.reshape(-1, 2, 2) * np.array([width, height])
    edges = np.stack([corners.min(axis=1) - 1, corners.max(axis=1) + 1], axis=1)  # (D, 2, xy)
    columns, rows = (
        (np.abs(np.arange(length) - edges[:, :, axis, None]) < _TOLERANCE * length).any(axis=1)
        for axis, length in enumerate((width, height))
    )
    return rows[:, :, None] | columns[:, None, :]
