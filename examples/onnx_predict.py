#!/usr/bin/env python3
"""Run an exported network with ONNX Runtime, NumPy and OpenCV alone: no MXNet, no yolact_mx.

    examples/onnx_predict.py PREFIX picture.jpg [picture2.png ...] --out overlays/

PREFIX.onnx and PREFIX.json are what tools/export.py --format onnx writes.
"""
import argparse
import json
import os

import cv2
import numpy as np
import onnxruntime

COLOURS = [(54, 67, 244), (176, 39, 156), (181, 81, 63), (244, 169, 3), (136, 150, 0),
           (74, 195, 139), (59, 235, 255), (0, 152, 255)]


class Network:
    """The exported graph."""

    def __init__(self, prefix):
        with open(prefix + ".json", encoding="utf-8") as file:
            self.info = json.load(file)
        self.session = onnxruntime.InferenceSession(
            prefix + ".onnx", providers=onnxruntime.get_available_providers())

    def __call__(self, image):
        """BGR uint8 (H, W, 3) -> boxes (D, 4) in pixels, scores, class names, masks (H, W)."""
        entry = self.info["input"]
        resized = cv2.resize(image.astype(np.float32), (entry["width"], entry["height"]))
        data = np.ascontiguousarray(resized[:, :, ::-1].transpose(2, 0, 1)[None])
        boxes, scores, mask_scores, classes, masks = (
            value[0] for value in self.session.run(
                ["boxes", "scores", "mask_scores", "classes", "masks"], {entry["name"]: data}))
        height, width = image.shape[:2]
        kept = scores >= 0  # -1 marks rows without a detection
        return (boxes[kept] * [width, height, width, height], mask_scores[kept],
                [self.info["classes"][int(c)] for c in classes[kept]],
                [cv2.resize(mask, (width, height)) > 0.5 for mask in masks[kept]])


def draw(image, boxes, scores, names, masks, threshold):
    """A copy of the image with what scores above the threshold, and how many that is."""
    canvas = image.copy()
    order = [i for i in np.argsort(-scores) if scores[i] > threshold]
    for rank, i in enumerate(order):
        colour = COLOURS[rank % len(COLOURS)]
        canvas[masks[i]] = 0.55 * canvas[masks[i]] + 0.45 * np.array(colour)
        x1, y1, x2, y2 = map(int, boxes[i])
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, 1)
        cv2.putText(canvas, "{} {:.2f}".format(names[i], scores[i]), (max(x1, 0), max(y1 - 2, 9)),
                    cv2.FONT_HERSHEY_SIMPLEX, 0.35, colour, 1, cv2.LINE_AA)
    return canvas, len(order)


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
        drawn, count = draw(image, *network(image), args.threshold)
        target = os.path.join(args.out, os.path.splitext(os.path.basename(path))[0] + ".png")
        cv2.imwrite(target, drawn)
        print("{}: {} instances -> {}".format(path, count, target))


if __name__ == "__main__":
    main()
