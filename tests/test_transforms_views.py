"""What the loader makes without touching every pixel equals the plain way, step by step."""
import json

import cv2
import numpy as np
import pytest
from pycocotools import mask as mask_utils

from yolact_mx import rle
from yolact_mx.data import annotations, transforms, views
from yolact_mx.data.coco import CocoDataset
from yolact_mx.data.samples import TrainingSamples, collate
from yolact_mx.data.views import Colour, View, Window
from yolact_mx.options import AugmentConfig, Config, InputConfig

SIDE, PROTO, P3 = 110, (28, 28), (14, 14)
MEAN, STD = [10, 20, 30], [2, 3, 4]
ANCHORS = np.array([[0.5, 0.5, 1, 1], [0.25, 0.25, 0.5, 0.5]], np.float32)


def draw(rng, count, width=160, height=120):
    """Noise with ``count`` discs: image, list of polygons."""
    image = rng.randint(0, 256, (height, width, 3)).astype(np.uint8)
    polygons = []
    for _ in range(count):
        angles = np.sort(rng.uniform(0, 2 * np.pi, 9))
        radius, centre = rng.uniform(4, 40), rng.uniform(0, [width, height])
        points = centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1)
        polygons.append(points.round(2).ravel().tolist())
    return image, polygons


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Polygons of one and two parts, run lengths, an object without a mask, a crowd."""
    folder, rng = tmp_path_factory.mktemp("views"), np.random.RandomState(0)
    images, entries = [], []
    for number in range(1, 7):
        image, polygons = draw(rng, 6)
        cv2.imwrite(str(folder / "{}.jpg".format(number)), image)
        images.append(dict(id=number, file_name="{}.jpg".format(number), width=160, height=120))
        counts = rle.run_lengths(annotations.to_rle([polygons[0]], 160, 120)["counts"])
        run_lengths = dict(size=[120, 160], counts=counts.tolist())
        for crowd, segmentation in ((0, [polygons[1]]), (0, polygons[2:4]), (0, run_lengths),
                                    (1, run_lengths), (0, [polygons[4]]), (0, None)):
            entries.append(dict(id=len(entries) + 1, image_id=number, category_id=1, iscrowd=crowd,
                                segmentation=segmentation))
        entries[-1]["bbox"] = [20, 30, 50, 40]
    (folder / "a.json").write_text(json.dumps(dict(
        images=images, annotations=entries, categories=[dict(id=1, name="disc")])))
    return CocoDataset(folder / "a.json", folder)


def plain_colour(image, colour):
    """Brightness, way to HSV with saturation and hue, way back, contrast."""
    image = cv2.cvtColor(image.astype(np.float32) + np.float32(colour.brightness),
                         cv2.COLOR_BGR2HSV)
    image[..., 1] *= np.float32(colour.saturation)
    image[..., 0] += np.float32(colour.hue)
    image[..., 0][image[..., 0] > 360] -= 360
    image[..., 0][image[..., 0] < 0] += 360
    return cv2.cvtColor(image, cv2.COLOR_HSV2BGR) * np.float32(colour.contrast)


def plain_view(array, view, fill):
    """All of an image or a mask on a canvas that holds it and the window, then what is seen."""
    height, width = array.shape[:2]
    edge = [max(-view.window.x1, 0), max(-view.window.y1, 0)]
    shape = (max(view.window.y2, height) + edge[1], max(view.window.x2, width) + edge[0])
    canvas = np.empty(shape + array.shape[2:], array.dtype)
    canvas[:] = fill
    canvas[edge[1]:edge[1] + height, edge[0]:edge[0] + width] = array
    seen = canvas[view.window.moved(*edge).slices]
    return cv2.resize(np.ascontiguousarray(seen[:, ::-1] if view.flip else seen), view.size)


def plain_sample(sample, view, keep):
    """Planes of the image, masks at PROTO and P3; ``keep``: objects that stay."""
    image = sample.image.astype(np.float32)
    image = image if view.colour is None else plain_colour(image, view.colour)
    image = (plain_view(image, view, view.fill)[..., ::-1] - np.float32(MEAN)) / np.float32(STD)
    small = []
    for size in (PROTO, P3):
        full = [plain_view(mask, view, 0).astype(np.float32) for mask in sample.masks[keep]]
        small.append([cv2.resize(mask, size) > 0.5 for mask in full])
    return image.transpose(2, 0, 1), small


@pytest.mark.parametrize("augmented", [True, False])
def test_a_sample_equals_the_plain_way(dataset, augmented):
    config = Config(input=InputConfig(size=SIDE, mean=MEAN, std=STD))
    samples = TrainingSamples(dataset, config, ANCHORS, [P3], PROTO, augmented)
    flips, sizes, compared = set(), set(), 0
    for epoch in range(12 if augmented else 1):
        for index in range(len(dataset)):
            ours, sample = samples[epoch, index], dataset[index]
            sample.labels[:] = np.arange(len(sample))  # to tell which objects stay
            view = View(views.whole(sample.image), (SIDE, SIDE))
            moved = sample
            if augmented:
                moved, view = transforms.draw_view(
                    sample, transforms.sample_rng(0, epoch, index), (SIDE, SIDE), config.augment)
            image, small = plain_sample(sample, view, moved.labels[~moved.crowd])
            np.testing.assert_allclose(ours["image"], image, atol=1.1e-3 / min(STD))
            known = moved.has_mask[~moved.crowd]
            for name, masks in zip(("masks", "semantic"), small):
                for mask, expected in zip(ours[name][known], np.array(masks)[known]):
                    np.testing.assert_array_equal(mask, expected)
                    compared += 1
            flips.add(view.flip)
            sizes.add(view.window.size)
    assert compared > 20
    assert flips == ({True, False} if augmented else {False}) and len(sizes) > 10 * augmented


def test_an_unread_sample_is_the_same_sample(dataset):
    for index in range(len(dataset)):
        unread, sample = dataset.unread(index), dataset[index]
        assert unread.image.shape == sample.image.shape
        whole = View(views.whole(sample.image))
        np.testing.assert_array_equal(views.see_masks(unread.masks, whole), sample.masks)
        np.testing.assert_array_equal(unread.has_mask, sample.masks.any((1, 2)))
        kept = unread.keep(np.array([5, 2]))
        np.testing.assert_array_equal(views.see_masks(kept.masks, whole), sample.masks[[5, 2]])


def test_the_images_of_a_batch_are_written_in_place(dataset):
    config = Config(input=InputConfig(size=SIDE, mean=MEAN, std=STD))
    samples = TrainingSamples(dataset, config, ANCHORS, [P3], PROTO)
    keys = [(0, 1), (3, 4)]
    batch, expected = samples.batch(keys), collate([samples[key] for key in keys])
    assert batch.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(batch[name], value)
    room = np.empty((3, SIDE, SIDE), np.float32)
    assert samples.load(keys[0], room)["image"] is room


def masks_to_decode():
    rng, shape = np.random.RandomState(1), (23, 31)
    yield from (rng.uniform(size=shape) < share for share in (0.002, 0.1, 0.5, 0.9))
    yield np.ones(shape)
    for place in (np.s_[0, 0], np.s_[-1, -1], np.s_[:, 5:7], np.s_[3:5, :], np.s_[4:9, 7:20]):
        mask = np.zeros(shape)
        mask[place] = 1
        yield mask


@pytest.mark.parametrize("mask", masks_to_decode(), ids=lambda mask: str(int(mask.sum())))
def test_the_part_of_a_mask_is_its_bounding_box(mask):
    mask = mask.astype(np.uint8)
    x, y, part = rle.decode_part(mask_utils.encode(np.asfortranarray(mask)))
    rebuilt = np.zeros_like(mask)
    rebuilt[y:y + part.shape[0], x:x + part.shape[1]] = part
    np.testing.assert_array_equal(rebuilt, mask)
    assert part.size <= mask.size and part.any(0)[[0, -1]].all()


def test_runs_of_no_pixels():
    counts = [3, 0, 2, 4, 0, 0, 1, 0, 0, 2, 8]
    compressed = mask_utils.frPyObjects(dict(size=[4, 5], counts=counts), 4, 5)
    x, y, part = rle.decode_part(compressed)
    whole = mask_utils.decode(compressed)
    np.testing.assert_array_equal(part, whole[y:y + part.shape[0], x:x + part.shape[1]])
    assert part.sum() == whole.sum() == 6


@pytest.mark.parametrize("colour", [
    Colour(0, 1, 1, 0), Colour(20, 1.3, 1, 0), Colour(-30.7, 1, 1, 0), Colour(-30.7, 0.6, 1.4, 0),
    Colour(15, 1.4, 0.5, 0), Colour(-20, 0.7, 1.3, 17), Colour(0, 1, 1, -18)])
def test_colours_equal_the_way_through_hsv(colour):
    image = np.random.RandomState(0).randint(0, 256, (40, 50, 3)).astype(np.uint8)
    image[:10] = image[:10] // 8  # dark: all three values fall below 0
    for given in (image, image.astype(np.float32)):
        ours = views.recolour(given, colour)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, plain_colour(image, colour), atol=1.1e-3)


def test_a_canvas_without_the_image_is_plain():
    view = View(Window(-40, -60, 120, 60), (16, 12), fill=(1, 2, 3))
    planes = views.see_planes(np.full((60, 80, 3), 50, np.uint8), view)
    np.testing.assert_allclose(planes[:, 0, 0], [3, 2, 1])
    np.testing.assert_allclose(planes[:, 8, 6], 50)


def test_switched_off(dataset):
    off = AugmentConfig(photometric=False, expand=False, crop=False, mirror=False, min_side=0)
    sample, view = transforms.draw_view(dataset.unread(0), None, (SIDE, SIDE), off)
    assert view == View(Window(0, 0, 160, 120), (SIDE, SIDE)) and len(sample) == 6
