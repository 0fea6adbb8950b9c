"""What the report counts, worked by hand, and the page itself."""
import base64
import re
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

from yolact_mx.detect import ImageDetections
from yolact_mx.error_analysis import (
    best_threshold,
    confusion_matrix,
    image_quality,
    match_images,
    scores_and_hits,
)
from yolact_mx.errors import DatasetError
from yolact_mx.eval_report import write_report
from yolact_mx.evaluate import CocoEvaluator

HEIGHT, WIDTH = 60, 80
CAT, DOG, EMU = 5, 7, 9  # category ids; classes 0, 1, 2
LEFT, RIGHT, BELOW = (0, 0, 20, 20), (40, 0, 60, 20), (0, 40, 20, 60)


def truth_of(images, objects, name="class {}"):
    """Ground truth of (image, category, xyxy box) or (image, category, box, iscrowd)."""
    annotations = []
    for image, category, (x1, y1, x2, y2), *crowd in objects:
        annotations.append({"id": len(annotations), "image_id": image, "category_id": category,
                            "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": int(bool(crowd)),
                            "segmentation": [[x1, y1, x2, y1, x2, y2, x1, y2]]})
    return {"images": [{"id": i, "file_name": "photo {}.png".format(i), "height": HEIGHT,
                        "width": WIDTH} for i in images],
            "categories": [{"id": c, "name": name.format(c)} for c in (CAT, DOG, EMU)],
            "annotations": annotations}


def found_of(*instances):
    """ImageDetections of (class, xyxy box, score); masks are the boxes."""
    masks = np.zeros((len(instances), HEIGHT, WIDTH), np.uint8)
    for mask, (_, (x1, y1, x2, y2), _) in zip(masks, instances):
        mask[y1:y2, x1:x2] = 1
    scores = np.array([score for *_, score in instances], np.float64)
    return ImageDetections(np.array([box for _, box, _ in instances]).reshape(-1, 4), scores,
                           scores, np.array([label for label, *_ in instances], int), masks)


@pytest.fixture
def evaluator():
    """Image 1: a cat found, one taken for a dog, a dog missed, a false emu.  Image 2: a crowd of
    cats with a detection in it.  Image 3: nothing at all."""
    evaluator = CocoEvaluator(truth_of(
        (1, 2, 3), [(1, CAT, LEFT), (1, CAT, RIGHT), (1, DOG, BELOW), (2, CAT, (0, 0, 60, 60), 1),
                    (2, CAT, (60, 0, 80, 60))]))
    evaluator.process(1, found_of((2, (60, 40, 80, 60), 0.3), (0, (0, 0, 20, 16), 0.9),
                                  (1, RIGHT, 0.6)))
    evaluator.process(2, found_of((0, (10, 10, 30, 30), 0.8), (0, (60, 0, 80, 60), 0.7)))
    return evaluator


@pytest.mark.parametrize("iou_type", ["bbox", "segm"])
def test_matches(evaluator, iou_type):
    first, second, third = match_images(evaluator, iou_type)
    assert (first.image_id, second.image_id, third.image_id) == (1, 2, 3)
    assert first.scores.tolist() == [0.9, 0.6, 0.3]
    assert first.classes.tolist() == [0, 1, 2]
    assert first.results.tolist() == [1, 2, 0]
    assert first.gt_classes.tolist() == [0, 0, 1]
    assert first.partner.tolist() == [0, -1, -1]
    assert first.iou[0].tolist() == [0.8, 0, 0] and first.iou[1].tolist() == [0, 1, 0]
    assert second.partner.tolist() == [-1, 0]
    assert second.excused.tolist() == [True, False]
    assert len(third.scores) == len(third.gt_classes) == 0
    scores, hits = scores_and_hits([first, second, third])
    assert scores.tolist() == [0.9, 0.6, 0.3, 0.7]
    assert hits.tolist() == [True, False, False, True]


def test_one_object_is_found_once():
    evaluator = CocoEvaluator(truth_of((1,), [(1, CAT, LEFT)]))
    evaluator.process(1, found_of((0, LEFT, 0.5), (0, (0, 0, 20, 14), 0.9)))
    match, = match_images(evaluator, "segm")
    assert match.partner.tolist() == [0, -1]  # the better score has it, not the better overlap


def test_threshold_of_the_best_f1(evaluator):
    # Falling scores 0.9 hit, 0.7 hit, 0.6 false, 0.3 false; four objects:
    # F1 = 2/5, 4/6, 4/7, 4/8.
    assert best_threshold(match_images(evaluator, "segm")) == (0.7, pytest.approx(4 / 6))


def test_equal_scores_stand_or_fall_together():
    evaluator = CocoEvaluator(truth_of((1,), [(1, CAT, LEFT)]))
    evaluator.process(1, found_of((0, LEFT, 0.5), (0, RIGHT, 0.5), (1, BELOW, 0.4)))
    assert best_threshold(match_images(evaluator, "segm")) == (0.5, pytest.approx(2 / 3))


def test_no_hit_has_no_threshold():
    evaluator = CocoEvaluator(truth_of((1,), [(1, CAT, LEFT)]))
    assert best_threshold(match_images(evaluator, "segm")) == (1.0, 0.0)
    assert best_threshold([]) == (1.0, 0.0)


