"""Matching of anchors and objects on layouts that can be checked by eye."""
import numpy as np

from yolact_mx.anchors import feature_sizes, make_anchors
from yolact_mx.targets import match_anchors

# Four anchors side by side, each a quarter of the image wide
ANCHORS = np.array([[0.125, 0.5, 0.25, 1], [0.375, 0.5, 0.25, 1], [0.625, 0.5, 0.25, 1],
                    [0.875, 0.5, 0.25, 1]], np.float32)
NONE = np.zeros((0, 4), np.float32)


def boxes(*rows):
    return np.array(rows, np.float32)


def test_without_objects_everything_is_background():
    assert match_anchors(ANCHORS, NONE, NONE).tolist() == [0, 0, 0, 0]


def test_thresholds():
    # IoU with the first two anchors: 0.25 / 0.55 (ignored: between 0.4 and 0.5) and 0.1 / 0.7
    found = match_anchors(ANCHORS, boxes((0, 0, 0.55, 1)), NONE)
    assert found.tolist() == [1, -1, 0, 0]  # the first is forced, being the best


def test_every_object_gets_an_anchor_of_its_own():
    same = (0.0, 0.0, 0.25, 1.0)
    found = match_anchors(ANCHORS, boxes(same, same, same), NONE)
    assert sorted(found[found > 0].tolist()) == [1, 2, 3]


def test_more_objects_than_anchors():
    same = (0.0, 0.0, 0.25, 1.0)
    found = match_anchors(ANCHORS, boxes(*[same] * 6), NONE)
    assert (found > 0).all()


def test_the_larger_overlap_is_served_first():
    # both prefer anchor 0; the second covers it exactly, the first has to take anchor 1
    found = match_anchors(ANCHORS, boxes((0, 0, 0.3, 1), (0, 0, 0.25, 1)), NONE)
    assert found.tolist()[:2] == [2, 1]


def test_crowds_excuse_background_only():
    crowd = boxes((0.25, 0, 1, 1))
    found = match_anchors(ANCHORS, boxes((0.25, 0, 0.5, 1)), crowd)
    assert found.tolist() == [0, 1, -1, -1]


def test_crowd_alone():
    assert match_anchors(ANCHORS, NONE, boxes((0, 0, 0.5, 1))).tolist() == [-1, -1, 0, 0]


def test_incremental_matching_equals_the_plain_loop():
    rng = np.random.RandomState(0)
    anchors = make_anchors(feature_sizes((64, 64)), (64, 64), [[8], [16], [32], [48], [60]],
                           [1, 0.5, 2], False)
    low = rng.uniform(0, 0.8, (40, 2))
    gts = np.concatenate([low, low + rng.uniform(0.02, 0.2, (40, 2))], axis=1).astype(np.float32)
    assert match_anchors(anchors, gts, NONE).tolist() == plain_match(anchors, gts).tolist()


def plain_match(anchors, gts):
    """The n-fold search over the whole table, as reference.md section 2 describes it."""
    from yolact_mx.boxes import anchor_corners, iou
    table = iou(gts, anchor_corners(anchors))
    best, index = table.max(0), table.argmax(0)
    for _ in gts:
        j = table.max(1).argmax()
        i = table[j].argmax()
        table[:, i], table[j] = -1, -1
        best[i], index[i] = 2, j
    return np.where(best < 0.4, 0, np.where(best < 0.5, -1, index + 1))


def test_anchor_order_and_shape():
    anchors = make_anchors([(1, 2)], (100, 200), [[10, 20]], [1, 4], False)
    assert anchors.shape == (8, 4)
    # row-major cells, then scale, then ratio; sizes relative to each axis
    np.testing.assert_allclose(anchors[0], [0.25, 0.5, 10 / 200, 10 / 100])
    np.testing.assert_allclose(anchors[1], [0.25, 0.5, 20 / 200, 5 / 100])
    np.testing.assert_allclose(anchors[2], [0.25, 0.5, 20 / 200, 20 / 100])
    np.testing.assert_allclose(anchors[4, :2], [0.75, 0.5])


def test_square_quirk():
    anchors = make_anchors([(1, 1)], (100, 100), [[10]], [4], True)
    np.testing.assert_allclose(anchors[0], [0.5, 0.5, 0.2, 0.2])
