"""Overlays, records and cut-outs of pictures and videos, and the line that sums them up."""
import json
import os

import cv2
import numpy as np
import pytest
from pycocotools import mask as mask_utils
from stub_network import CLASSES, read_film, stub_predictor, write_film, write_picture

from yolact_mx import outputs as outputs_module
from yolact_mx.detect import to_image_size
from yolact_mx.errors import DatasetError
from yolact_mx.outputs import (
    CutOuts,
    JsonRecords,
    Outputs,
    Overlays,
    check_overlays,
    choose,
    write_png,
)
from yolact_mx.pipeline import predict_frames
from yolact_mx.sources import Frame, find_sources, read_frames


def predict(paths, *writers, **options):
    """The stub network's findings through the writers; returns the Outputs."""
    with Outputs(writers) as outputs:
        predict_frames(stub_predictor(), read_frames(paths), outputs,
                       lambda found: choose(found, **options))
    return outputs


def test_choose():
    found = stub_predictor()([np.full((20, 40, 3), 60, np.uint8)])[0]  # dog 0.06, cat 0.1
    assert choose(found).classes.tolist() == [0, 1]  # best first
    assert choose(found, 0.08).classes.tolist() == [0]
    assert choose(found, top_k=1).classes.tolist() == [0]
    assert choose(found, top_k=1, classes=[1]).classes.tolist() == [1]  # filtered first
    assert choose(found, classes=[0, 1], top_k=5).mask_scores == pytest.approx([0.1, 0.06])
    assert len(choose(found, 0.1 + 1e-6)) == 0
    assert choose(found).masks.shape == (2, 8, 8)


def test_drawings_and_records_of_pictures(tmp_path):
    path = write_picture(tmp_path / "a.jpg")
    out, file = tmp_path / "out" / "deep", tmp_path / "found.json"
    predict([path], Overlays(out, CLASSES), JsonRecords(file, CLASSES), threshold=0.05)
    records = json.loads(file.read_text())
    segmentations = [record.pop("segmentation") for record in records]
    assert records == [
        {"file": "a.jpg", "category": "dog", "bbox": [20, 5, 20, 10],
         "score": pytest.approx(0.2, rel=1e-5)},
        {"file": "a.jpg", "category": "cat", "bbox": [0, 0, 20, 10], "score": pytest.approx(0.1)}]
    mask = mask_utils.decode(segmentations[0])
    assert mask.shape == (20, 40) and mask[6:14, 22:].all() and mask.sum() <= 12 * 22
    drawn = cv2.imread(str(out / "a.png"))
    assert drawn.shape == (20, 40, 3) and drawn[10, 30].tolist() != [200] * 3


@pytest.mark.parametrize("options, categories", [
    ({"threshold": 0.05, "top_k": 1}, ["dog"]), ({"threshold": 0.15}, ["dog"]),
    ({"threshold": 0.3}, []), ({"classes": [0]}, ["cat"]), ({"threshold": 0.05}, ["dog", "cat"])])
@pytest.mark.parametrize("scale", [1, 2])
def test_what_is_chosen_is_drawn(tmp_path, options, categories, scale):
    path, file = write_picture(tmp_path / "a.png"), tmp_path / "found.json"
    predict([path], Overlays(tmp_path / "out", CLASSES, scale), JsonRecords(file, CLASSES),
            **options)
    assert [record["category"] for record in json.loads(file.read_text())] == categories
    drawn = cv2.imread(str(tmp_path / "out" / "a.png"))
    assert drawn.shape == (20 * scale, 40 * scale, 3)
    assert (drawn != 200).any() == bool(categories)


@pytest.mark.parametrize("scale", [1, 2])
def test_videos(tmp_path, scale):
    """As many frames as there were, at the same rate and size; records know their frame."""
    paths = [write_film(tmp_path / "a.avi"), write_picture(tmp_path / "b.png"),
             write_film(tmp_path / "c.mp4", (0, 250), 12)]
    out, file = tmp_path / "out", tmp_path / "found.json"
    outputs = predict(paths, Overlays(out, CLASSES, scale), JsonRecords(file, CLASSES),
                      threshold=0.11)
    assert outputs.summary(out) == (
        "1 pictures, 2 videos (8 frames), 6 instances: {}".format(out)) and not outputs.failed
    assert sorted(os.listdir(str(out))) == ["a.mp4", "b.png", "c.mp4"]
    rate, frames = read_film(out / "a.mp4")
    assert rate == 7.5 and len(frames) == 6 and frames[0].shape == (20 * scale, 40 * scale, 3)
    assert abs(frames[1].mean() - 80) < 3  # nothing found in it
    changed = frames[5].astype(int) - 240
    assert abs(changed[-3 * scale:, :15 * scale]).mean() < 5
    assert abs(changed[8 * scale:12 * scale, 26 * scale:34 * scale]).mean() > 30
    assert [(record["file"], record.get("frame")) for record in json.loads(file.read_text())] == [
        ("a.avi", 2), ("a.avi", 3), ("a.avi", 4), ("a.avi", 5), ("b.png", None), ("c.mp4", 1)]
    assert read_film(out / "c.mp4")[0] == 12


def test_display_fps(tmp_path, monkeypatch):
    """Averaged over the last 30 frames, on the second frame and later."""
    clock = iter(np.arange(100) / 8)
    monkeypatch.setattr(outputs_module.time, "perf_counter", lambda: next(clock))
    notes = []
    monkeypatch.setattr(outputs_module, "draw_note", lambda image, text: notes.append(text))
    film = write_film(tmp_path / "a.avi", [100] * 35)
    predict([film], Overlays(tmp_path / "out", CLASSES, show_rate=True))
    assert notes == ["8.0 fps"] * 34
    predict([film], Overlays(tmp_path / "out", CLASSES))
    assert len(notes) == 34


