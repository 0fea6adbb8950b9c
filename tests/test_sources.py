"""Which files a command line names, and what is read of them."""
import logging

import numpy as np
import pytest
from stub_network import stub_camera, turned_picture, write_film, write_picture

from yolact_mx.errors import DatasetError
from yolact_mx.sources import Frame, Unreadable, find_sources, read_frames, webcam_frames


@pytest.fixture
def folder(tmp_path):
    for name in ("b.png", "a.JPG", "c.tiff", "d.MP4", "notes.txt", "deep/e.png", "deep/f.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(paths):
    return [path.name for path in paths]


def test_folders_and_files(folder, caplog):
    caplog.set_level(logging.INFO)
    inside = [folder / name for name in ("a.JPG", "b.png", "c.tiff", "d.MP4")]
    assert find_sources([str(folder)]) == inside
    assert "1 other files are neither pictures nor videos" in caplog.text
    notes = folder / "notes.txt"  # named explicitly: taken for a picture
    assert find_sources([notes, folder, inside[0]]) == [notes] + inside  # each once


def test_patterns(folder):
    assert names(find_sources([folder / "*.png"])) == ["b.png"]
    assert names(find_sources([folder / "**" / "*.png"])) == ["b.png", "e.png"]
    assert names(find_sources([folder / "[ab].*", folder / "*" / "f.???"])) == [
        "a.JPG", "b.png", "f.jpg"]
    odd = folder / "x[1].png"  # a file of that name is no pattern
    odd.write_bytes(b"x")
    assert find_sources([odd]) == [odd]


@pytest.mark.parametrize("name, text", [
    ("empty", "empty' holds no picture (.jpg"), ("no.png", "'{}/no.png' does not exist"),
    ("*.gif", "pattern '{}/*.gif': expected files, found nothing"),
    ("e*", "pattern '{}/e*': expected files, found 1 folders")])
def test_what_does_not_exist(folder, name, text):
    with pytest.raises(DatasetError) as error:
        find_sources([folder / "b.png", folder / name])
    assert text.format(folder) in str(error.value)


def test_frames_in_their_order(tmp_path):
    paths = [write_picture(tmp_path / "a.png", 100), write_film(tmp_path / "b.avi"),
             tmp_path / "c.png", tmp_path / "d.mp4", write_picture(tmp_path / "e.png")]
    paths[3].write_text("no film")
    found = list(read_frames(paths))
    assert [item.path.name for item in found] == ["a.png"] + ["b.avi"] * 6 + [
        "c.png", "d.mp4", "e.png"]
    assert [item.number for item in found if isinstance(item, Frame)] == [
        None, 0, 1, 2, 3, 4, 5, None]
    assert [item.name for item in found[:3]] == ["a", "b_000000", "b_000001"]
    assert found[1].rate == 7.5 and found[0].rate is None
    missing, broken = (item for item in found if isinstance(item, Unreadable))
    assert "c.png: no such image file" in str(missing.error) and not missing.video
    assert "d.mp4: not a video" in str(broken.error) and broken.video


def test_exif_is_followed_unless_the_size_says_otherwise(tmp_path):
    path = turned_picture(tmp_path / "a.jpg")
    turned, = read_frames([path])
    assert turned.image.shape == (40, 20, 3)
    assert turned.image[:18].max() < 20 and turned.image[22:].min() > 235
    lying, = read_frames([path], lambda name: (40, 20))
    assert lying.image.shape == (20, 40, 3)
    wrong, = read_frames([path], lambda name: (41, 20))
    assert "expected an image of 41x20 pixels" in str(wrong.error)


def test_a_webcam(monkeypatch):
    stub_camera(monkeypatch, [np.zeros((20, 40, 3), np.uint8)] * 2, rate=30)
    first, second, end = webcam_frames(1)
    assert (first.number, second.number) == (0, 1) and first.rate == 30
    assert first.path.name == "webcam1" and second.name == "webcam1_000001"
    assert first.seconds <= second.seconds
    assert end.video and str(end.error) == "webcam 1: no more frames"
