"""What each configuration costs: the table of docs/configurations.md.

    python benchmarks/configurations.py                        parameters and FLOPs
    python benchmarks/configurations.py --time                 and seconds per image
    python benchmarks/configurations.py shapes yolact_mobilenet --time
"""
import argparse

from timing import interleaved  # first: it prepares the process for MXNet

# isort: split
import mxnet as mx

from yolact_mx.anchors import build_anchors
from yolact_mx.benchmark_tasks import graph_cost
from yolact_mx.detect import build_detector
from yolact_mx.model_zoo import get_model

NAMES = ("yolact_mobilenet", "yolact_im400", "yolact_resnet50", "yolact_darknet53",
         "yolact_resnet101", "yolact_im700", "yolact_plus_resnet50", "yolact_plus_resnet101",
         "yolact_resnet50_pascal")
# Mask AP on COCO test-dev that the reference's README states (github.com/dbolya/yolact, 902073d)
PUBLISHED = {"yolact_resnet50": 28.2, "yolact_darknet53": 28.7, "yolact_resnet101": 29.8,
             "yolact_im700": 31.2, "yolact_plus_resnet50": 34.1, "yolact_plus_resnet101": 34.6}


def detector_of(name):
    """(configuration, inference graph) with random weights and the configuration's classes."""
    net = get_model(name, pretrained_base=False, training=False)
    return net.config, build_detector(net.config, net, len(net.classes))


def row(name, rounds=0):
    """The cells of one configuration; ``rounds`` of timing, if any."""
    config, detector = detector_of(name)
    side = config.input.size
    cost = graph_cost(detector(mx.sym.var("data")), detector, data=(1, 3, side, side))
    cells = ["`{}`".format(name), "{0}x{0}".format(side), "{:,}".format(len(build_anchors(config))),
             "{:.1f} M".format(cost.parameters / 1e6), "{:.1f}".format(cost.flops / 1e9),
             str(PUBLISHED.get(name, ""))]
    if rounds:
        detector.hybridize(static_alloc=True)  # as for prediction
        image = mx.nd.random.uniform(0, 255, (1, 3, side, side))
        cells.append("{:.2f}".format(interleaved({name: lambda: detector(image)}, rounds)[name]))
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, help="configurations (default: all)")
    parser.add_argument("--time", action="store_true",
                        help="also the median seconds of one image, from pixels to detections; "
                             "reading and drawing are not included")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    titles = ["configuration", "input", "anchors", "parameters", "GFLOPs", "published mask AP"]
    titles += ["seconds per image"] if options.time else []
    print("| {} |\n|{}".format(" | ".join(titles), "---|" * len(titles)))
    for name in options.names:
        print("| {} |".format(" | ".join(row(name, options.rounds if options.time else 0))),
              flush=True)


if __name__ == "__main__":
    main()
