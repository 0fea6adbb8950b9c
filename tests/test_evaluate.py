"""COCO metrics: equal to pycocotools bit for bit, and robust where it is not."""
import io
import json
import sys
import types
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy as np
import pytest
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from yolact_mx import evaluate as module
from yolact_mx.errors import ConfigError, DatasetError
from yolact_mx.evaluate import CocoEvaluator, format_table, score_results

HEIGHT, WIDTH = 120, 160
# Precision 1 up to recall 0.5, then 2/3: two objects, found first and third.
AP_HIT_MISS_HIT = (51 + 50 * 2 / 3) / 101


def pycocotools_stats(annotations, results, iou_type):
    """The 12 numbers of pycocotools on two files, without any code of ours."""
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        evaluation = COCOeval(truth, truth.loadRes(str(results)), iou_type)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats.tolist()


def our_stats(metrics, iou_type):
    return [-1 if value is None else value for value in metrics[iou_type].values()]


def polygon(x, y, w, h):
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def rle(x, y, w, h, height=HEIGHT, width=WIDTH):
    mask = np.zeros((height, width), np.uint8, order="F")
    mask[int(y):int(y + h), int(x):int(x + w)] = 1
    encoded = mask_utils.encode(mask)
    return {"size": encoded["size"], "counts": encoded["counts"].decode()}


def run_lengths(x, y, w, h):
    """The uncompressed form, which COCO uses for crowds."""
    column = [y] + [h, HEIGHT - h] * (w - 1) + [h, HEIGHT - y - h]
    column[0] += x * HEIGHT
    column[-1] += (WIDTH - x - w) * HEIGHT
    return {"size": [HEIGHT, WIDTH], "counts": column}


def truth_of(objects, images=(1,), categories=(1,)):
    """Ground truth of (image, category, box) or (image, category, box, extra keys)."""
    annotations = []
    for number, (image, category, box, *extra) in enumerate(objects, 1):
        annotations.append(dict({"id": number, "image_id": image, "category_id": category,
                                 "bbox": list(box), "area": box[2] * box[3], "iscrowd": 0,
                                 "segmentation": [polygon(*box)]}, **(extra[0] if extra else {})))
    return {"images": [{"id": i, "file_name": "{}.jpg".format(i), "height": HEIGHT,
                        "width": WIDTH} for i in images],
            "categories": [{"id": c, "name": "class {}".format(c)} for c in categories],
            "annotations": annotations}


def results_of(found):
    """Results with box and mask of (image, category, box, score)."""
    return [{"image_id": image, "category_id": category, "bbox": list(box), "score": score,
             "segmentation": rle(*box)} for image, category, box, score in found]


def random_case(seed, num_images=12):
    """A data set with crowds, several parts, all size classes and imperfect detections."""
    rng = np.random.RandomState(seed)
    truth, results = truth_of([], range(1, num_images + 1), (3, 7, 12, 90)), []
    for image in range(1, num_images + 1):
        for _ in range(rng.randint(0, 7)):
            x, y = rng.randint(0, 100), rng.randint(0, 70)
            w, h = rng.randint(4, WIDTH - x), rng.randint(4, HEIGHT - y)
            category = int(rng.choice([3, 7, 12]))
            crowd = bool(rng.rand() < 0.15)
            shape = [polygon(x, y, w, h), polygon(x, y, 3, 3)]
            if crowd:
                shape = run_lengths(x, y, w, h)
            truth["annotations"].append({
                "id": len(truth["annotations"]) + 1, "image_id": image, "category_id": category,
                "bbox": [float(x), float(y), float(w), float(h)], "area": float(w * h) * 0.9,
                "iscrowd": int(crowd), "segmentation": shape})
            for _ in range(rng.randint(0, 4)):
                dx, dy, dw, dh = rng.randint(-4, 5, 4)
                box = [max(x + dx, 0), max(y + dy, 0), max(w + dw, 1), max(h + dh, 1)]
                wrong = rng.rand() < 0.2
                results.append((image, int(rng.choice([3, 7, 12, 90])) if wrong else category,
                                [float(v) for v in box], float(rng.randint(1, 50)) / 50))
    return truth, results_of(results)


