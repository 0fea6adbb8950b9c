"""The figures of the evaluation report, each as the bytes of an SVG."""
import io

import matplotlib
import numpy as np
from matplotlib.figure import Figure

INK, BLUE, ORANGE, GREEN, RED = "#1d2733", "#2f6db3", "#e08a2e", "#4a9c6d", "#c8504b"
KINDS = {"bbox": "box", "segm": "mask"}
MAX_CLASSES = 20  # more lines or cells cannot be told apart; the most frequent ones are shown


def precision_recall(curves, labels, num_objects):
    """Precision over recall, for boxes and masks at several IoUs, and by class at IoU 0.5.

    curves: ``CocoEvaluator.curves``; labels, num_objects: of the K categories.
    """
    recall = np.linspace(0, 1, 101)
    figure, panels = _figure(12, 3.8, 1 + len(curves))
    for axes, (iou_type, arrays) in zip(panels, curves.items()):
        precision = _known(arrays["precision"][..., 0, -1])  # (10, 101, K)
        with_objects = ~np.isnan(precision[0, 0])
        for t, shade in zip((0, 2, 4, 6, 8), np.linspace(1, 0.35, 5)):
            axes.plot(recall, precision[t][:, with_objects].mean(axis=1), color=BLUE, alpha=shade,
                      label="{:.2f}".format(0.5 + 0.05 * t))
        axes.set_title("{}, mean over classes".format(KINDS[iou_type]))
        axes.legend(title="IoU", edgecolor="none", framealpha=0.85, fontsize=8, loc="lower left")
    axes = panels[-1]
    shown = [k for k in most(num_objects) if num_objects[k]]
    for k, colour in zip(shown, _colours(len(shown))):
        axes.plot(recall, precision[0, :, k], color=colour, linewidth=1.3, label=labels[k])
    axes.set_title("{} at IoU 0.50, by class".format(KINDS[iou_type]))
    axes.legend(edgecolor="none", framealpha=0.85, fontsize=7, loc="lower left",
                ncol=1 + len(shown) // 11)
    for axes in panels:
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.03))
    return _svg(figure)


def confusion(matrix, labels):
    """Counts of (K + 1, K + 1), rows: class of the object, columns: class detected."""
    shown = most(matrix[:-1].sum(axis=1) + matrix[:, :-1].sum(axis=0))
    rows = shown + [len(matrix) - 1]
    part = matrix[np.ix_(rows, rows)]
    share = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    side = max(4.4, 0.42 * len(rows))
    figure, (axes,) = _figure(side + 0.6, side)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, j in zip(*np.nonzero(part)):
        axes.text(j, i, part[i, j], ha="center", va="center", fontsize=8,
                  color="white" if share[i, j] > 0.55 else INK)
    names = [labels[k] for k in shown]
    axes.set_xticks(range(len(rows)))
    axes.set_xticklabels(names + ["missed"], rotation=40, ha="right", fontsize=9)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels(names + ["nothing"], fontsize=9)
    axes.set(xlabel="detected", ylabel="ground truth")
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.axhline(len(shown) - 0.5, color=INK, linewidth=0.8)
    axes.axvline(len(shown) - 0.5, color=INK, linewidth=0.8)
    return _svg(figure)


def score_histogram(scores, hits, threshold):
    """Hits and false detections by score, the threshold as a dashed line."""
    figure, (axes,) = _figure(5.4, 4.4)
    bins = np.linspace(scores.min(initial=0), scores.max(initial=1), 26)
    axes.hist([scores[hits], scores[~hits]], bins=bins, stacked=True, color=[GREEN, RED],
              label=["hits", "false detections"])
    axes.axvline(threshold, color=INK, linestyle="--", linewidth=1)
    axes.legend(frameon=False, fontsize=9)
    axes.set(xlabel="score", ylabel="detections", xlim=(bins[0], bins[-1]))
    return _svg(figure)


def class_bars(per_class, labels):
    """AP by class, best first; classes without objects are left out."""
    types = [iou_type for iou_type in KINDS if iou_type in per_class[0]]
    rows = [(row, label) for row, label in zip(per_class, labels) if row["objects"]]
    rows.sort(key=lambda pair: pair[0][types[-1]]["AP"] or 0)
    figure, (axes,) = _figure(12, 1.2 + (0.34 if len(rows) <= MAX_CLASSES else 0.2) * len(rows))
    height = 0.78 / len(types)
    for n, (iou_type, colour) in enumerate(zip(types, (BLUE, ORANGE))):
        offset = height * ((len(types) - 1) / 2 - n)
        axes.barh(np.arange(len(rows)) + offset, [row[iou_type]["AP"] or 0 for row, _ in rows],
                  height, color=colour, label="{} AP".format(KINDS[iou_type]))
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels(["{} ({})".format(label, row["objects"]) for row, label in rows],
                         fontsize=9)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(rows) - 0.4), xlabel="AP")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return _svg(figure)


def most(counts):
    """Positions of the highest counts, at most ``MAX_CLASSES``, in ascending order."""
    order = np.argsort(-np.asarray(counts), kind="stable")
    return sorted(order[:MAX_CLASSES].tolist())


def _known(values):
    return np.where(values < 0, np.nan, values)


def _colours(count):
    return matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, count))


def _figure(width, height, panels=1):
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for one in axes:
        one.grid(alpha=0.25)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue()
