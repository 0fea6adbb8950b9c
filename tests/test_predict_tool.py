"""``predict``: its sources and outputs, Ctrl-C, and mistakes in one line."""
import json
import logging
import os
import shutil

import cv2
import numpy as np
import pytest
from pycocotools import mask as mask_utils
from stub_network import read_film, stub_camera, stub_predictor, turned_picture, write_film
from tiny import CLASSES

from yolact_mx import predict

pytest_plugins = ("tiny_fixtures",)
GREY = np.full((20, 40, 3), 200, np.uint8)


@pytest.fixture
def predicted(tool, monkeypatch):
    """``predicted(arguments...)``: the tool with the stub network."""
    monkeypatch.setattr(predict, "load_predictor", lambda *args, **kwargs: stub_predictor())
    return lambda *arguments: tool("predict", "network", *arguments)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_outputs_of_all_sources(tool, tiny_export, tiny_run, tmp_path):
    """With a real network: a folder, a pattern, a turned picture and a film at once."""
    folder = tmp_path / "in"
    shutil.copytree(str(tiny_run.data / "images"), str(folder))
    turned_picture(folder / "more" / "turned.jpg")
    film = write_film(tmp_path / "film.avi", width=100, height=80)
    code, out, err = tool(
        "predict", str(tiny_export) + "-symbol.json", folder, folder / "m*" / "*.jpg", film,
        "--out", tmp_path / "drawn", "--json", tmp_path / "found.json", "--labelme",
        tmp_path / "polygons", "--cutouts", tmp_path / "cut", "--threshold", 0.01, "--top-k", 2,
        "--display-fps")
    assert code == 0 and "Traceback" not in err
    records = read(tmp_path / "found.json")
    assert "10 pictures, 1 videos (6 frames), {} instances: {}".format(
        len(records), tmp_path / "drawn") in out
    assert len(os.listdir(str(tmp_path / "drawn"))) == 11
    rate, frames = read_film(tmp_path / "drawn" / "film.mp4")
    assert rate == 7.5 and len(frames) == 6 and frames[0].shape == (80, 100, 3)
    assert cv2.imread(str(tmp_path / "drawn" / "turned.png")).shape == (40, 20, 3)
    polygons = sorted((tmp_path / "polygons").glob("*.json"))
    assert len(polygons) == 16
    labels = [shape["label"] for path in polygons for shape in read(path)["shapes"]]
    assert set(labels) <= {record["category"] for record in records} <= set(CLASSES)
    cuts = list((tmp_path / "cut").glob("*/*.png"))
    visible = sum(mask_utils.area(record["segmentation"]) > 0 for record in records)
    assert 0 < len(cuts) == visible <= len(labels)
    assert all(cv2.imread(str(path), cv2.IMREAD_UNCHANGED).shape[2] == 4 for path in cuts)


def test_classes(predicted, tmp_path):
    film = write_film(tmp_path / "a.avi", (200,) * 3)
    out = ("--out", tmp_path / "out", "--json", tmp_path / "found.json", "--threshold", 0.05)
    for names, found in ((["cat"], {"cat"}), (["dog"], {"dog"}), (["dog", "cat"], {"cat", "dog"})):
        assert predicted(film, *out, "--classes", *names)[0] == 0
        assert {record["category"] for record in read(tmp_path / "found.json")} == found
    code, _, err = predicted(film, *out, "--classes", "cat", "dogg")
    assert code == 2 and err.splitlines()[-1] == (
        "error: --classes: the network has no class 'dogg'; did you mean 'dog'?")


def test_results_that_can_be_scored(tool, tiny_run, tmp_path):
    """With --ann the records are COCO results of that file, which eval takes."""
    truth, results = tiny_run.data / "instances_val.json", tmp_path / "results.json"
    pictures = [tiny_run.data / "images" / image["file_name"] for image in read(truth)["images"]]
    code, _, _ = tool("predict", tiny_run.folder, *pictures, "--out", tmp_path / "drawn",
                      "--ann", truth, "--json", results, "--threshold", 0.001)
    records = read(results)
    assert code == 0 and records
    assert {record["image_id"] for record in records} <= {11, 12, 13}
    assert {record["category_id"] for record in records} <= {0, 3, 7, 90}
    assert tool("eval", "--results", results, "--ann", truth)[0] == 0
    other = tiny_run.data / "images" / "001.png"  # of the training set
    code, _, err = tool("predict", tiny_run.folder, other, "--out", tmp_path / "other",
                        "--ann", truth, "--json", results)
    assert code == 2 and "001.png' not" in err and not (tmp_path / "other").exists()
    assert read(results) == records


