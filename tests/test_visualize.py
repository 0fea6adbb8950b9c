"""Overlays, contact sheets and curves."""
import json
import tracemalloc
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from matplotlib import font_manager

from yolact_mx import visualize
from yolact_mx.data.sample import Sample
from yolact_mx.errors import UserError
from yolact_mx.visualize import (
    GREY,
    contact_sheet,
    draw_detections,
    draw_sample,
    instance_colour,
    plot_history,
    readable_name,
)

HEIGHT, WIDTH = 120, 160


def masks_of(boxes, height=HEIGHT, width=WIDTH):
    masks = np.zeros((len(boxes), height, width), np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes):
        mask[max(y1, 0):y2, max(x1, 0):x2] = 1
    return masks


def detections(boxes, scores, classes=None):
    return SimpleNamespace(boxes=np.array(boxes, np.int32).reshape(-1, 4), masks=masks_of(boxes),
                           classes=np.array(classes or [0] * len(boxes)),
                           mask_scores=np.array(scores, np.float32))


def sample(boxes, crowd=None, has_mask=None):
    count = len(boxes)
    return Sample(np.full((HEIGHT, WIDTH, 3), 100, np.uint8), np.array(boxes, float),
                  np.zeros(count, np.int64), masks_of(boxes),
                  np.array(crowd or [False] * count), np.array(has_mask or [True] * count))


def grey_image(height=HEIGHT, width=WIDTH):
    return np.full((height, width, 3), 100, np.uint8)


def pixels_of(picture, colour):
    return np.count_nonzero((picture == np.array(colour, np.uint8)).all(axis=2))


def test_mask_is_blended_and_the_image_kept():
    image = grey_image()
    picture = draw_detections(image, detections([[20, 40, 100, 100]], [0.9]), ["a"], alpha=0.25)
    assert (image == 100).all()
    assert picture.shape == image.shape and picture.dtype == np.uint8
    expected = 0.75 * 100 + 0.25 * np.array(instance_colour(0))
    assert np.abs(picture[60:90, 50:90] - expected).max() <= 0.5  # well inside the mask
    assert (picture[105:, :] == 100).all() and (picture[:, 110:] == 100).all()


def test_best_detection_is_painted_last_with_the_first_colour():
    found = detections([[10, 20, 110, 100], [30, 20, 150, 100]], [0.3, 0.9])
    picture = draw_detections(grey_image(), found, ["a"], alpha=1)
    assert tuple(picture[60, 80]) == instance_colour(0)  # in both: the second, better one
    assert tuple(picture[60, 20]) == instance_colour(1)


def test_threshold_and_limit():
    boxes = [[10, 30, 40, 60], [60, 30, 90, 60], [110, 30, 140, 60]]
    found = detections(boxes, [0.5, 0.7, 0.6])

    def painted(**options):
        picture = draw_detections(grey_image(), found, ["a"], alpha=1, **options)
        return [bool((picture[50, x] != 100).any()) for x in (25, 75, 125)]

    assert painted() == [True, True, True]
    assert painted(score_threshold=0.55) == [False, True, True]
    assert painted(top_k=1) == [False, True, False]
    assert painted(score_threshold=0.9) == [False, False, False]


def test_nothing_to_draw_is_a_copy():
    image = grey_image()
    picture = draw_detections(image, detections([], []), ["a"])
    assert np.array_equal(picture, image) and picture is not image
    assert np.array_equal(draw_sample(sample([]), ["a"]), image)


def test_boolean_masks_and_empty_masks():
    found = detections([[20, 40, 100, 100]], [0.9])
    expected = draw_detections(grey_image(), found, ["a"])
    found.masks = found.masks.astype(bool)
    assert np.array_equal(draw_detections(grey_image(), found, ["a"]), expected)
    found.masks[:] = False
    picture = draw_detections(grey_image(), found, ["a"])
    assert (picture[70, 60] == 100).all() and pixels_of(picture, instance_colour(0)) > 100


def test_labels_of_equal_boxes_do_not_hide_each_other():
    found = detections([[60, 50, 110, 100]] * 3, [0.9, 0.8, 0.7])
    found.masks[:] = 0
    picture = draw_detections(grey_image(), found, ["square"])
    frame = 2 * (50 + 50) + 8
    for rank in (1, 2):  # their frames lie under that of the best: what remains is the label
        assert pixels_of(picture, instance_colour(rank)) > frame


@pytest.mark.parametrize("box", [[-30, -20, 500, 400], [150, 110, 160, 120], [0, 0, 1, 1]])
@pytest.mark.parametrize("size", [(120, 160), (9, 7)])
def test_labels_stay_inside_any_image(box, size):
    found = detections([box], [0.9])
    found.masks = masks_of([box], *size)
    picture = draw_detections(grey_image(*size), found, ["a class with a long name"])
    assert picture.shape == size + (3,)
    assert pixels_of(picture, instance_colour(0)) > 0


def test_names_in_other_scripts_are_drawn():
    def label(name):
        return draw_detections(grey_image(), detections([[20, 40, 100, 100]], [0.9]), [name])

    pictures = [label(name) for name in ("Bär", "Bar", "B?r", "кот", "код", "???")]
    for i, one in enumerate(pictures):
        assert not any(np.array_equal(one, other) for other in pictures[i + 1:])