def write(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(params=["pycocotools", "hotcoco"])
def backend(request, monkeypatch):
    """Both evaluators; hotcoco's runs where it is installed."""
    if request.param == "hotcoco":
        pytest.importorskip("hotcoco")
    else:
        monkeypatch.setattr(module, "coco_backend", lambda: (COCO, COCOeval))
    return request.param


# ------------------------------------------------------------------ equal to pycocotools

@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("keys", ["bbox", "segmentation", "bbox segmentation"])
def test_equals_pycocotools_bit_for_bit(tmp_path, backend, seed, keys):
    truth, results = random_case(seed)
    dropped = {"bbox", "segmentation"} - set(keys.split())
    results = [{k: v for k, v in r.items() if k not in dropped} for r in results]
    if not dropped:  # the size class of a mask then follows the area of the box
        for result in results:
            result["bbox"][2] *= 1.5
    annotations = write(tmp_path / "truth.json", truth)
    found = write(tmp_path / "results.json", results)
    metrics = score_results(annotations, found)
    for key, iou_type in (("bbox", "bbox"), ("segmentation", "segm")):
        assert (iou_type in metrics) == (key in keys.split())
        if iou_type in metrics:
            expected = pycocotools_stats(annotations, found, iou_type)
            assert our_stats(metrics, iou_type) == expected
            assert 0 < expected[0] < 1


def test_ids_from_zero_and_texts_score_as_ids_from_one(tmp_path, backend):
    truth, results = random_case(3)
    found = write(tmp_path / "results.json", results)
    expected = score_results(write(tmp_path / "a.json", truth), found)
    for number, annotation in enumerate(truth["annotations"]):
        annotation["id"] = number
    assert score_results(write(tmp_path / "b.json", truth), found) == expected
    for record in truth["annotations"] + results:
        record["image_id"] = "image {:03d}".format(record["image_id"])
    for image in truth["images"]:
        image["id"] = "image {:03d}".format(image["id"])
    found = write(tmp_path / "texts.json", results)
    assert score_results(write(tmp_path / "c.json", truth), found) == expected


def test_repeated_annotation_ids_are_separate_objects(tmp_path):
    truth, results = random_case(4)
    found = write(tmp_path / "results.json", results)
    expected = score_results(write(tmp_path / "a.json", truth), found)
    for annotation in truth["annotations"]:
        annotation["id"] = 5
    assert score_results(write(tmp_path / "b.json", truth), found) == expected


def test_an_object_annotated_twice_counts_twice_as_in_pycocotools(tmp_path):
    box = (10, 10, 40, 40)
    annotations = write(tmp_path / "truth.json", truth_of([(1, 1, box), (1, 1, box)]))
    found = write(tmp_path / "results.json", results_of([(1, 1, box, 0.9)]))
    metrics = score_results(annotations, found)
    assert metrics["bbox"]["AR100"] == 0.5
    assert our_stats(metrics, "bbox") == pycocotools_stats(annotations, found, "bbox")


def test_missing_keys_are_filled_in(tmp_path):
    truth, results = random_case(5)
    for annotation in truth["annotations"]:
        box = annotation["bbox"]
        annotation["segmentation"] = rle(*box) if annotation["iscrowd"] else [polygon(*box)]
        annotation["area"] = int(mask_utils.area(rle(*box)))
    found = write(tmp_path / "results.json", results)
    expected = score_results(write(tmp_path / "a.json", truth), found)
    for annotation in truth["annotations"]:
        del annotation["area"]
        if not annotation["iscrowd"]:
            del annotation["iscrowd"], annotation["bbox"]
    assert score_results(write(tmp_path / "b.json", truth), found) == expected


def test_byte_order_mark(tmp_path):
    truth, results = random_case(6)
    plain = score_results(write(tmp_path / "a.json", truth), write(tmp_path / "r.json", results))
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(truth).encode())
    (tmp_path / "s.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(results).encode())
    assert score_results(tmp_path / "b.json", tmp_path / "s.json") == plain


def test_a_fast_backend_is_used_when_installed(monkeypatch):
    fake = types.ModuleType("hotcoco")
    fake.COCO, fake.COCOeval = object(), object()
    monkeypatch.setitem(sys.modules, "hotcoco", fake)
    assert module.coco_backend() == (fake.COCO, fake.COCOeval)
    monkeypatch.setitem(sys.modules, "hotcoco", None)  # None: the import fails
    assert module.coco_backend() == (COCO, COCOeval)


# ------------------------------------------------------------------ worked by hand

def test_hand_worked_average_precision(tmp_path, backend):
    first, second, nowhere = (0, 0, 40, 40), (60, 60, 40, 40), (110, 0, 40, 40)
    truth = write(tmp_path / "t.json", truth_of([(1, 1, first), (1, 1, second)]))
    found = write(tmp_path / "r.json", results_of(
        [(1, 1, first, 0.9), (1, 1, nowhere, 0.8), (1, 1, second, 0.7)]))
    metrics = score_results(truth, found)
    for iou_type in ("bbox", "segm"):
        assert metrics[iou_type]["AP"] == pytest.approx(AP_HIT_MISS_HIT, abs=1e-12)
        assert metrics[iou_type]["AR1"] == 0.5
        assert metrics[iou_type]["AR100"] == 1.0
        assert metrics["per_class"][0][iou_type]["AP"] == metrics[iou_type]["AP"]
        assert metrics[iou_type]["APs"] is None  # both objects are of medium size
        assert metrics[iou_type]["APl"] is None


def test_no_detections_score_zero(tmp_path, backend):
    truth = write(tmp_path / "t.json", truth_of([(1, 1, (0, 0, 40, 40))], images=(1, 2)))
    metrics = score_results(truth, write(tmp_path / "r.json", []))
    for iou_type in ("bbox", "segm"):
        assert metrics[iou_type]["AP"] == 0.0
        assert metrics[iou_type]["AR100"] == 0.0
    assert metrics["detections"] == 0


def test_class_without_ground_truth_is_left_out_of_the_mean(tmp_path, backend):
    box = (0, 0, 40, 40)
    truth = write(tmp_path / "t.json", truth_of([(1, 0, box)], categories=(90, 0, 7)))
    found = write(tmp_path / "r.json", results_of([(1, 0, box, 0.9), (1, 7, box, 0.95)]))
    metrics = score_results(truth, found)
    assert metrics["bbox"]["AP"] == pytest.approx(1.0)
    rows = {row["category_id"]: row for row in metrics["per_class"]}
    assert list(rows) == [0, 7, 90]
    assert rows[0]["bbox"]["AP"] == pytest.approx(1.0)
    assert rows[7]["bbox"] == {"AP": None, "AP50": None}
    assert (rows[7]["objects"], rows[7]["detections"]) == (0, 1)


@pytest.mark.parametrize("max_dets, recall", [(100, 100 / 150), (150, 1.0), (5, 5 / 150)])
def test_limit_of_detections(tmp_path, backend, max_dets, recall):
    boxes = [(10 * (i % 15), 10 * (i // 15), 8, 8) for i in range(150)]
    truth = write(tmp_path / "t.json", truth_of([(1, 1, box) for box in boxes]))
    found = write(tmp_path / "r.json", results_of(
        [(1, 1, box, 1 - i / 200) for i, box in enumerate(boxes)]))
    metrics = score_results(truth, found, max_dets=max_dets)
    assert metrics["max_dets"] == max_dets
    assert metrics["segm"]["AR100"] == pytest.approx(recall)
    # Precision is 1 at every recall threshold that is reached.
    reached = np.count_nonzero(np.linspace(0, 1, 101) <= recall)
    assert metrics["segm"]["AP"] == pytest.approx(reached / 101)
    assert "maxDets={:>3}".format(max_dets) in format_table(metrics)


def test_crowds_excuse_detections(tmp_path, backend):
    box, crowd = (0, 0, 40, 40), (80, 40, 60, 60)
    truth = truth_of([(1, 1, box), (1, 1, crowd, {"iscrowd": 1, "segmentation": rle(*crowd)})])
    found = results_of([(1, 1, (90, 50, 20, 20), 0.95), (1, 1, (110, 60, 20, 20), 0.94),
                        (1, 1, box, 0.9)])
    truth, found = write(tmp_path / "t.json", truth), write(tmp_path / "r.json", found)
    metrics = score_results(truth, found)
    assert metrics["bbox"]["AP"] == metrics["segm"]["AP"] == pytest.approx(1.0)


def test_images_without_objects_count(tmp_path):
    box = (0, 0, 40, 40)
    truth = write(tmp_path / "t.json", truth_of([(1, 1, box)], images=(1, 2)))
    found = write(tmp_path / "r.json", results_of(
        [(2, 1, box, 0.95), (2, 1, box, 0.94), (2, 1, box, 0.93), (1, 1, box, 0.9)]))
    # Three false positives before the only hit: precision 1/4 at every recall.
    assert score_results(truth, found)["bbox"]["AP"] == pytest.approx(0.25)


@pytest.mark.parametrize("segmentation", [[], [[]], [[1, 2, 3, 4]], None, "missing"])
def test_object_without_mask_is_no_target_of_the_mask_ap(tmp_path, backend, segmentation):
    known, box_only = (0, 0, 40, 40), (80, 40, 60, 60)
    truth = truth_of([(1, 1, known), (1, 1, box_only, {"segmentation": segmentation})])
    if segmentation == "missing":
        del truth["annotations"][1]["segmentation"]
    found = write(tmp_path / "r.json", results_of([(1, 1, box_only, 0.95), (1, 1, known, 0.9)]))
    metrics = score_results(write(tmp_path / "t.json", truth), found)
    assert metrics["bbox"]["AR100"] == metrics["segm"]["AR100"] == 1.0
    assert metrics["segm"]["AR1"] == 0.0  # the first detection is excused, not a hit
    assert metrics["bbox"]["AR1"] == 0.5


@pytest.mark.parametrize("parts", [
    [[60, 60, 62, 62], polygon(10, 10, 20, 20)], [polygon(10, 10, 20, 20), [60, 60, 62, 62]],
    [polygon(10, 10, 20, 20), [float("nan")] * 6], [polygon(10, 10, 20, 20), [1e30] * 8]])
def test_the_good_part_of_a_polygon_counts(tmp_path, parts):
    truth = truth_of([(1, 1, (10, 10, 20, 20), {"segmentation": parts})])
    del truth["annotations"][0]["area"]
    evaluator = CocoEvaluator(truth)
    assert evaluator.truth.objects[0]["area"] == 400
    evaluator.load_results(write(tmp_path / "r.json", results_of([(1, 1, (10, 10, 20, 20), 1)])))
    assert evaluator.evaluate()["segm"]["AP"] == pytest.approx(1.0)


# ------------------------------------------------------------------ faults

@pytest.mark.parametrize("change, message", [
    (lambda r: r.update(image_id=99), "image_id 99 not in .*truth.json"),
    (lambda r: r.update(category_id=8), "category_id 8 not in .*truth.json"),
    (lambda r: r.pop("image_id"), "result 0: image_id is missing"),
    (lambda r: r.pop("score"), "result 0: score is missing"),
    (lambda r: r.update(score=float("nan")), "result 0: score is missing or not a number"),
    (lambda r: r.update(bbox=[1, 2, 3]), "result 0: bbox must be four numbers"),
    (lambda r: r.update(bbox=[]), "result 1: either all results have a bbox or none"),
    (lambda r: r.update(segmentation=rle(0, 0, 5, 5, 50, 50)),
     "result 0: segmentation is not a mask of 120 rows and 160 columns"),
    (lambda r: r.update(segmentation={"size": [HEIGHT, WIDTH], "counts": [7, -7]}),
     "result 0: segmentation is not a mask"),
    (lambda r: r.update(segmentation={"size": [HEIGHT, WIDTH], "counts": "zzzz"}),
     "result 0: segmentation is not a mask"),
    (lambda r: r.clear(), "result 0: image_id is missing"),
])
def test_faulty_results_are_named(tmp_path, change, message):
    results = results_of([(1, 1, (0, 0, 40, 40), 0.9), (1, 1, (9, 9, 40, 40), 0.8)])
    change(results[0])
    truth = write(tmp_path / "truth.json", truth_of([(1, 1, (0, 0, 40, 40))]))
    with pytest.raises(DatasetError, match=message) as error:
        score_results(truth, write(tmp_path / "results.json", results))
    assert "results.json" in str(error.value) and "\n" not in str(error.value)


def test_many_unknown_images_are_listed_in_short(tmp_path):
    truth = write(tmp_path / "t.json", truth_of([(1, 1, (0, 0, 40, 40))]))
    found = results_of([(image, 1, (0, 0, 4, 4), 0.9) for image in [1] + list(range(20, 40)) * 2])
    with pytest.raises(DatasetError, match=r"20, 21, 22, 23, 24, \.\.\. \(20 in all\) not in"):
        score_results(truth, write(tmp_path / "r.json", found))


@pytest.mark.parametrize("content, message", [
    (None, "cannot read .*truth.json: No such file"),
    (b"{", "truth.json is not valid JSON"),
    (b"\xff\xfe{}", "truth.json is not valid JSON"),
    (b"[" * 100000, "truth.json is not valid JSON"),
    (b"[]", "expected a JSON object with images, annotations and categories, found list"),
    (b'{"images": [], "annotations": []}', "'categories' is missing or not a list"),
    (b'{"images": [{}], "annotations": [], "categories": []}', r"images\[0\] needs .* as 'id'"),
    (b'{"images": [], "annotations": [7], "categories": []}', r"annotations\[0\] needs .*image_id"),
    (b'{"images": [], "annotations": [], "categories": []}', "no object to score against"),
])
def test_faulty_ground_truth_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "truth.json").write_bytes(content)
    with pytest.raises(DatasetError, match=message) as error:
        CocoEvaluator(tmp_path / "truth.json")
    assert "\n" not in str(error.value)


def test_only_crowds_are_refused():
    crowd = {"iscrowd": 1, "segmentation": rle(0, 0, 40, 40)}
    with pytest.raises(DatasetError, match="1 annotations, 1 of them usable crowd regions"):
        CocoEvaluator(truth_of([(1, 1, (0, 0, 40, 40), crowd)]))


def test_unusable_annotations_are_reported(caplog):
    box = (0, 0, 40, 40)
    truth = truth_of([(1, 1, box), (5, 1, box), (1, 6, box),
                      (1, 1, box, {"bbox": [1, 2], "segmentation": []})])
    evaluator = CocoEvaluator(truth)
    assert len(evaluator.truth.objects) == 1
    for line in ("(unknown image): ids 2", "(unknown category): ids 3",
                 "(neither box nor mask): ids 4"):
        assert line in caplog.text


# ------------------------------------------------------------------ detections of a network

def detections(boxes, classes, scores, mask_scores=None, height=HEIGHT, width=WIDTH):
    """ImageDetections whose masks are the boxes."""
    masks = np.zeros((len(boxes), height, width), np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes):
        mask[y1:y2, x1:x2] = 1
    return SimpleNamespace(boxes=np.array(boxes, np.int32).reshape(-1, 4), masks=masks,
                           classes=np.array(classes, np.int64),
                           scores=np.array(scores, np.float32),
                           mask_scores=np.array(mask_scores or scores, np.float32))


def test_process_scores_boxes_and_masks_by_their_own_scores():
    evaluator = CocoEvaluator(truth_of([(1, 7, (0, 0, 40, 40))], images=(1, 2), categories=(3, 7)))
    right, wrong = [0, 0, 40, 40], [90, 50, 130, 100]
    evaluator.process(1, detections([right, wrong], [1, 1], [0.9, 0.8], [0.3, 0.6]))
    evaluator.process(2, detections([], [], []))
    metrics = evaluator.evaluate()
    assert metrics["bbox"]["AP"] == pytest.approx(1.0)
    assert metrics["segm"]["AP"] == pytest.approx(0.5)
    assert metrics["images_with_detections"] == 1
    evaluator.reset()
    assert evaluator.evaluate()["bbox"]["AP"] == 0.0


def test_written_results_have_original_ids_and_score_the_same(tmp_path):
    truth = write(tmp_path / "t.json",
                  truth_of([(5, 90, (0, 0, 40, 40)), (6, 0, (20, 20, 30, 30))], images=(5, 6),
                           categories=(90, 0, 7)))
    evaluator = CocoEvaluator(truth, category_ids=[90, 0, 7])
    evaluator.process(5, detections([[1, 0, 40, 40]], [0], [0.9]))
    evaluator.process(np.int64(6), detections([[20, 22, 50, 50], [0, 0, 9, 9]], [1, 2], [0.7, 0.6]))
    metrics = evaluator.evaluate()
    paths = evaluator.write_results(tmp_path / "out")
    assert [path.name for path in paths] == ["results_bbox.json", "results_segm.json"]
    written = json.loads(paths[0].read_text())
    assert [(r["image_id"], r["category_id"], r["bbox"]) for r in written] == [
        (5, 90, [1, 0, 39, 40]), (6, 0, [20, 22, 30, 28]), (6, 7, [0, 0, 9, 9])]
    for path, iou_type in zip(paths, ("bbox", "segm")):
        assert score_results(truth, path)[iou_type] == metrics[iou_type]
        assert pycocotools_stats(truth, path, iou_type) == our_stats(metrics, iou_type)


def test_no_detections_write_empty_lists(tmp_path):
    evaluator = CocoEvaluator(truth_of([(1, 1, (0, 0, 40, 40))]))
    evaluator.process(1, detections([], [], []))
    assert [path.read_text() for path in evaluator.write_results(tmp_path)] == ["[]", "[]"]


def test_boxes_without_area_are_left_out_and_counted(caplog):
    caplog.set_level("INFO")
    evaluator = CocoEvaluator(truth_of([(1, 1, (0, 0, 40, 40))]))
    evaluator.process(1, detections([[0, 0, 40, 40], [5, 5, 5, 9], [9, 9, 7, 7]], [0] * 3,
                                    [0.5, 0.9, 0.8]))
    metrics = evaluator.evaluate()
    assert metrics["empty_boxes"] == 2 and metrics["detections"] == 1
    assert metrics["bbox"]["AP"] == pytest.approx(1.0)
    assert "2 detections without area left out" in caplog.text


class LazyMasks:
    """Masks that are made when asked for."""

    def __init__(self):
        self.asked = []

    def __getitem__(self, index):
        self.asked.append(index)
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        mask[:40, :40] = 1
        return mask


def test_masks_are_taken_one_at_a_time_and_not_kept():
    evaluator = CocoEvaluator(truth_of([(1, 1, (0, 0, 40, 40))]))
    found = detections([[0, 0, 40, 40]] * 50, [0] * 50, [0.5] * 50)
    found.masks = LazyMasks()
    evaluator.process(1, found)
    assert set(found.masks.asked) == set(range(50))
    # 50 masks are 960 kB; their run lengths and all else take little, and are plain JSON.
    assert len(json.dumps(evaluator.results)) < 20000
    assert evaluator.evaluate()["segm"]["AP"] == pytest.approx(1.0)


def test_faulty_use_is_refused():
    truth = truth_of([(1, 1, (0, 0, 40, 40))])
    evaluator = CocoEvaluator(truth)
    one = detections([[0, 0, 40, 40]], [0], [0.5])
    with pytest.raises(DatasetError, match="image 9 is not in the annotations"):
        evaluator.process(9, one)
    with pytest.raises(DatasetError, match="image 1 is 160x100 pixels .* says 160x120"):
        evaluator.process(1, detections([[0, 0, 40, 40]], [0], [0.5], height=100))
    with pytest.raises(DatasetError, match="detects class 3, but .* has 1 categories"):
        evaluator.process(1, detections([[0, 0, 40, 40]], [3], [0.5]))
    evaluator.process(1, one)
    with pytest.raises(DatasetError, match="image 1 was evaluated twice"):
        evaluator.process(1, one)
    with pytest.raises(DatasetError, match="no category 8, 9, which the network detects"):
        CocoEvaluator(truth, category_ids=[1, 8, 9])
    with pytest.raises(ConfigError, match="max_dets must be at least 1, found 0"):
        CocoEvaluator(truth, max_dets=0)


def test_ground_truth_is_not_changed_and_nothing_is_printed(capsys):
    truth = truth_of([(1, 1, (0, 0, 40, 40))])
    before = json.dumps(truth)
    evaluator = CocoEvaluator(truth)
    evaluator.process(1, detections([[0, 0, 40, 40]], [0], [0.5]))
    results = json.dumps(evaluator.results)
    assert evaluator.evaluate() == evaluator.evaluate()
    assert json.dumps(truth) == before and json.dumps(evaluator.results) == results
    assert capsys.readouterr().out == ""


def test_table():
    truth = truth_of([(1, 1, (0, 0, 40, 40))], categories=(1, 2))
    evaluator = CocoEvaluator(truth)
    evaluator.process(1, detections([[0, 0, 40, 40]], [0], [0.5]))
    lines = format_table(evaluator.evaluate()).splitlines()
    assert lines[0].split() == ["box", "mask"]
    assert len({len(line) for line in lines[:13]}) == 1
    assert lines[1] == ("Average Precision (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ]"
                        "   1.000   1.000")
    assert lines[4].endswith("     n/a     n/a")  # no small object
    assert lines[7].startswith("Average Recall    (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= ")
    assert lines[15].split() == ["class", "1", "1", "1", "1.000", "1.000", "1.000", "1.000"]
    assert lines[16].split() == ["class", "2", "0", "0", "n/a", "n/a", "n/a", "n/a"]
    assert lines[-1].startswith("n/a: no ground truth")