def test_what_display_fps_draws(tmp_path):
    film = write_film(tmp_path / "a.avi", [0] * 3, width=160, height=80)
    predict([film], Overlays(tmp_path / "out", CLASSES, show_rate=True), threshold=0.5)
    first, second, _ = read_film(tmp_path / "out" / "a.mp4")[1]
    assert first.max() < 10 and second[:15, :60].max() > 150 and second[40:].max() < 10


def test_records_are_json_whatever_happens(tmp_path):
    file = tmp_path / "found.json"
    with pytest.raises(KeyboardInterrupt):
        with Outputs([JsonRecords(file, ["Katze", "猫"])]) as outputs:
            found = stub_predictor()([np.full((20, 40, 3), 200, np.uint8)])[0]
            outputs.write(Frame(tmp_path / "a.png", np.zeros((20, 40, 3), np.uint8)),
                          to_image_size(found, 40, 20))
            raise KeyboardInterrupt
    assert [record["category"] for record in json.loads(file.read_text(encoding="utf-8"))] == [
        "猫", "Katze"]
    with Outputs([JsonRecords(file, CLASSES)]):
        pass
    assert file.read_text() == "[]"


def test_cut_outs(tmp_path):
    pixels = np.arange(20 * 40 * 3).reshape(20, 40, 3).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), pixels)
    predict([tmp_path / "a.png"], CutOuts(tmp_path / "cut", ["cat/lion", "a dog"]))
    assert sorted(os.listdir(str(tmp_path / "cut" / "a"))) == ["001_a_dog.png", "002_cat_lion.png"]
    dog = cv2.imread(str(tmp_path / "cut" / "a" / "001_a_dog.png"), cv2.IMREAD_UNCHANGED)
    height, width, channels = dog.shape
    assert channels == 4 and (10 <= height <= 12) and (20 <= width <= 22)
    np.testing.assert_array_equal(dog[..., :3], pixels[5:5 + height, 40 - width:])
    assert set(np.unique(dog[..., 3])) <= {0, 255} and (dog[2:-2, 2:, 3] == 255).all()


def test_cut_outs_of_a_video(tmp_path):
    predict([write_film(tmp_path / "a.avi", (100, 250))], CutOuts(tmp_path / "cut", CLASSES),
            threshold=0.11)
    assert os.listdir(str(tmp_path / "cut" / "a")) == ["000001_001_dog.png"]


def test_a_mask_without_pixels_has_no_cut_out(tmp_path, caplog):
    predictor = stub_predictor()
    graph = predictor.graph
    only_cat = np.array([0, 1, 0], np.float32)[:, None, None]
    predictor.graph = lambda images: [*graph(images)[:4], graph(images)[4] * only_cat]
    with Outputs([CutOuts(tmp_path / "cut", CLASSES)]) as outputs:
        predict_frames(predictor, read_frames([write_picture(tmp_path / "a.png")]), outputs, choose)
    assert os.listdir(str(tmp_path / "cut" / "a")) == ["002_cat.png"]
    assert "1 instances have a mask without any pixel" in caplog.text


def test_what_cannot_be_read_does_not_stop_the_others(tmp_path, caplog):
    paths = [write_picture(tmp_path / "a.png"), tmp_path / "b.png", tmp_path / "c.mp4",
             write_picture(tmp_path / "d.png")]
    for path in paths[1:3]:
        path.write_text("neither")
    outputs = predict(paths, Overlays(tmp_path / "out", CLASSES))
    assert outputs.failed == 2 and outputs.summary("X") == (
        "2 pictures, 0 videos (0 frames), 4 instances: X; 1 pictures could not be read; "
        "1 videos could not be read to their end")
    assert "b.png: not an image" in caplog.text and "c.mp4: not a video" in caplog.text
    assert sorted(os.listdir(str(tmp_path / "out"))) == ["a.png", "d.png"]
    assert predict([paths[0]]).summary("X") == "1 pictures, 2 instances: X"
    assert predict([write_film(tmp_path / "e.avi")]).summary("X") == (
        "1 videos (6 frames), 12 instances: X")


def test_nothing_is_overwritten(tmp_path):
    first, second = write_picture(tmp_path / "x" / "a.png"), write_picture(tmp_path / "y" / "a.jpg")
    film = write_film(tmp_path / "x" / "a.mp4")
    with pytest.raises(DatasetError, match="drawing of '.*x/a.png' would overwrite '.*x/a.png'"):
        check_overlays([first], tmp_path / "x")
    with pytest.raises(DatasetError, match="y/a.jpg' would overwrite '.*', that of '.*x/a.png'"):
        check_overlays([first, second], tmp_path / "out")
    with pytest.raises(DatasetError, match="drawing of '.*x/a.mp4' would overwrite '.*x/a.mp4'"):
        check_overlays([film], tmp_path / "x")
    check_overlays([second], tmp_path / "y")  # a.png beside a.jpg is fine
    check_overlays(find_sources([tmp_path / "x"]), tmp_path / "out")  # a.png and a.mp4


def test_a_full_disk_is_told(tmp_path):
    with pytest.raises(OSError, match="No such file or directory: '.*nowhere/a.png'"):
        write_png(tmp_path / "nowhere" / "a.png", np.zeros((2, 2, 3), np.uint8))
    path = write_picture(tmp_path / "a.png")
    overlays = Overlays(tmp_path / "out", CLASSES)
    (tmp_path / "out" / "a.png").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        predict([path], overlays)
