#!/usr/bin/env python3
"""Run an exported network with MXNet, NumPy and OpenCV alone: no yolact_mx is imported.

    examples/mxnet_predict.py PREFIX picture.jpg [picture2.png ...] --out overlays/

PREFIX-symbol.json, PREFIX-0000.params and PREFIX.json are what tools/export.py writes.
"""
import argparse
import json
import os

import cv2
import numpy as np

if not hasattr(np, "bool"):  # MXNet 1.9.1 uses a name that NumPy 1.24 removed
    np.bool = bool
import mxnet as mx  # noqa: E402

COLOURS = [(54, 67, 244), (176, 39, 156), (181, 81, 63), (244, 169, 3), (136, 150, 0),
           (74, 195, 139), (59, 235, 255), (0, 152, 255)]


class Network:
    """The exported graph; its outputs go by name, since their order is not kept."""

    def __init__(self, prefix):
        with open(prefix + ".json", encoding="utf-8") as file:
            self.info = json.load(file)
        names = mx.sym.load(prefix + "-symbol.json").list_outputs()
        self.names = [name.replace("_output", "") for name in names]
        self.graph = mx.gluon.SymbolBlock.imports(
            prefix + "-symbol.json", [self.info["input"]["name"]], prefix + "-0000.params")

    def __call__(self, image):
        """BGR uint8 (H, W, 3) -> dict of boxes (pixels), scores, classes and masks (H, W)."""
        size = self.info["input"]["width"], self.info["input"]["height"]
        resized = cv2.resize(image.astype(np.float32), size)
        data = resized[:, :, ::-1].transpose(2, 0, 1)[None]  # RGB, NCHW, 0..255
        outputs = self.graph(mx.nd.array(data))
        found = {name: value.asnumpy()[0] for name, value in zip(self.names, outputs)}
        height, width = image.shape[:2]
        kept = found["scores"] >= 0  # -1 marks rows without a detection
        return {
            "boxes": found["boxes"][kept] * [width, height, width, height],
            "scores": found["mask_scores"][kept],
            "classes": [self.info["classes"][int(c)] for c in found["classes"][kept]],
            "masks": [cv2.resize(m, (width, height)) > 0.5 for m in found["masks"][kept]]}


def draw(image, found, threshold):
    """A copy of the image with masks, boxes and labels of the scores above the threshold."""
    canvas = image.copy()
    order = np.argsort(-found["scores"])
    for rank, i in enumerate(order[found["scores"][order] > threshold]):
        colour = COLOURS[rank % len(COLOURS)]
        mask = found["masks"][i]
        canvas[mask] = 0.55 * canvas[mask] + 0.45 * np.array(colour)
        x1, y1, x2, y2 = (int(v) for v in found["boxes"][i])
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, 1)
        label = "{} {:.2f}".format(found["classes"][i], found["scores"][i])
        cv2.putText(canvas, label, (max(x1, 0), max(y1 - 2, 9)), cv2.FONT_HERSHEY_SIMPLEX, 0.35,
                    colour, 1, cv2.LINE_AA)
    return canvas


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--out", default="overlays")
    parser.add_argument("--threshold", type=float, default=0.3)
    args = parser.parse_args()
    network = Network(args.prefix)
    os.makedirs(args.out, exist_ok=True)
    for path in args.pictures:
        image = cv2.imread(path)
        if image is None:
            raise SystemExit("error: '{}' is no picture that OpenCV can read".format(path))
        found = network(image)
        target = os.path.join(args.out, os.path.splitext(os.path.basename(path))[0] + ".png")
        cv2.imwrite(target, draw(image, found, args.threshold))
        print("{}: {} instances -> {}".format(
            path, int((found["scores"] > args.threshold).sum()), target))


if __name__ == "__main__":
    main()
