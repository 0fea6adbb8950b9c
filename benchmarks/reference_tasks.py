"""What a process of reference.py repeats: one picture, one training step or one matrix product.

Each function below prepares a task and returns ``run``, which does it once and waits for the
result, and ``facts``: figures that tell whether both sides compute the same, and the floating
point operations of one run where they are counted.  Only one framework is imported in a process:
the OpenMP runtimes of the two get into each other's way.
"""
import gc
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "golden")]

import inputs_rule  # noqa: E402
import weights_rule  # noqa: E402

SIZE, CLASSES, BATCH, OBJECTS, GEMM = 550, 80, 2, 10, 2048
IMAGE_SIZE = 640, 480  # that masks are made for
LEARNING_RATE = 1e-4


def picture():
    return inputs_rule.photo(1, SIZE, SIZE)


def training_data():
    """Images (B, 3, S, S), targets [(n, 5)] and masks [(n, S, S)] of a batch."""
    targets, masks, _ = inputs_rule.gts(3, SIZE, [(OBJECTS, 0)] * BATCH, CLASSES)
    return inputs_rule.images(2, BATCH, SIZE), targets, masks


def detection_facts(scores, classes, areas):
    """Of the detections, in an order that near-equal scores do not change."""
    return {"detections": len(scores), "scores": sorted(map(float, scores)),
            "classes": sorted(map(int, classes)), "mask pixels": float(sum(areas))}


# ------------------------------------------------------------------ PyTorch

def torch_network(options):
    import torch
    from torch_yolact import Yolact, load_arrays

    torch.set_num_threads(options.threads)
    net = Yolact(options.config, CLASSES, SIZE)
    load_arrays(net, weights_rule.make_all({name: tuple(value.shape)
                                            for name, value in net.state_dict().items()}))
    return net


def counted(run):
    """(result, floating point operations of the convolutions and matrix products) of one run."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = run()
    return result, counter.get_total_flops()


def torch_inference(options):
    from torch_yolact import detect

    net, image = torch_network(options).eval(), picture()

    def run():
        return detect(net, image, IMAGE_SIZE, options.score_threshold)

    (_, scores, classes, masks), operations = counted(run)
    facts = detection_facts(scores, classes, masks.sum(dim=(1, 2)).tolist())
    return run, dict(facts, operations=operations)


def torch_training(options):
    import torch
    from torch_losses import optimizer, train_step

    torch.manual_seed(0)
    net = torch_network(options).train()
    sgd = optimizer(net, LEARNING_RATE)
    images, targets, masks = training_data()
    images = torch.from_numpy(images)
    targets, masks = (list(map(torch.from_numpy, part)) for part in (targets, masks))

    def run():
        return train_step(net, sgd, images, targets, masks)

    terms, operations = counted(run)
    return run, {"losses": terms, "operations": operations}


def torch_gemm(options):
    import torch

    torch.set_num_threads(options.threads)
    kind = getattr(torch, options.dtype)
    a, b = (torch.randn(GEMM, GEMM).to(kind) for _ in range(2))
    return lambda: torch.mm(a, b), {"operations": 2 * GEMM ** 3}


# ------------------------------------------------------------------ ours

def our_network(options, **build):
    import mxnet as mx

    from yolact_mx.config import load_config
    from yolact_mx.convert import reference_name
    from yolact_mx.models import build_yolact

    config = load_config(options.config, [
        "detect.score_threshold={}".format(options.score_threshold),
        "train.batch_size={}".format(BATCH)])
    net = build_yolact(config, CLASSES, **build)
    parameters = {reference_name(name): parameter for name, parameter
                  in net._collect_params_with_prefix().items()}
    for name, parameter in parameters.items():
        parameter.set_data(mx.nd.array(weights_rule.value(name, parameter.shape, parameters)))
    return config, net


def our_inference(options):
    import mxnet as mx

    from yolact_mx.data.transforms import input_planes, normalize_planes
    from yolact_mx.detect import to_image_size
    from yolact_mx.predict import predictor_of

    config, net = our_network(options)
    names = ["class {}".format(i) for i in range(CLASSES)]
    image = picture()
    planes = input_planes(image, (SIZE, SIZE))
    planes = normalize_planes(planes, config.input.mean, config.input.std)  # for int8
    predictor = predictor_of(config, net, names, mx.cpu(), options.dtype, planes[None])
    del net
    gc.collect()  # as load_predictor does

    def run():
        found = to_image_size(predictor([image])[0], *IMAGE_SIZE)
        return found, [found.masks[i] for i in range(len(found))]

    found, masks = run()
    return run, detection_facts(found.mask_scores, found.classes, [mask.sum() for mask in masks])


def our_batch(config):
    """The loader's arrays of the batch."""
    from yolact_mx.anchors import build_anchors, input_sizes
    from yolact_mx.data.sample import Sample
    from yolact_mx.data.samples import TrainingSamples, collate

    images, targets, masks = training_data()
    samples = [
        Sample(image=np.zeros((SIZE, SIZE, 3), np.uint8),
               boxes=target[:, :4].astype(np.float64) * SIZE, labels=target[:, 4].astype(np.int64),
               masks=mask.astype(np.uint8), crowd=np.zeros(len(target), bool),
               has_mask=np.ones(len(target), bool))
        for target, mask in zip(targets, masks)]
    _, levels, proto = input_sizes(config)
    samples = TrainingSamples(samples, config, build_anchors(config), levels, proto, False)
    return dict(collate([samples[0, i] for i in range(BATCH)]), images=images)


