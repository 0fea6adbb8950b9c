"""Shapes of the network input that keep a picture's aspect ratio, and the anchors for them."""
import numpy as np
import pytest

from yolact_mx.anchors import build_anchors, input_sizes
from yolact_mx.config import load_config
from yolact_mx.errors import ConfigError
from yolact_mx.input_shapes import PerShape, in_words, input_shapes, nearest_shape
from yolact_mx.models.yolact import check_input

ON = "input.keep_ratio=true"


@pytest.fixture(scope="module")
def shapes():
    return input_shapes(load_config("yolact_resnet50", [ON]))


def test_the_square_alone_is_the_default():
    config = load_config("yolact_resnet50")
    assert not config.input.keep_ratio and input_shapes(config) == [(550, 550)]
    assert nearest_shape(input_shapes(config), 10, 1000) == (550, 550)


def test_shapes_have_the_pixels_of_the_square(shapes):
    # 550 sqrt(4 / 3) = 635.08, 550 / sqrt(4 / 3) = 476.31; 550 * 4 / 3 = 733.3 for 16:9
    assert shapes == [
        (550, 550), (502, 602), (476, 635), (449, 673), (412, 733), (388, 777),
        (602, 502), (635, 476), (673, 449), (733, 412), (777, 388)]
    assert all(0.99 < height * width / 550 ** 2 <= 1 for height, width in shapes)
    assert in_words(shapes[2]) == "635x476"


@pytest.mark.parametrize("width, height, expected", [
    (640, 480, (476, 635)), (480, 640, (635, 476)),  # 4:3
    (1920, 1080, (412, 733)), (1080, 1920, (733, 412)),  # 16:9
    (6000, 4000, (449, 673)), (1280, 1024, (502, 602)),  # 3:2; 5:4 is nearer to 6:5 than to 4:3
    (100, 100, (550, 550)), (109, 100, (550, 550)), (110, 100, (502, 602)),  # sqrt(1.2) = 1.095
    (5000, 100, (388, 777)), (1, 50, (777, 388)),  # beyond 2:1 what there is
])
def test_nearest_shape(shapes, width, height, expected):
    assert nearest_shape(shapes, height, width) == expected


def test_no_picture_up_to_two_to_one_is_stretched_by_more_than_a_tenth(shapes):
    for ratio in np.linspace(1, 2, 301):
        for width, height in ((1000 * ratio, 1000), (1000, 1000 * ratio)):
            rows, columns = nearest_shape(shapes, height, width)
            stretch = columns / rows / (width / height)
            assert 1 / 1.1 < stretch < 1.1
            if any(abs(ratio - usual) < 1e-9 for usual in (1, 4 / 3, 3 / 2, 16 / 9, 2)):
                assert abs(stretch - 1) < 0.005


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_anchors_keep_their_pixels_in_both_directions(compatible):
    options = [ON, "reference_compatible=" + compatible, "anchors.square=false"]
    config = load_config("yolact_resnet50", options)
    anchors = build_anchors(config, (476, 635))
    _, levels, proto_size = input_sizes(config, (476, 635))
    assert levels == [(60, 80), (30, 40), (15, 20), (8, 10), (4, 5)] and proto_size == (120, 160)
    assert len(anchors) == 3 * sum(rows * columns for rows, columns in levels)
    np.testing.assert_allclose(anchors[:3], [
        # the first cell of 80 x 60; 24 pixels and ratios 1, 1/2, 2: sides 24, 16.97 and 33.94
        [0.5 / 80, 0.5 / 60, 24 / 635, 24 / 476],
        [0.5 / 80, 0.5 / 60, 16.9706 / 635, 33.9411 / 476],
        [0.5 / 80, 0.5 / 60, 33.9411 / 635, 16.9706 / 476]], rtol=1e-5)
    np.testing.assert_allclose(
        anchors[-3], [4.5 / 5, 3.5 / 4, 384 / 635, 384 / 476], rtol=1e-5)
    square = build_anchors(config, (550, 550))
    assert set(np.round(anchors[:, 2] * 635, 2)) == set(np.round(square[:, 2] * 550, 2))


def test_the_shortest_side_decides_about_the_mask_iou_net():
    """Five layers need 249 pixels: 353 / sqrt(2) = 249.6, 352 / sqrt(2) = 248.9."""
    check_input(load_config("yolact_plus_resnet50", [ON, "input.size=353"]))
    with pytest.raises(ConfigError, match="model.mask_iou.*input of 248x497 pixels.*249"):
        check_input(load_config("yolact_plus_resnet50", [ON, "input.size=352"]))


def test_a_graph_per_shape_is_built_once():
    built = []

    def build(shape):
        built.append(shape)
        return lambda images, *others: (shape, others)

    graph = PerShape(build)
    for shape in ((3, 4), (4, 3), (3, 4)):
        assert graph(np.zeros((2, 3) + shape), 1) == (shape, (1,))
    assert built == [(3, 4), (4, 3)]
