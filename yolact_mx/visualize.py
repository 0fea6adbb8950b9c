"""Pictures of detections, ground truth and training.

Instances are painted one at a time into the image itself, each within its own bounding
rectangle, so the memory stays near that of the image however many instances there are.
"""
import colorsys
import json
import logging
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .errors import UserError

logger = logging.getLogger(__name__)

GREY = (150, 150, 150)
WHITE, BLACK = (255, 255, 255), (20, 20, 20)


def draw_detections(image, detections, classes, score_threshold=0.15, top_k=15, alpha=0.45,
                    scale=1):
    """Image with the masks, boxes and labels of its best detections.

    image: (H, W, 3) BGR uint8; it is not changed.
    detections: ``boxes`` (D, 4) xyxy in pixels, ``mask_scores``, ``classes`` (D,), ``masks``
        a sequence of D masks (H, W), 0 or 1.  The best is painted last.  Nothing to paint: a
        copy of the image.
    classes: names of the classes 0..C-1.
    score_threshold, top_k: only detections with a mask score above, and at most so many.
    alpha: opacity of the masks.
    scale: the picture is so many times larger than the image; 2 or more leaves room for the
        labels on small images.
    """
    canvas = _canvas(image, scale)
    scores = np.asarray(detections.mask_scores)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > score_threshold][:top_k]
    for rank in reversed(range(len(order))):
        i = order[rank]
        _paint_mask(canvas, detections.masks[i], instance_colour(rank), alpha)
        _paint_box(canvas, detections.boxes[i] * scale, instance_colour(rank))
    labels = _Labels(canvas)
    for rank, i in enumerate(order):
        name = readable_name(classes, int(detections.classes[i]))
        labels.add("{} {:.2f}".format(name, scores[i]), detections.boxes[i] * scale,
                   instance_colour(rank))
    return canvas


def draw_sample(sample, classes, alpha=0.45, scale=1):
    """Image of a Sample with its ground truth; crowd regions are grey and hatched.

    Objects of which only the box is known say so.  Returns BGR uint8, ``scale`` times the size.
    """
    canvas = _canvas(np.clip(sample.image, 0, 255), scale)
    labels = _Labels(canvas)
    colours = [GREY if crowd else instance_colour(i) for i, crowd in enumerate(sample.crowd)]
    for i in range(len(sample)):
        mask = sample.masks[i]
        _paint_mask(canvas, _hatched(mask) if sample.crowd[i] else mask, colours[i], alpha)
        _paint_box(canvas, sample.boxes[i] * scale, colours[i])
    for i in range(len(sample)):
        text = readable_name(classes, int(sample.labels[i]))
        text = "crowd: " + text if sample.crowd[i] else text
        labels.add(text if sample.has_mask[i] else text + " (box only)",
                   sample.boxes[i] * scale, colours[i])
    return canvas


def contact_sheet(images, columns, tile=256, gap=4):
    """One picture of many: each fitted into a square of ``tile`` pixels, ``columns`` a row.

    images: (H, W, 3) BGR uint8 of any sizes, at least one.
    """
    if not images:
        raise ValueError("a contact sheet needs at least one image")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    step = tile + gap
    sheet = np.full((rows * step + gap, columns * step + gap, 3), 255, np.uint8)
    for n, image in enumerate(images):
        small = _fitted(image, tile)
        height, width = small.shape[:2]
        top = gap + (n // columns) * step + (tile - height) // 2
        left = gap + (n % columns) * step + (tile - width) // 2
        sheet[top:top + height, left:left + width] = small
    return sheet


def plot_history(jsonl_path, png_path):
    """Curves of the losses, the learning rate and the mAP of a training log.

    jsonl_path: one JSON object a line, ``{"step", "epoch", "lr", "loss": {term: value}}`` or
    ``{"step", "val": {"bbox": {"AP"}, "segm": {"AP"}}}``.  A last line cut off by a killed run
    is skipped.  Raises UserError when there is nothing to plot.
    """
    from matplotlib.figure import Figure
    records = _read_log(jsonl_path)
    training = [record for record in records if "loss" in record]
    validation = [record for record in records if "val" in record]
    if not training and not validation:
        raise UserError("{} holds no step to plot".format(jsonl_path))
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    losses, rate, average = figure.subplots(1, 3)
    for term in dict.fromkeys(term for record in training for term in record["loss"]):
        points = [(record["step"], record["loss"][term]) for record in training
                  if term in record["loss"]]
        _plot_smoothed(losses, term, *zip(*points))
    losses.set(title="loss", xlabel="step", yscale="log")
    rate.plot([record["step"] for record in training], [record["lr"] for record in training],
              color="0.25")
    rate.set(title="learning rate", xlabel="step", ylim=(0, None))
    for key, name in (("bbox", "box AP"), ("segm", "mask AP")):
        points = [(record["step"], record["val"][key]["AP"]) for record in validation
                  if record["val"].get(key, {}).get("AP") is not None]
        if points:
            average.plot(*zip(*points), marker="o", markersize=3, label=name)
    average.set(title="validation", xlabel="step", ylim=(0, 1))
    for axes in (losses, rate, average):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (losses, average):
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(str(png_path), dpi=110)


def draw_note(canvas, text):
    """Write a text into the upper left corner of a BGR image, in place."""
    _Labels(canvas).add(text, (0, 0, 0, 0), BLACK)


def instance_colour(index):
    """BGR of the index-th instance: hues a golden section apart, so neighbours differ."""
    red, green, blue = colorsys.hsv_to_rgb((0.57 + 0.618034 * index) % 1, 0.78, 0.98)
    return tuple(int(round(255 * part)) for part in (blue, green, red))


def readable_name(classes, index):
    """Name of a class, or "class 3" where no installed font has its characters."""
    name = str(classes[index])
    return name if _font_file(frozenset(name)) else "class {}".format(index)


class _Labels:
    """Puts labels on an image so that none hides another, as far as there is room."""

    def __init__(self, canvas):
        self._canvas = canvas
        self._taken = []
        self._size = max(10, round(min(canvas.shape[:2]) / 34))

    def add(self, text, box, colour):
        coverage = _text_coverage(text, self._size)
        top, left = self._place(coverage.shape, box)
        height, width = coverage.shape
        self._taken.append((left, top, left + width, top + height))
        area = self._canvas[top:top + height, left:left + width]
        # Broadcast over the colours; a label wider than the image is cut at its border.
        share = coverage[:area.shape[0], :area.shape[1], None] / 255.0
        area[:] = np.array(colour) * (1 - share) + np.array(_text_colour(colour)) * share

    def _place(self, shape, box):
        """(top, left): above the box, else in its upper edge, below it or in its lower edge."""
        height, width = shape
        x1, y1, _, y2 = (int(round(float(value))) for value in box)
        bottom, right = (max(0, length - size) for length, size
                         in zip(self._canvas.shape[:2], shape))
        left = min(max(x1, 0), right)
        tops = [min(max(top, 0), bottom) for top in (y1 - height, y1, y2, y2 - height)]
        tops += [min(top + height * shift, bottom) for shift in range(1, 6) for top in tops[:1]]
        free = [top for top in tops if not any(
            left < x2 and left + width > x1 and top < y2 and top + height > y1
            for x1, y1, x2, y2 in self._taken)]
        return (free or tops)[0], left


def _canvas(image, scale):
    canvas = np.array(image, dtype=np.uint8, order="C")
    if scale == 1:
        return canvas
    return cv2.resize(canvas, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)


def _paint_mask(canvas, mask, colour, alpha):
    mask = np.ascontiguousarray(mask, np.uint8)
    if mask.shape != canvas.shape[:2]:
        mask = (cv2.resize(mask * 255, canvas.shape[1::-1]) > 127).astype(np.uint8)
    left, top, width, height = cv2.boundingRect(mask)
    if not width:
        return
    mask = mask[top:top + height, left:left + width]
    area = canvas[top:top + height, left:left + width]
    tint = cv2.addWeighted(area, 1 - alpha, np.full_like(area, colour), alpha, 0)
    np.copyto(area, tint, where=mask[..., None] > 0)
    contours = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)[-2]
    cv2.drawContours(canvas, contours, -1, colour, _line_width(canvas), cv2.LINE_AA,
                     offset=(left, top))