def our_training(options):
    import mxnet as mx
    from mxnet import autograd

    from yolact_mx.train_step import batch_totals, build_step
    from yolact_mx.updater import Updater

    if options.dtype == "int8":
        sys.exit("error: --dtype int8 is for --what inference")
    config, net = our_network(options, training=True, freeze_bn=True)
    graph = build_step(config, net, CLASSES, [mx.cpu()], options.dtype)
    updater, batch = Updater(net, [mx.cpu()], config.train), our_batch(config)
    names = ("images", "match", "gt_boxes", "gt_labels", "gt_masks", "gt_semantic")

    def run():
        inputs = [mx.nd.array(batch[name], dtype=batch[name].dtype) for name in names]
        with autograd.record():
            total, terms = graph(*inputs, batch_totals(batch["match"]))
        total.backward()
        updater.step(LEARNING_RATE)
        mx.nd.waitall()
        return terms

    return run, {"losses": dict(zip(graph.loss.terms, run().asnumpy().tolist()))}


def our_gemm(options):
    """A 1x1 convolution, the only product that every type has here."""
    import mxnet as mx

    if options.dtype not in ("float32", "bfloat16"):
        sys.exit("error: --dtype {}: --what gemm measures float32 and bfloat16".format(
            options.dtype))
    shapes = (1, GEMM, GEMM // 64, 64), (GEMM, GEMM, 1, 1)
    x, weight = (mx.nd.amp_cast(mx.nd.random.normal(shape=shape), dtype=options.dtype)
                 for shape in shapes)
    net = mx.gluon.nn.HybridLambda(lambda F, x, weight: F.Convolution(
        x, weight, kernel=(1, 1), num_filter=GEMM, no_bias=True))
    net.hybridize(static_alloc=True)

    def run():
        net(x, weight).wait_to_read()

    run()
    return run, {}


TASKS = {("PyTorch", "inference"): torch_inference, ("PyTorch", "training"): torch_training,
         ("PyTorch", "gemm"): torch_gemm, ("ours", "inference"): our_inference,
         ("ours", "training"): our_training, ("ours", "gemm"): our_gemm}


def prepare_task(options):
    """(run, facts) of ``options.worker`` and ``options.what``."""
    if options.worker == "ours":
        import yolact_mx  # noqa: F401  (before MXNet: it says how idle threads wait)
    return TASKS[options.worker, options.what](options)
