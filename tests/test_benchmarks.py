"""The PyTorch side of benchmarks/reference.py computes what ours does, and the report adds up."""
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_losses import loss_of
from golden_support import configuration, ground_truth, loss_inputs, network, reference_parameters

from yolact_mx.detect import to_image_size
from yolact_mx.predict import predictor_of

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import reference  # noqa: E402
from torch_losses import losses, optimizer, train_step  # noqa: E402
from torch_yolact import Yolact, detect, load_arrays  # noqa: E402

CLASSES = 80
CASES = [("yolact_resnet50", 138), ("yolact_plus_resnet50", 256)]


def both(name, size, weights_rule, **build):
    """Our configuration and network, and the PyTorch network with the same weights."""
    config = configuration(name, size)
    ours = network(config, CLASSES, weights_rule, **build)
    arrays = {key: parameter.data().asnumpy()
              for key, parameter in reference_parameters(ours).items()}
    theirs = Yolact(name, CLASSES, size)
    if "semantic_seg_conv.weight" not in arrays:
        theirs.semantic_seg_conv = None  # ours has it in training only
    load_arrays(theirs, arrays)
    return config, ours, theirs


def tensors(arrays):
    return [torch.from_numpy(array) for array in arrays]


def assert_near(actual, expected, tolerance):
    """Within ``tolerance`` of the largest expected value."""
    error = np.abs(actual - expected).max() / np.abs(expected).max()
    assert actual.shape == expected.shape and error <= tolerance, error


@pytest.mark.parametrize("name, size", CASES)
def test_outputs_and_losses(name, size, weights_rule, inputs_rule):
    import mxnet as mx

    config, ours, theirs = both(name, size, weights_rule, training=True, freeze_bn=True)
    images = inputs_rule.images(1, 2, size)
    targets, masks, crowds = inputs_rule.gts(5, size, [(4, 0), (3, 0)], CLASSES, 0.15, 0.4)
    found = ours(mx.nd.array(images))
    theirs.train()
    with torch.no_grad():
        expected = theirs(torch.from_numpy(images))
    conf, loc, coefs, proto, semantic = (output.asnumpy() for output in found)
    # of the same outputs: a mask pixel at its threshold would change the loss by more than noise
    given = tensors([loc, conf, coefs, proto.transpose(0, 2, 3, 1).copy(), semantic])
    for actual, wanted in zip(given, expected):
        assert_near(actual.numpy(), wanted.numpy(), 1e-4)
    loss = loss_of(config, CLASSES, ours.mask_iou)
    batch = ground_truth(config, targets, masks, crowds)
    assert (batch["match"] > 0).sum(axis=1).max() <= config.loss.masks_to_train  # none is drawn
    actual = {term: value.asscalar() for term, value
              in zip(loss.terms, loss(*found, *loss_inputs(batch)))}
    with torch.no_grad():
        wanted = losses(theirs, given, tensors(targets), tensors(masks))
    assert actual == pytest.approx({term: float(value) for term, value in wanted.items()}, rel=1e-4)


@pytest.mark.parametrize("name, size", CASES)
def test_detections(name, size, weights_rule, inputs_rule):
    import mxnet as mx

    config, ours, theirs = both(name, size, weights_rule)
    config.detect.score_threshold = 0.0
    image = inputs_rule.photo(1, size, size)
    found = predictor_of(config, ours, ["c"] * CLASSES, mx.cpu())([image])[0]
    found = to_image_size(found, 160, 120)
    boxes, scores, classes, masks = detect(theirs.eval(), image, (160, 120), 0.0)
    assert len(found) == len(scores) == 100
    assert_near(found.mask_scores, scores.numpy(), 1e-4)
    assert np.mean(found.classes == classes.numpy()) > 0.95  # near-equal scores change places
    ours_area = np.mean([found.masks[i].mean() for i in range(len(found))])
    assert ours_area == pytest.approx(float(masks.mean()), rel=1e-2)
    assert np.abs(found.boxes - boxes.numpy()).mean() < 1


def test_a_training_step_trains_all_but_batch_norm():
    torch.manual_seed(0)
    net = Yolact("yolact_resnet50", 3, 64).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    target = torch.tensor([[0.2, 0.2, 0.8, 0.8, 1.0]])
    terms = train_step(net, optimizer(net, 1e-3), torch.randn(1, 3, 64, 64), [target],
                       [torch.ones(1, 64, 64)])
    assert all(np.isfinite(list(terms.values())))
    after = net.state_dict()
    unchanged = {name for name, value in before.items() if torch.equal(value, after[name])}
    norms = {name for name in before if ".bn" in name or "downsample.1" in name}
    assert unchanged == norms


class Facts:
    """What a worker of either side answers."""

    @staticmethod
    def result(seconds, peak, **facts):
        return {"median": seconds, "min": seconds, "max": seconds, "cpu": seconds,
                "peak_mb": peak, "facts": facts}


def test_report(capsys):
    seen = {"detections": 2, "scores": [0.1, 0.2], "classes": [1, 3], "mask pixels": 100.0}
    results = {"PyTorch float32": Facts.result(2.0, 1000, operations=4e9, **seen),
               "ours float32": Facts.result(0.5, 250, **dict(seen, classes=[1, 2]))}
    reference.report("inference", results, reference.parse([]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("inference yolact_resnet50, 2 threads, 7 rounds, load ")
    assert lines[3].split()[-3:] == ["2", "1.00", "1.00"]
    assert lines[4].split()[-3:] == ["8", "0.25", "0.25"]
    assert "1 of 2 classes" in lines[5] and "mask pixels 0.0e+00" in lines[5]


def test_a_worker_answers_and_ends():
    options = reference.parse(["--what", "gemm", "--threads", "1"])
    worker = reference.Worker("PyTorch", "float32", "gemm", options)
    try:
        worker.run(keep=False)
        worker.run(keep=True)
    finally:
        worker.close()
    result = worker.result()
    assert len(result["seconds"]) == 1 and result["median"] > 0 and result["peak_mb"] > 50


def test_a_type_that_is_not_there_is_said_in_one_line():
    options = reference.parse(["--what", "gemm", "--dtype", "int8"])
    with pytest.raises(SystemExit, match="ours int8: its process has ended"):
        reference.Worker("ours", "int8", "gemm", options)