def test_name_without_a_font_becomes_its_number(monkeypatch, caplog):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    visualize._font_file.cache_clear()
    name = "\U0001f9ff猫"
    assert readable_name(["dog", name], 1) == "class 1"
    assert readable_name(["dog", name], 0) == "dog"
    assert "no installed font has all of" in caplog.text
    visualize._font_file.cache_clear()


def test_crowds_are_grey_and_hatched():
    boxes = [[10, 20, 70, 110], [90, 20, 150, 110]]
    picture = draw_sample(sample(boxes, crowd=[False, True]), ["a"], alpha=1)
    inside, crowd = picture[40:100, 20:60], picture[40:100, 100:140]
    assert (inside == np.array(instance_colour(0))).all()
    grey = (crowd == np.array(GREY)).all(axis=2).mean()
    assert 0.3 < grey < 0.9  # stripes and their outline
    assert (crowd == 100).all(axis=2).any()
    assert not np.array_equal(picture, draw_sample(sample(boxes), ["a"], alpha=1))


def test_box_only_objects_are_told_apart():
    boxes = [[10, 30, 70, 110]]
    assert not np.array_equal(draw_sample(sample(boxes, has_mask=[False]), ["a"]),
                              draw_sample(sample(boxes), ["a"]))


def test_float_image_of_an_augmented_sample():
    one = sample([[10, 30, 70, 110]])
    expected = draw_sample(one, ["a"])
    one.image = one.image.astype(np.float32)
    assert np.array_equal(draw_sample(one, ["a"]), expected)
    one.image[0, 0] = [-20, 300, 100]
    assert draw_sample(one, ["a"])[0, 0].tolist() == [0, 255, 100]


def test_scaled_picture():
    found = detections([[20, 40, 100, 100]], [0.9])
    picture = draw_detections(grey_image(), found, ["a"], alpha=1, scale=3)
    assert picture.shape == (3 * HEIGHT, 3 * WIDTH, 3)
    assert tuple(picture[3 * 70, 3 * 22]) == tuple(picture[3 * 98, 3 * 98]) == instance_colour(0)
    assert (picture[3 * 103:] == 100).all()
    assert draw_sample(sample([[20, 40, 100, 100]]), ["a"], scale=2).shape == (
        2 * HEIGHT, 2 * WIDTH, 3)


def test_memory_does_not_grow_with_the_instances():
    image = np.zeros((1000, 1500, 3), np.uint8)
    count = 30
    found = SimpleNamespace(boxes=np.array([[5, 5, 1490, 990]] * count),
                            masks=np.broadcast_to(np.uint8(1), (count, 1000, 1500)),
                            classes=np.zeros(count, int), mask_scores=np.full(count, 0.9))
    draw_detections(image, found, ["a"], top_k=1)  # fonts are loaded once
    tracemalloc.start()
    draw_detections(image, found, ["a"], top_k=count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * image.nbytes  # all masks as float32 would take 40 times as much


def test_contact_sheet():
    wide, tall = np.full((50, 100, 3), 10, np.uint8), np.full((80, 40, 3), 200, np.uint8)
    sheet = contact_sheet([wide, tall, wide], columns=2, tile=60, gap=4)
    assert sheet.shape == (2 * 64 + 4, 2 * 64 + 4, 3)
    assert (sheet[4 + 15:4 + 45, 4:64] == 10).all()  # 60x30, centred in its tile
    assert (sheet[4:64, 68 + 15:68 + 45] == 200).all()  # 30x60
    assert (sheet[68:, 68:] == 255).all()  # no fourth image
    assert contact_sheet([wide], columns=5, tile=60).shape[1] == 68
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet([], columns=2)


def log_lines(steps=120):
    lines = [{"step": step, "epoch": 0, "lr": 1e-3,
              "loss": {"class": 5 / (step + 1), "total": 8 / (step + 1)}} for step in range(steps)]
    lines.append({"step": steps, "val": {"bbox": {"AP": 0.25}, "segm": {"AP": None}}})
    return [json.dumps(line) for line in lines]


def test_history(tmp_path):
    log, png = tmp_path / "log.jsonl", tmp_path / "curves.png"
    log.write_text("\n".join(log_lines() + ['{"step": 12, "lo']))
    plot_history(log, png)
    picture = cv2.imread(str(png))
    assert picture.shape[0] > 200 and picture.std() > 5
    # Without validation there is still a picture, and another one.
    log.write_text("\n".join(log_lines()[:-1]))
    plot_history(log, tmp_path / "other.png")
    assert not np.array_equal(cv2.imread(str(tmp_path / "other.png")), picture)


@pytest.mark.parametrize("content, message", [
    (None, "cannot read .*log.jsonl"),
    ("", "log.jsonl holds no step to plot"),
    ("\n".join(["{broken"] + log_lines(2)), "log.jsonl: line 1 is not JSON"),
])
def test_unusable_history(tmp_path, content, message):
    if content is not None:
        (tmp_path / "log.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        plot_history(tmp_path / "log.jsonl", tmp_path / "curves.png")
