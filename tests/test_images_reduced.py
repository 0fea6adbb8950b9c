"""Large JPEGs are decoded at a fraction of their size, where that is enough and nothing moves."""
import io
import json

import cv2
import numpy as np
import pytest
from PIL import Image

from yolact_mx.data import views
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.images import UnreadImage
from yolact_mx.data.samples import TrainingSamples
from yolact_mx.data.views import View, Window
from yolact_mx.errors import DatasetError
from yolact_mx.options import AugmentConfig, Config, InputConfig

WIDTH, HEIGHT = 203, 120
SIDE = 40


def smooth(width=WIDTH, height=HEIGHT):
    """(height, width, 3) uint8: waves so long that halving them loses little."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    waves = [np.sin(x / 23 + k) * np.cos(y / 31 - k) for k in range(3)]
    return np.uint8(127 + 100 * np.stack(waves, axis=2))


def write(path, image, kind="JPEG", mode="RGB", orientation=None):
    tags = Image.Exif()
    if orientation:
        tags[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(image[:, :, ::-1])).convert(mode).save(
        str(path), kind, quality=95, exif=tags)
    return UnreadImage(path, image.shape[1::-1])


def shrunk(image, reduction):
    """Means of reduction x reduction pixels; what is left over at the end counts alone."""
    edge = [-side % reduction for side in image.shape[:2]]
    image = np.pad(image.astype(float), ((0, edge[0]), (0, edge[1]), (0, 0)), "edge")
    rows, columns = image.shape[0] // reduction, image.shape[1] // reduction
    return image.reshape(rows, reduction, columns, reduction, 3).mean(axis=(1, 3))


@pytest.mark.parametrize("reduction", [2, 4, 8])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_is_reduced_to_means(tmp_path, reduction, mode):
    unread = write(tmp_path / "a.jpg", smooth(), mode=mode)
    whole, small = unread.read(), unread.read(reduction)
    assert unread.shape == whole.shape == (HEIGHT, WIDTH, 3)
    assert small.shape == (-(-HEIGHT // reduction), -(-WIDTH // reduction), 3)
    assert np.abs(small - shrunk(whole, reduction))[:-1, :-1].max() < 4


def test_other_formats_come_in_full(tmp_path):
    image = smooth()
    np.testing.assert_array_equal(write(tmp_path / "a.png", image, "PNG").read(2), image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images(tmp_path, orientation):
    """In full where the last rows stand for fewer pixels and a turn would bring them first."""
    write(tmp_path / "a.jpg", smooth(200, 120), orientation=orientation)
    size = (200, 120) if orientation < 5 else (120, 200)
    unread = UnreadImage(tmp_path / "a.jpg", size)
    whole = unread.read()
    assert np.abs(unread.read(8) - shrunk(whole, 8)).max() < 4
    write(tmp_path / "b.jpg", smooth(), orientation=orientation)
    odd = UnreadImage(tmp_path / "b.jpg", (WIDTH, HEIGHT) if orientation < 5 else (HEIGHT, WIDTH))
    assert (odd.read(2).shape == odd.shape) == (orientation > 1)
    if orientation > 4:  # the json knows the image unturned
        unturned = UnreadImage(tmp_path / "b.jpg", (WIDTH, HEIGHT))
        assert np.abs(unturned.read(2) - shrunk(unturned.read(), 2))[:-1, :-1].max() < 4


@pytest.mark.parametrize("size", [(WIDTH + 1, HEIGHT), (HEIGHT, WIDTH)])
def test_another_size_is_an_error_however_it_is_read(tmp_path, size):
    write(tmp_path / "a.jpg", smooth())
    for reduction in (1, 2, 8):
        with pytest.raises(DatasetError, match="a.jpg: expected an image of {}x{} pixels".format(
                *size)):
            UnreadImage(tmp_path / "a.jpg", size).read(reduction)


@pytest.mark.parametrize("length, message", [(0, "empty"), (100, "truncated"), (900, "truncated")])
def test_damaged_files(tmp_path, length, message):
    buffer = io.BytesIO()
    Image.fromarray(smooth()).save(buffer, "JPEG")
    (tmp_path / "a.jpg").write_bytes(buffer.getvalue()[:length])
    with pytest.raises(DatasetError, match=message):
        UnreadImage(tmp_path / "a.jpg", (WIDTH, HEIGHT)).read(2)


@pytest.fixture
def reductions(monkeypatch):
    """The reductions at which images are read from now on."""
    asked, read = [], UnreadImage.read

    def watched(self, reduction=1):
        asked.append(reduction)
        return read(self, reduction)
    monkeypatch.setattr(UnreadImage, "read", watched)
    return asked


@pytest.mark.parametrize("window, reduction", [
    ((0, 0, 203, 120), 2),     # 120 rows are 3 times the 40 of the view
    ((0, 0, 203, 80), 2), ((0, 0, 203, 79), 1), ((10, 10, 89, 120), 1),
    ((-400, -400, 400, 400), 2),  # expanded: the image is no larger for it
])
def test_when_an_image_is_reduced(tmp_path, reductions, window, reduction):
    unread = write(tmp_path / "a.jpg", smooth())
    views.see_planes(unread, View(Window(*window), (SIDE, SIDE)))
    assert reductions == [reduction]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("window", [(0, 0, 203, 120), (31, 7, 170, 101), (-51, -33, 203, 140)])
def test_a_reduced_image_looks_the_same(tmp_path, reductions, window, flip):
    unread = write(tmp_path / "a.jpg", smooth())
    view = View(Window(*window), (SIDE, SIDE), flip, views.Colour(-20, 1.2, 0.8, 5))
    ours = views.see_planes(unread, view)
    whole = views.see_planes(unread.read(), view)
    assert reductions == [2, 1]
    part = np.s_[:, 2:-2, 2:-2]
    inside = views.see_planes(np.full(unread.shape, 255, np.uint8), view._replace(colour=None))
    inside = cv2.erode(np.uint8(inside.min(0) == 255), np.ones((5, 5)))[None][part]
    assert np.abs(ours - whole)[part][:, inside[0] > 0].max() < 6
    if min(window) < 0:
        np.testing.assert_allclose(ours[:, 0, 0], views.MEAN_BGR[::-1], rtol=1e-6)


def test_objects_stay_where_they_are(tmp_path):
    """A white square on black, and its mask and box, through crops, expansions and flips."""
    image = np.zeros((960, 1280, 3), np.uint8)
    image[320:640, 400:720] = 255
    cv2.imwrite(str(tmp_path / "a.jpg"), image)
    square = [400, 320, 720, 320, 720, 640, 400, 640]
    (tmp_path / "a.json").write_text(json.dumps(dict(
        images=[dict(id=1, file_name="a.jpg", width=1280, height=960)],
        categories=[dict(id=1, name="square")],
        annotations=[dict(id=1, image_id=1, category_id=1, segmentation=[square])])))
    config = Config(input=InputConfig(size=96, mean=[0, 0, 0], std=[255, 255, 255]),
                    augment=AugmentConfig(photometric=False, expand=True))
    size = (96, 96)
    samples = TrainingSamples(CocoDataset(tmp_path / "a.json", tmp_path), config,
                              np.array([[0.5, 0.5, 1, 1]], np.float32), [size], size)
    for epoch in range(40):
        sample = samples[epoch, 0]
        white = sample["image"].min(0) > 0.75  # the canvas around is 0.4 to 0.5
        mask = sample["masks"][0] > 0
        grown = cv2.dilate(np.uint8(mask), np.ones((3, 3)))
        shrunken = cv2.erode(np.uint8(mask), np.ones((3, 3)))
        assert mask.sum() > 20 and (white <= grown).all() and (white >= shrunken).all()
        x1, y1, x2, y2 = np.round(sample["boxes"][0] * 96).astype(int)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        edges = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        assert np.abs(np.subtract(edges, (x1, y1, x2, y2))).max() <= 1