def _paint_box(canvas, box, colour):
    height, width = canvas.shape[:2]
    x1, y1, x2, y2 = (int(round(float(value))) for value in np.clip(
        box, 0, [width - 1, height - 1, width - 1, height - 1]))
    cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, _line_width(canvas), cv2.LINE_AA)


def _line_width(canvas):
    return max(1, round(min(canvas.shape[:2]) / 320))


def _hatched(mask):
    """The mask with only its diagonal stripes, an eighth of the smaller image side apart."""
    height, width = mask.shape
    period = max(6, min(height, width) // 24)
    stripes = (np.arange(height)[:, None] + np.arange(width)[None]) % period < period // 2
    return mask.astype(np.uint8) & stripes


def _fitted(image, tile):
    scale = tile / max(image.shape[:2])
    size = tuple(max(1, round(length * scale)) for length in image.shape[1::-1])
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)


def _text_colour(background):
    blue, green, red = background
    return BLACK if 0.114 * blue + 0.587 * green + 0.299 * red > 120 else WHITE


@lru_cache(maxsize=512)
def _text_coverage(text, size):
    """(h, w) uint8: how much of each pixel the text covers.  OpenCV only knows ASCII."""
    path = _font_file(frozenset(text)) or _font_file(frozenset())
    font = ImageFont.truetype(path, size)
    ascent, descent = font.getmetrics()
    margin = max(2, size // 6)
    picture = Image.new("L", (int(font.getlength(text)) + 2 * margin, ascent + descent))
    ImageDraw.Draw(picture).text((margin, 0), text, font=font, fill=255)
    return np.asarray(picture)


@lru_cache(maxsize=None)
def _font_file(characters):
    """A font file that has all the characters, or None (said once)."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    def has_all(path):
        try:
            font = FT2Font(path)
            return font.scalable and characters <= {chr(code) for code in font.get_charmap()}
        except (OSError, RuntimeError):  # a broken font file is none
            return False

    own = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    if has_all(own):
        return own
    from matplotlib.font_manager import fontManager
    for path in sorted({entry.fname for entry in fontManager.ttflist}):
        if has_all(path):
            return path
    logger.warning("no installed font has all of '%s'; class names with them are drawn as numbers "
                   "(a font such as fonts-noto-cjk helps)", "".join(sorted(characters)))
    return None


def _read_log(path):
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError("cannot read {}: {}".format(path, error.strerror)) from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError("{}: line {} is not JSON".format(path, number)) from error
    return records


def _plot_smoothed(axes, label, steps, values):
    """The values pale, their running mean over a fiftieth of the log strong."""
    window = max(1, len(values) // 50)
    sums = np.cumsum(np.concatenate([[0.0], np.nan_to_num(values)]))
    start = np.maximum(np.arange(1, len(sums)) - window, 0)
    smooth = (sums[1:] - sums[start]) / (np.arange(1, len(sums)) - start)
    line, = axes.plot(steps, smooth, label=label)
    if window > 1:
        axes.plot(steps, values, alpha=0.2, linewidth=0.6, color=line.get_color())