def test_ann_decides_about_exif(predicted, tmp_path):
    picture, truth = turned_picture(tmp_path / "a.jpg"), tmp_path / "val.json"
    for size in ((40, 20), (20, 40)):
        truth.write_text(json.dumps({
            "images": [{"id": 4, "file_name": "a.jpg", "width": size[0], "height": size[1]}],
            "categories": [{"id": 2, "name": "dog"}, {"id": 1, "name": "cat"}]}))
        assert predicted(picture, "--out", tmp_path / "out", "--ann", truth, "--json",
                         tmp_path / "found.json", "--threshold", 0.05)[0] == 0
        records = read(tmp_path / "found.json")
        assert records and all(
            record["segmentation"]["size"] == [size[1], size[0]] for record in records)


def test_a_webcam_until_ctrl_c(predicted, monkeypatch, tmp_path):
    stub_camera(monkeypatch, [GREY] * 5 + [KeyboardInterrupt()], rate=10)
    monkeypatch.setattr("yolact_mx.video.VideoFile.close", lambda self: self._writer.release())
    code, out, err = predicted("--webcam", 2, "--out", tmp_path, "--json", tmp_path / "found.json")
    assert code == 0 and "1 videos (5 frames), 0 instances" in out and "Traceback" not in err
    assert read(tmp_path / "found.json") == []
    monkeypatch.undo()
    rate, frames = read_film(tmp_path / "webcam2.mp4")
    assert rate == 10 and len(frames) >= 5 and abs(frames[0].mean() - 200) < 3


@pytest.mark.parametrize("opened, text", [(True, "no more frames"), (False, "there is none")])
def test_a_webcam_that_fails(predicted, monkeypatch, tmp_path, caplog, opened, text):
    stub_camera(monkeypatch, [GREY] * 2, rate=10, opened=opened)
    monkeypatch.setattr("yolact_mx.video.VideoFile.close", lambda self: self._writer.release())
    code, out, _ = predicted("--webcam", 0, "--out", tmp_path)
    assert code == 1 and "webcam 0: " + text in caplog.text
    assert "1 videos could not be read to their end" in out


def test_ctrl_c_leaves_what_was_done(predicted, monkeypatch, tmp_path):
    calls = []

    def interrupted(predictor, batch, detect=predict.Predictor.detect):
        calls.append(len(batch))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return detect(predictor, batch)

    monkeypatch.setattr(predict.Predictor, "detect", interrupted)
    film = write_film(tmp_path / "a.avi", [200] * 50)
    code, out, err = predicted(film, "--out", tmp_path / "out", "--json", tmp_path / "found.json",
                               "--threshold", 0.15)
    assert code == 130 and err.splitlines()[-1] == "interrupted"
    assert "1 videos (3 frames), 3 instances" in out
    assert len(read_film(tmp_path / "out" / "a.mp4")[1]) == 3
    assert [record["frame"] for record in read(tmp_path / "found.json")] == [0, 1, 2]


def test_what_cannot_be_read_is_named_and_counted(predicted, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for name in ("a.png", "b.mp4", "c.txt"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("neither")
    write_film(tmp_path / "in" / "d.avi")
    code, out, _ = predicted(tmp_path / "in", "--out", tmp_path / "out")
    assert code == 1 and out.splitlines()[-1] == (
        "0 pictures, 1 videos (6 frames), 0 instances: {}; 1 pictures could not be read; "
        "1 videos could not be read to their end".format(tmp_path / "out"))
    for text in ("a.png: not an image", "b.mp4: not a video", "1 other files are neither"):
        assert text in caplog.text
    assert os.listdir(str(tmp_path / "out")) == ["d.mp4"]


def test_errors_of_a_thread_are_one_line(predicted, monkeypatch, tmp_path):
    film = write_film(tmp_path / "a.avi")
    (tmp_path / "out" / "a.mp4").mkdir(parents=True)
    code, _, err = predicted(film, "--out", tmp_path / "out")
    assert code == 2 and "a.mp4' cannot be written" in err.splitlines()[-1]
    assert err.count("error: ") == 1 and "Traceback" not in err
    (tmp_path / "cut").write_text("a file")
    code, _, err = predicted(film, "--out", tmp_path / "x", "--cutouts", tmp_path / "cut",
                             "--threshold", 0.01)
    assert code == 2 and "Not a directory" in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.parametrize("arguments, text", [
    ((), "name pictures or videos, or --webcam N"),
    (("a.png", "--webcam", "0"), "name pictures or videos, or --webcam N"),
    (("a.png", "--ann", "val.json"), "--ann FILE is for --json FILE"),
    (("--webcam", "front"), "invalid int value: 'front'")])
def test_mistakes_of_the_command_line(tool, arguments, text):
    code, _, err = tool("predict", "run", *arguments)
    assert code == 2 and err.startswith("usage: ") and text in err.splitlines()[-1]
