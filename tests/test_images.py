"""Any image file becomes (H, W, 3) uint8 BGR, or one line that names it."""
import io
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from yolact_mx.data.images import read_image
from yolact_mx.errors import DatasetError

WIDTH, HEIGHT = 100, 80
RED, WHITE = (0, 0, 255), (255, 255, 255)


@pytest.fixture
def picture():
    """(80, 100, 3) uint8 BGR: smooth noise with a red square in the top left corner."""
    noise = np.random.RandomState(0).randint(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    picture = cv2.GaussianBlur(noise, (0, 0), 4)
    picture[:20, :20] = RED
    return picture


def encode(picture, extension):
    return cv2.imencode(extension, picture)[1].tobytes()


def encode_pillow(bgr, kind, mode="RGB", **options):
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(bgr[:, :, ::-1])).convert(mode).save(
        buffer, kind, **options)
    return buffer.getvalue()


def write(folder, data, name="picture.bin"):
    path = folder / name
    path.write_bytes(data)
    return path


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("extension", [".png", ".bmp", ".tiff", ".ppm"])
def test_lossless_formats_come_back_unchanged(tmp_path, picture, extension):
    result = read_image(write(tmp_path, encode(picture, extension)))
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, picture)


@pytest.mark.parametrize("extension", [".jpg", ".webp"])
def test_lossy_formats_are_near(tmp_path, picture, extension):
    result = read_image(write(tmp_path, encode(picture, extension)))
    assert np.abs(result.astype(int) - picture).mean() < 3


def test_grey_fills_three_channels(tmp_path, picture):
    result = read_image(write(tmp_path, encode(picture[:, :, 0], ".png")))
    np.testing.assert_array_equal(result, np.repeat(picture[:, :, :1], 3, axis=2))


def test_one_bit(tmp_path):
    bits = np.zeros((HEIGHT, WIDTH), bool)
    bits[:, 30:] = True
    buffer = io.BytesIO()
    Image.fromarray(bits).save(buffer, "PNG")
    result = read_image(write(tmp_path, buffer.getvalue()))
    assert result.shape == (HEIGHT, WIDTH, 3)
    assert (result[:, :30] == 0).all() and (result[:, 30:] == 255).all()


def test_palette(tmp_path, picture):
    picture[20:] = WHITE
    result = read_image(write(tmp_path, encode_pillow(picture, "PNG", "P")))
    assert tuple(result[5, 5]) == RED and tuple(result[70, 50]) == WHITE


def test_gif_is_read_by_pillow(tmp_path, picture):
    result = read_image(write(tmp_path, encode_pillow(picture, "GIF")))
    assert tuple(result[5, 5]) == RED and result.flags["C_CONTIGUOUS"]


def test_alpha_is_dropped(tmp_path, picture):
    transparent = np.dstack([picture, np.zeros((HEIGHT, WIDTH), np.uint8)])
    np.testing.assert_array_equal(read_image(write(tmp_path, encode(transparent, ".png"))), picture)


@pytest.mark.parametrize("extension", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_are_scaled(tmp_path, extension, channels):
    deep = np.linspace(0, 65535, HEIGHT * WIDTH).round().reshape(HEIGHT, WIDTH).astype(np.uint16)
    deep = np.dstack([deep // (k + 1) for k in range(channels)])
    result = read_image(write(tmp_path, encode(deep, extension)))
    assert result.dtype == np.uint8 and result.max() == 255
    assert np.abs(result - deep / 257.0).max() < 1


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(tmp_path, picture, kind):
    result = read_image(write(tmp_path, encode_pillow(picture, kind, "CMYK")))
    assert np.abs(result.astype(int) - picture).mean() < 3
    assert np.abs(result[5, 5].astype(int) - RED).max() < 10


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_rotation_is_applied(tmp_path, picture, kind):
    # Orientation 6: the camera was turned, so the picture has to be turned clockwise.
    path = write(tmp_path, encode_pillow(picture, kind, exif=exif(6)))
    result = read_image(path)
    assert result.shape == (WIDTH, HEIGHT, 3)
    assert np.abs(result[:15, -15:].astype(int) - RED).mean() < 10
    np.testing.assert_array_equal(read_image(path, (HEIGHT, WIDTH)), result)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_rotation_is_left_out_where_the_annotations_ignore_it(tmp_path, picture, kind):
    path = write(tmp_path, encode_pillow(picture, kind, exif=exif(6)))
    result = read_image(path, (WIDTH, HEIGHT))
    assert result.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(result[:15, :15].astype(int) - RED).mean() < 10


def test_half_turn_is_applied_since_the_size_cannot_tell(tmp_path, picture):
    path = write(tmp_path, encode_pillow(picture, "PNG", exif=exif(3)))
    np.testing.assert_array_equal(read_image(path, (WIDTH, HEIGHT)), picture[::-1, ::-1])


def test_wrong_size(tmp_path, picture):
    path = write(tmp_path, encode(picture, ".png"))
    with pytest.raises(DatasetError) as error:
        read_image(path, (200, 160))
    assert str(path) in str(error.value)
    assert "200x160" in str(error.value) and "100x80" in str(error.value)


def message(capfd, path):
    """The one line that reading the file gives; nothing else may be printed by a library."""
    with pytest.raises(DatasetError) as error:
        read_image(path)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("extension", [".jpg", ".png", ".webp", ".bmp", ".ppm"])
def test_truncated(tmp_path, picture, extension, share, capfd):
    data = encode(picture, extension)
    text = message(capfd, write(tmp_path, data[:int(len(data) * share)]))
    assert "truncated" in text or "damaged" in text or "not an image" in text


def test_truncated_jpeg_says_so(tmp_path, picture, capfd):
    data = encode(picture, ".jpg")
    assert "truncated image of 1500 bytes" in message(capfd, write(tmp_path, data[:1500]))


@pytest.mark.parametrize("extension", [".jpg", ".png"])
def test_bytes_after_the_end_do_no_harm(tmp_path, picture, extension):
    data = encode(picture, extension)
    whole = read_image(write(tmp_path, data))
    trailing = read_image(write(tmp_path, data + b"trailer" * 100))
    assert np.abs(whole.astype(int) - trailing).max() <= 2


def test_empty_file(tmp_path, capfd):
    assert "empty (0 bytes)" in message(capfd, write(tmp_path, b""))


def test_not_an_image(tmp_path, capfd):
    assert "not an image" in message(capfd, write(tmp_path, b"<html>not found</html>"))


def test_missing_file(tmp_path, capfd):
    assert "no such image file" in message(capfd, tmp_path / "absent.jpg")


def test_folder(tmp_path, capfd):
    assert "cannot open" in message(capfd, tmp_path)


def test_float_pixels_are_refused(tmp_path, capfd):
    depth = np.linspace(0, 1, HEIGHT * WIDTH, dtype=np.float32).reshape(HEIGHT, WIDTH)
    assert "8 bits" in message(capfd, write(tmp_path, encode(depth, ".tiff")))


def test_names_in_any_language_in_the_c_locale(tmp_path, picture):
    write(tmp_path, encode(picture, ".png"), "图 é.png")
    code = ("import sys; from yolact_mx.data.images import read_image; "
            "print(read_image(sys.argv[1] + '/\\u56fe \\u00e9.png').shape)")
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING"))}
    environment.update(LC_ALL="C", PYTHONPATH=str(Path(__file__).resolve().parent.parent))
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout.decode().strip() == "(80, 100, 3)", done.stderr.decode()
