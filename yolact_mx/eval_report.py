"""An evaluation as one HTML page that needs no other file: figures, pictures, tables."""
import base64
from html import escape
from pathlib import Path

import cv2
import numpy as np
from pycocotools import mask as mask_utils

from . import error_analysis, report_figures
from .data.images import read_image
from .data.sample import Sample
from .detect import ImageDetections
from .evaluate import SUMMARY, figure_text
from .report_figures import KINDS, MAX_CLASSES
from .visualize import draw_detections, draw_sample, readable_name

NUM_PICTURES = 6  # best and worst images each
PICTURE_SIDE = 420  # pixels of the longer side

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Evaluation: {name}</title>
<meta name="viewport" content="width=device-width"><style>
body {{ margin: 0; background: #f3f5f8; color: #1d2733;
        font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 28px 24px 60px; }}
h1 {{ font-size: 26px; margin: 0; }}
h2 {{ font-size: 18px; margin: 0 0 8px; }}
p {{ margin: 2px 0 10px; color: #5a6776; font-size: 14px; }}
section, .tile {{ background: #fff; border-radius: 10px; padding: 18px 22px; min-width: 0;
                  box-shadow: 0 1px 3px rgba(20, 30, 50, .12); }}
.stack {{ display: grid; gap: 18px; grid-template-columns: minmax(0, 1fr); }}
.tiles {{ display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(135px, 1fr)); }}
.tile {{ padding: 10px 16px; color: #5a6776; font-size: 13px; }}
.tile b {{ display: block; font-size: 24px; line-height: 1.35; color: #1d2733; }}
.two {{ display: grid; gap: 18px; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); }}
img {{ max-width: 100%; height: auto; display: block; margin: 0 auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px;
         font-variant-numeric: tabular-nums; }}
td, th {{ padding: 4px 8px; text-align: right; border-bottom: 1px solid #e6e9ee; }}
td:first-child, th:first-child {{ text-align: left; }}
figure {{ margin: 0 0 6px; }}
figcaption {{ font-size: 13px; color: #5a6776; padding-top: 4px; overflow-wrap: anywhere; }}
.pair {{ display: grid; gap: 4px; grid-template-columns: 1fr 1fr; align-items: center; }}
</style></head><body><main class="stack">
<header><h1>Evaluation</h1><p>{name}: {counts}</p></header>
{body}
</main></body></html>
"""


def write_report(out_dir, evaluator, image_dir=None):
    """Write ``report.html`` into ``out_dir`` (made if needed); returns its path.

    evaluator: a CocoEvaluator with the detections in it.
    image_dir: folder of the images; None leaves the pictures out.
    Raises DatasetError when an image to be shown cannot be read.
    """
    metrics = evaluator.metrics or evaluator.evaluate()
    iou_type = list(evaluator.results)[-1]  # masks, where there are any
    matches = error_analysis.match_images(evaluator, iou_type)
    threshold, f1 = error_analysis.best_threshold(matches)
    names = [row["name"] for row in metrics["per_class"]]
    labels = [readable_name(names, k) for k in range(len(names))]
    confusion = error_analysis.confusion_matrix(matches, len(names), threshold)
    how = "a {} IoU of 0.5 or more".format(KINDS[iou_type])
    part = "" if len(names) <= MAX_CLASSES else "Shown: the {} most frequent classes. ".format(
        MAX_CLASSES)
    body = [
        _tiles(metrics, threshold, f1),
        _section("Precision and recall", _svg(report_figures.precision_recall(
            evaluator.curves, labels, [row["objects"] for row in metrics["per_class"]])), part),
        '<div class="two">',
        _section("Confusion", _svg(report_figures.confusion(confusion, labels)),
                 part + "Detections with a score of {:.2f} or more and {}; shades are shares of "
                 "the row.".format(threshold, how)),
        _section("Scores", _svg(report_figures.score_histogram(
            *error_analysis.scores_and_hits(matches), threshold)),
            "A hit has the right class and {}. F1 is highest at the dashed score.".format(how)),
        "</div>",
        _section("AP by class", _svg(report_figures.class_bars(metrics["per_class"], labels)),
                 "In brackets: objects of the ground truth."),
        _pictures(evaluator, matches, threshold, image_dir, names) if image_dir else "",
        '<div class="two">', _section("The COCO figures", _summary_table(metrics)),
        _section("Classes", _class_table(metrics)), "</div>"]
    Path(out_dir).mkdir(parents=True, exist_ok=True)
    path = Path(out_dir) / "report.html"
    counts = "{} images, {} objects of {} classes, {} detections".format(
        metrics["images"], sum(row["objects"] for row in metrics["per_class"]), len(names),
        metrics["detections"])
    path.write_text(PAGE.format(name=escape(evaluator.truth.name), counts=counts,
                                body="\n".join(body)), encoding="utf-8")
    return path


# ------------------------------------------------------------------ numbers

def _tiles(metrics, threshold, f1):
    tiles = [("{} {}".format(KINDS[iou_type], key), figure_text(metrics[iou_type][key]))
             for iou_type in KINDS if iou_type in metrics for key in ("AP", "AP50", "AP75")]
    tiles.append(("best F1, score {:.2f}".format(threshold), figure_text(f1)))
    return '<div class="tiles">{}</div>'.format("".join(
        '<div class="tile"><b>{}</b>{}</div>'.format(value, name) for name, value in tiles))


def _summary_table(metrics):
    types = [iou_type for iou_type in KINDS if iou_type in metrics]
    rows = [[key] + [figure_text(metrics[iou_type][key]) for iou_type in types]
            for key, *_ in SUMMARY]
    return _table([""] + [KINDS[iou_type] for iou_type in types], rows) + (
        "<p>s, m, l: objects below 32², below 96² and from 96² pixels. At most {} detections "
        "an image and class. n/a: no such object.</p>".format(metrics["max_dets"]))


def _class_table(metrics):
    types = [iou_type for iou_type in KINDS if iou_type in metrics]
    head = ["class", "objects", "detections"] + [
        "{} {}".format(KINDS[iou_type], key) for iou_type in types for key in ("AP", "AP50")]
    rows = [[row["name"], row["objects"], row["detections"]] +
            [figure_text(row[iou_type][key]) for iou_type in types for key in ("AP", "AP50")]
            for row in metrics["per_class"]]
    return _table(head, rows)


def _table(head, rows):
    def line(cells, tag):
        return "<tr>{}</tr>".format("".join(
            "<{0}>{1}</{0}>".format(tag, escape(str(cell))) for cell in cells))
    return "<table>{}{}</table>".format(line(head, "th"), "".join(line(row, "td") for row in rows))


# ------------------------------------------------------------------ pictures

def _pictures(evaluator, matches, threshold, image_dir, names):
    """Sections of the worst and the best images; no image is in both."""
    rated = [(error_analysis.image_quality(match, threshold), match) for match in matches]
    rated = sorted((pair for pair in rated if pair[0] is not None), key=lambda pair: pair[0])
    worst = rated[:min(NUM_PICTURES, -(-len(rated) // 2))]
    best = rated[len(worst):][-NUM_PICTURES:][::-1]
    sections = []
    for title, chosen in (("Worst images", worst), ("Best images", best)):
        figures = [_pair(evaluator, match, quality, threshold, image_dir, names)
                   for quality, match in chosen]
        sections.append(_section(
            title, '<div class="two">{}</div>'.format("".join(figures)),
            "Left: ground truth; right: detections with a score of {:.2f} or more. The quality "
            "is the mean IoU of the hits, less for what is missed or false.".format(threshold)))
    return "".join(sections)


def _pair(evaluator, match, quality, threshold, image_dir, names):
    entry = evaluator.truth.images[match.image_id]
    size = evaluator.truth.mask_size(match.image_id)
    image = read_image(Path(image_dir) / entry["file_name"], size and size[::-1])
    scale = max(1, round(PICTURE_SIDE / max(image.shape[:2])))
    truth = draw_sample(_sample(evaluator.truth, match.image_id, image), names, scale=scale)
    found = draw_detections(image, _detections(evaluator, match, image.shape[:2], threshold),
                            names, score_threshold=-1, top_k=100, scale=scale)
    caption = "{} (id {}), quality {:.2f}".format(entry["file_name"], match.image_id, quality)
    return '<figure><div class="pair">{}{}</div><figcaption>{}</figcaption></figure>'.format(
        _jpeg(truth), _jpeg(found), escape(caption))


def _sample(truth, image_id, image):
    objects = truth.objects_of(image_id)
    boxes = np.array([entry["bbox"] for entry in objects], float).reshape(-1, 4)
    rles = [entry["segmentation"] for entry in objects]
    return Sample(image=image, boxes=np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]),
                  labels=np.array([entry["category_id"] - 1 for entry in objects], int),
                  masks=_DecodedMasks(rles, image.shape[:2]),
                  crowd=np.array([entry["iscrowd"] for entry in objects], bool),
                  has_mask=np.array([rle is not None for rle in rles], bool), image_id=image_id)


def _detections(evaluator, match, size, threshold):
    shown = match.scores >= threshold
    results = [list(evaluator.results.values())[-1][i] for i in match.results[shown]]
    rles = [result.get("segmentation") for result in results]
    boxes = np.array([result.get("bbox") or mask_utils.toBbox(rle)
                      for result, rle in zip(results, rles)], float).reshape(-1, 4)
    return ImageDetections(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]),
                           match.scores[shown], match.scores[shown], match.classes[shown],
                           _DecodedMasks(rles, size))


class _DecodedMasks:
    """Masks decoded one at a time; zeros where there is none."""

    def __init__(self, rles, size):
        self._rles, self._size = rles, size

    def __getitem__(self, index):
        rle = self._rles[index]
        return np.zeros(self._size, np.uint8) if rle is None else mask_utils.decode(rle)


# ------------------------------------------------------------------ HTML

def _section(title, content, note=""):
    return "<section><h2>{}</h2><p>{}</p>{}</section>".format(title, note, content)


def _svg(data):
    return _image("svg+xml", data)


def _jpeg(picture):
    scale = PICTURE_SIDE / max(picture.shape[:2])
    if scale < 1:
        picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return _image("jpeg", cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 85])[1])


def _image(kind, data):
    return '<img alt="" src="data:image/{};base64,{}">'.format(
        kind, base64.b64encode(bytes(data)).decode("ascii"))
