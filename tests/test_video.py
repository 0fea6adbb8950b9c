"""Frames of videos and webcams in and out, and what is said when that is not possible."""
import logging

import numpy as np
import pytest
from stub_network import read_film, stub_camera, write_film

from yolact_mx import video
from yolact_mx.errors import DatasetError
from yolact_mx.video import VideoFile, read_video, read_webcam

GREY = np.full((20, 40, 3), 90, np.uint8)


@pytest.mark.parametrize("name", ["film.avi", "film.mp4"])
def test_frames_of_a_file(tmp_path, name):
    frames = list(read_video(write_film(tmp_path / name)))
    assert [round(image.mean(), -1) for _, image in frames] == [40, 80, 120, 160, 200, 240]
    assert {rate for rate, _ in frames} == {7.5}
    assert {image.shape for _, image in frames} == {(20, 40, 3)}


@pytest.mark.parametrize("content", [b"", b"no video" * 100, None])
def test_a_file_that_is_no_video(tmp_path, content, capfd):
    path = tmp_path / "film.mp4"
    if content is None:  # cut off: the index at its end is missing
        content = write_film(path).read_bytes()[:-200]
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="film.mp4: not a video, or of a codec that"):
        list(read_video(path))
    assert capfd.readouterr() == ("", "")  # nothing of FFmpeg's


def test_a_missing_file(tmp_path):
    with pytest.raises(DatasetError, match="film.mp4' does not exist"):
        next(read_video(tmp_path / "film.mp4"))


@pytest.mark.parametrize("count, complete", [(3, True), (0, True), (-1, True), (30, False)])
def test_fewer_frames_than_announced(tmp_path, monkeypatch, count, complete):
    (tmp_path / "film.mkv").touch()
    captures = stub_camera(monkeypatch, [GREY] * 3, rate=5, count=count)
    frames = read_video(tmp_path / "film.mkv")
    assert [next(frames)[0] for _ in range(3)] == [5] * 3
    with pytest.raises(StopIteration if complete else DatasetError) as error:
        next(frames)
    assert complete or "film.mkv: damaged video (3 of 30 frames" in str(error.value)
    assert captures[0].released


@pytest.mark.parametrize("stated, used", [(0, 25), (-1, 25), (float("nan"), 25), (90000, 25),
                                          (29.97, 29.97)])
def test_frame_rate(monkeypatch, caplog, stated, used):
    caplog.set_level(logging.INFO)
    stub_camera(monkeypatch, [GREY], rate=stated)
    assert next(read_webcam(0))[0] == used
    assert ("webcam 0 states no frame rate: 25 frames" in caplog.text) == (used == 25)


def test_a_webcam(monkeypatch):
    clock = iter([0.0, 0.0, 0.5, 1.25])
    monkeypatch.setattr(video.time, "monotonic", lambda: 100 + next(clock))
    captures = stub_camera(monkeypatch, [GREY, GREY + 1, GREY + 2], rate=30)
    frames = read_webcam(3)
    found = [next(frames) for _ in range(3)]
    assert [seconds for _, seconds, _ in found] == [0, 0.5, 1.25]
    assert [image[0, 0, 0] for _, _, image in found] == [90, 91, 92]
    with pytest.raises(DatasetError, match="webcam 3: no more frames"):
        next(frames)
    assert captures[0].source == 3 and captures[0].released


def test_no_webcam(monkeypatch):
    stub_camera(monkeypatch, [], opened=False)
    with pytest.raises(DatasetError, match="webcam 7: there is none, or it is in use"):
        next(read_webcam(7))


@pytest.mark.parametrize("width, height", [(40, 20), (41, 20), (40, 21), (41, 21)])
def test_written_and_read_back(tmp_path, width, height):
    file = VideoFile(tmp_path / "film.mp4", 7.5, width, height)
    for value in (50, 150, 250):
        file.write(np.full((height, width, 3), value, np.uint8))
    file.close()
    rate, frames = read_film(tmp_path / "film.mp4")
    assert rate == 7.5 and [round(frame.mean(), -1) for frame in frames] == [50, 150, 250]
    assert frames[0].shape == (height + height % 2, width + width % 2, 3)


def test_a_frame_of_another_size_is_not_lost(tmp_path):
    file = VideoFile(tmp_path / "film.mp4", 10, 40, 20)
    for size in ((20, 40), (60, 90), (10, 39)):
        file.write(np.full(size + (3,), 100, np.uint8))
    file.close()
    assert len(read_film(tmp_path / "film.mp4")[1]) == 3


def test_a_slow_camera_does_not_make_a_quick_film(tmp_path):
    file = VideoFile(tmp_path / "film.mp4", 10, 40, 20)
    for seconds, value in ((0, 50), (0.05, 100), (0.6, 150)):
        file.write(np.full((20, 40, 3), value, np.uint8), seconds)
    file.close()
    frames = read_film(tmp_path / "film.mp4")[1]
    assert [round(frame.mean(), -1) for frame in frames] == [50, 100] + [150] * 5


def test_a_video_that_cannot_be_written(tmp_path):
    with pytest.raises(DatasetError, match=r"film.mp4' cannot be written \(40x20 pixels, 10 "):
        VideoFile(tmp_path / "nowhere" / "film.mp4", 10, 40, 20)


def test_a_video_that_was_not_written_in_full(tmp_path):
    file = VideoFile(tmp_path / "film.mp4", 10, 40, 20)
    file.write(GREY)
    file.frames += 5  # as if the disk were full
    with pytest.raises(DatasetError, match="film.mp4': 6 frames written, 1 can be read"):
        file.close()
