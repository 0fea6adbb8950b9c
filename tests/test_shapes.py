"""The generated data set: right annotations, the same bytes for the same seed."""
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO

from yolact_mx.data import shapes
from yolact_mx.data.transforms import sample_rng
from yolact_mx.errors import DatasetError

SIZE = 96
TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_shapes.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("shapes")
    shapes.make_shapes(path, 40, 10, SIZE, seed=3)
    return path


@pytest.fixture(scope="module")
def scenes():
    return [shapes.draw_scene(sample_rng(5, 0, i), SIZE) for i in range(150)]


def contents(path):
    return {p.relative_to(path): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("split, count", [("train", 40), ("val", 10)])
def test_files_are_coco(folder, split, count, capsys):
    coco = COCO(str(folder / "instances_{}.json".format(split)))
    assert len(coco.imgs) == count
    assert [c["name"] for c in coco.dataset["categories"]] == list(shapes.CLASSES)
    assert len(coco.anns) == len(coco.dataset["annotations"])  # unique ids
    for image_id, info in coco.imgs.items():
        image = cv2.imread(str(folder / "images" / info["file_name"]))
        assert image.shape == (info["height"], info["width"], 3) == (SIZE, SIZE, 3)
        masks = [coco.annToMask(a) for a in coco.imgToAnns[image_id]]
        assert masks and np.sum(masks, axis=0).max() == 1  # an occluded pixel belongs to one object
        for annotation, mask in zip(coco.imgToAnns[image_id], masks):
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert annotation["area"] == mask.sum() > 0
            assert annotation["bbox"] == [columns[0], rows[0], columns[-1] - columns[0] + 1,
                                          rows[-1] - rows[0] + 1]


def test_ids_do_not_clash_between_the_splits(folder):
    files = [json.loads((folder / "instances_{}.json".format(s)).read_text())
             for s in ("train", "val")]
    for key in ("images", "annotations"):
        ids = [item["id"] for content in files for item in content[key]]
        assert len(ids) == len(set(ids))


def test_same_seed_same_bytes(folder, tmp_path):
    shapes.make_shapes(tmp_path / "again", 40, 10, SIZE, seed=3)
    assert contents(tmp_path / "again") == contents(folder)
    shapes.make_shapes(tmp_path / "fewer", 2, 1, SIZE, seed=3)
    images = contents(tmp_path / "fewer" / "images")
    assert len(images) == 3
    assert images.items() <= contents(folder / "images").items()
    shapes.make_shapes(tmp_path / "other", 2, 1, SIZE, seed=4)
    assert not images.items() & contents(tmp_path / "other" / "images").items()


def test_scenes_are_varied(scenes):
    instances = [instance for _, scene in scenes for instance in scene]
    objects = [instance for instance in instances if not instance.crowd]
    counts = np.bincount([o.label for o in objects], minlength=5)
    assert counts.min() > 0.6 * counts.max()
    crowds = len(instances) - len(objects)
    assert 5 <= crowds <= 40
    sides = [max(np.ptp(np.flatnonzero(o.mask.any(k))) + 1 for k in (0, 1)) / SIZE for o in objects]
    assert min(sides) < 0.25 and 0.6 < max(sides) < 0.75
    kinds = [isinstance(shapes.annotate(i)["segmentation"], list) for i in instances]
    assert 0.6 < np.mean(kinds) < 0.9  # polygons


def test_polygons_and_run_lengths_give_back_the_visible_mask(scenes):
    reader = COCO()
    reader.imgs = {0: dict(height=SIZE, width=SIZE)}
    for _, scene in scenes[:40]:
        for instance in scene:
            annotation = dict(shapes.annotate(instance), image_id=0)
            decoded = reader.annToMask(annotation).astype(bool)
            union = np.count_nonzero(decoded | instance.mask)
            assert np.count_nonzero(decoded & instance.mask) >= 0.98 * union


def test_masks_are_what_is_seen(monkeypatch):
    """With object k painted in the even grey 30 (k + 1) on black, grey tells which is on top."""
    greys = []

    def paint(rng, image, alpha):
        greys.append(30 * (len(greys) + 1))
        image[:, alpha >= 128] = greys[-1]

    monkeypatch.setattr(shapes, "_paint", paint)
    monkeypatch.setattr(shapes, "_background", lambda rng, size: np.zeros((3, size, size)))
    for i in range(20):
        greys.clear()
        image, scene = shapes.draw_scene(sample_rng(6, 0, i), SIZE)
        seen = np.zeros((SIZE, SIZE))
        for grey, instance in zip(greys, scene):
            seen[instance.mask] = grey
        assert len(greys) == len(scene)
        assert np.abs(image.mean(axis=2) - seen).max() < 15.1  # five sigma of the noise


def test_annotation_forms_by_hand():
    mask = np.zeros((8, 10), bool)
    mask[2:6, 3:7] = True
    square = shapes.annotate(shapes.Instance(1, mask, False))
    assert square["bbox"] == [3, 2, 4, 4] and square["area"] == 16 and square["category_id"] == 2
    assert len(square["segmentation"][0]) == 8  # four corners
    crowd = shapes.annotate(shapes.Instance(1, mask, True))
    assert crowd["iscrowd"] == 1
    assert crowd["segmentation"] == dict(size=[8, 10], counts=[26, 4, 4, 4, 4, 4, 4, 4, 26])
    mask[3:5, 4:6] = False
    hole = shapes.annotate(shapes.Instance(4, mask, False))
    assert hole["area"] == 12 and isinstance(hole["segmentation"], dict)
    mask[:] = False
    mask[0, 0] = mask[7, 9] = True
    pieces = shapes.annotate(shapes.Instance(0, mask, False))
    assert pieces["segmentation"]["counts"] == [0, 1, 78, 1] and pieces["bbox"] == [0, 0, 10, 8]


def test_an_object_may_not_hide_another():
    owner = np.zeros((10, 10), int)
    owner[:, :5] = 1  # 50 pixels
    cover = np.zeros((10, 10), bool)
    cover[:2] = True  # leaves 40: 80 %
    assert shapes._leaves_visible(owner, cover, [50])
    assert not shapes._leaves_visible(owner, cover, [60])  # 10 were hidden already: 40 of 60
    assert not shapes._leaves_visible(owner, np.zeros((10, 10), bool), [50])  # nothing to see


def test_tool(tmp_path):
    def run(*args):
        return subprocess.run([sys.executable, str(TOOL)] + list(args), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done = run(str(tmp_path / "set"), "--train", "2", "--val", "1", "--size", "64")
    assert done.returncode == 0 and "2 training and 1 validation" in done.stdout
    small = run(str(tmp_path / "set"), "--size", "10")
    assert small.returncode == 2
    assert small.stderr == "error: image size: expected at least 48 pixels, found 10\n"
    (tmp_path / "file").write_text("")
    blocked = run(str(tmp_path / "file"))
    assert blocked.returncode == 2 and len(blocked.stderr.splitlines()) == 1
    assert str(tmp_path / "file") in blocked.stderr


def test_size_too_small(tmp_path):
    with pytest.raises(DatasetError, match="at least 48"):
        shapes.make_shapes(tmp_path, 1, 1, size=20)