def test_confusion(evaluator):
    matches = match_images(evaluator, "segm")
    assert confusion_matrix(matches, 3, threshold=0).tolist() == [
        [2, 1, 0, 0],  # cats: two found, one taken for a dog
        [0, 0, 0, 1],  # the dog is missed
        [0, 0, 0, 0],
        [0, 0, 1, 0]]  # the emu is nothing; the detection in the crowd does not count
    assert confusion_matrix(matches, 3, threshold=0.65).tolist() == [
        [2, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_quality_of_images(evaluator):
    first, second, third = match_images(evaluator, "segm")
    # One hit of IoU 0.8, two false detections, two misses.
    assert image_quality(first, 0) == pytest.approx(0.8 / (1 + 1 + 1))
    # One hit, two misses.
    assert image_quality(first, 0.65) == pytest.approx(0.8 / (1 + 1))
    assert image_quality(second, 0) == 1
    assert image_quality(second, 0.95) == 0
    assert image_quality(third, 0) is None


# ------------------------------------------------------------------ the page

class Page(HTMLParser):
    """Checks that tags are closed, and collects the text and the images."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.words, self.links = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "img":
            self.images.append(attributes["src"])
        self.links += [attributes[key] for key in ("href", "src") if key in attributes]
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def write_images(folder, images):
    for image in images:
        picture = np.full((HEIGHT, WIDTH, 3), 20 * image, np.uint8)
        assert cv2.imwrite(str(folder / "photo {}.png".format(image)), picture)


def test_page_holds_everything_itself(evaluator, tmp_path):
    write_images(tmp_path, (1, 2, 3))
    path = write_report(tmp_path / "new" / "folder", evaluator, tmp_path)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    page = Page(path.read_text(encoding="utf-8"))
    assert all(link.startswith("data:image/") for link in page.links)
    kinds = [re.match("data:image/([a-z+]+);base64,", image).group(1) for image in page.images]
    # Four figures, and ground truth and detections of both images with something on them.
    assert kinds.count("svg+xml") == 4 and kinds.count("jpeg") == 4
    for image, kind in zip(page.images, kinds):
        data = base64.b64decode(image.split(",", 1)[1])
        if kind == "jpeg":
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
            assert max(picture.shape) == 400  # 5 times the image of 80 pixels
        else:
            assert b"<svg" in data
    assert "Worst images" in page.text and "Best images" in page.text
    assert page.text.index("photo 1.png") < page.text.index("photo 2.png")
    assert "photo 3.png" not in page.text
    assert "3 images, 4 objects of 3 classes, 5 detections" in page.text
    assert "best F1, score 0.70" in page.text and "0.667" in page.text


def test_worst_images_come_first_and_best_images_best_first(tmp_path):
    images = (1, 2, 3, 4, 5)
    write_images(tmp_path, images)
    evaluator = CocoEvaluator(truth_of(images, [(image, CAT, (0, 0, 20, 20)) for image in images]))
    for image, width in zip(images, (18, 12, 20, 14, 16)):
        evaluator.process(image, found_of((0, (0, 0, 20, width), 0.9)))
    text = Page(write_report(tmp_path, evaluator, tmp_path).read_text(encoding="utf-8")).text
    assert re.findall(r"Worst images|Best images|photo \d", text) == [
        "Worst images", "photo 2", "photo 4", "photo 5", "Best images", "photo 3", "photo 1"]


def test_figures_of_the_page_are_those_of_the_metrics(evaluator, tmp_path):
    metrics = evaluator.evaluate()
    words = Page(write_report(tmp_path, evaluator).read_text(encoding="utf-8")).words
    for iou_type, name in (("bbox", "box"), ("segm", "mask")):
        tile = words.index("{} AP75".format(name)) - 1
        assert words[tile] == "{:.3f}".format(metrics[iou_type]["AP75"])
    row = words.index("class 9")
    assert words[row:row + 7] == ["class 9", "0", "1", "n/a", "n/a", "n/a", "n/a"]


def test_names_are_escaped(tmp_path):
    evaluator = CocoEvaluator(truth_of((1,), [(1, CAT, LEFT)], name="<b>&{}"))
    page = Page(write_report(tmp_path, evaluator).read_text(encoding="utf-8"))
    assert "<b>&5" in page.words


@pytest.mark.parametrize("keep", ["bbox", "segm"])
def test_results_of_one_type_only(evaluator, tmp_path, keep):
    write_images(tmp_path, (1, 2, 3))
    paths = {"bbox": "results_bbox.json", "segm": "results_segm.json"}
    evaluator.write_results(tmp_path)
    evaluator.load_results(tmp_path / paths[keep])
    page = Page(write_report(tmp_path, evaluator, tmp_path).read_text(encoding="utf-8"))
    name, other = {"bbox": ("box", "mask"), "segm": ("mask", "box")}[keep]
    assert name + " AP50" in page.text and other + " AP50" not in page.text


def test_no_detections_and_many_classes(tmp_path):
    truth = truth_of((1,), [(1, CAT, LEFT)])
    truth["categories"] += [{"id": 100 + n, "name": "more {}".format(n)} for n in range(40)]
    page = Page(write_report(tmp_path, CocoEvaluator(truth)).read_text(encoding="utf-8"))
    assert "0 detections" in page.text and "Shown: the 20 most frequent classes" in page.text
    assert "Worst images" not in page.text  # no folder of images was given


def test_a_missing_image_is_named(evaluator, tmp_path):
    with pytest.raises(DatasetError, match="photo 1.png: no such image file"):
        write_report(tmp_path, evaluator, tmp_path)
