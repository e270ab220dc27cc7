from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.running.images import NORMALIZATIONS, Normalization, parse_normalization, read_image
from tunesmith.machine.signature import ArgSpec

Image = pytest.importorskip("PIL.Image")

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def spec(*shape: int, dtype: str = "float32") -> ArgSpec:
    return ArgSpec("x", shape, dtype)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Three stripes beside each other: red, green and blue, 60 x 40 pixels."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    for color in range(3):
        pixels[:, 20 * color : 20 * (color + 1), color] = 255
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_the_layout_is_that_of_the_input(photo: Path) -> None:
    first, last = read_image(photo, spec(1, 3, 8, 12)), read_image(photo, spec(1, 8, 12, 3))
    assert (first.shape, last.shape) == ((1, 3, 8, 12), (1, 8, 12, 3))
    np.testing.assert_array_equal(first[0].transpose(1, 2, 0), last[0])
    np.testing.assert_array_equal(read_image(photo, spec(3, 8, 12)), first[0])
    assert first.dtype == np.float32


def test_pixels_are_normalized_as_for_imagenet(photo: Path) -> None:
    image = read_image(photo, spec(1, 8, 12, 3), "stretch")
    np.testing.assert_allclose(image[0, 0, 0], (np.array([1, 0, 0]) - MEAN) / STD, rtol=1e-6)
    np.testing.assert_allclose(image[0, -1, -1], (np.array([0, 0, 1]) - MEAN) / STD, rtol=1e-6)
    for name, red in (("none", [1, 0, 0]), ("half", [1, -1, -1])):
        found = read_image(photo, spec(1, 8, 12, 3), "stretch", NORMALIZATIONS[name])
        np.testing.assert_allclose(found[0, 0, 0], red)


def test_the_middle_is_cropped_in_proportion(photo: Path) -> None:
    """Of 60 x 40 pixels, 35 x 35 in the middle are kept: of the red stripe, 7.5 columns."""
    image = read_image(photo, spec(1, 35, 35, 3), "crop", NORMALIZATIONS["none"])
    assert image[0, :, :6, 0].min() > 0.9 and image[0, :, 9:, 0].max() < 0.1
    stretched = read_image(photo, spec(1, 30, 30, 3), "stretch", NORMALIZATIONS["none"])
    assert stretched[0, :, :9, 0].min() > 0.9 and stretched[0, :, 11:, 0].max() < 0.1


def test_an_image_smaller_than_the_input_is_enlarged(photo: Path) -> None:
    assert read_image(photo, spec(1, 3, 224, 100)).shape == (1, 3, 224, 100)


def test_integers_get_pixels_as_they_are(photo: Path) -> None:
    image = read_image(photo, spec(1, 8, 12, 3, dtype="uint8"), "stretch")
    assert image.dtype == np.uint8 and image[0, 0, 0].tolist() == [255, 0, 0]
    with pytest.raises(ts.InputError, match="input x is uint8: it takes pixels as they are"):
        read_image(photo, spec(1, 8, 12, 3, dtype="uint8"), normalize=NORMALIZATIONS["half"])


def test_a_gray_input_gets_a_gray_image(photo: Path) -> None:
    image = read_image(photo, spec(1, 1, 8, 12), "stretch")
    # The luminance of red, not normalized.
    assert image[0, 0, 0, 0] == pytest.approx(0.299, abs=0.01)


@pytest.mark.parametrize("shape", [(1, 1000), (2, 3, 8, 8), (1, 4, 8, 8), (3,)])
def test_an_input_for_no_image(photo: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ts.InputError, match=r"input x takes no image: its shape .*give arrays instead"):
        read_image(photo, spec(*shape))


def test_files_that_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(ts.InputError, match=r"text\.jpg is no image that can be read: "):
        read_image(tmp_path / "text.jpg", spec(1, 3, 8, 8))
    with pytest.raises(ts.InputError, match="no such image: "):
        read_image(tmp_path / "none.jpg", spec(1, 3, 8, 8))


def test_an_image_of_enormous_size_is_refused(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ts.InputError, match=r"no image that can be read: .*decompression bomb"):
        read_image(photo, spec(1, 3, 8, 8))


def test_normalizations_are_written_as_numbers() -> None:
    assert parse_normalization("imagenet") is NORMALIZATIONS["imagenet"]
    assert parse_normalization("0.5,0.25,0/1,2,3") == Normalization((0.5, 0.25, 0), (1, 2, 3))
    for wrong in ("imgnet", "1/2/3", "a/b", "0.5"):
        with pytest.raises(ts.InputError, match=f"one of imagenet, half, none, or .*{wrong}"):
            parse_normalization(wrong)
    with pytest.raises(ts.InputError, match="deviations must not be 0"):
        parse_normalization("0,0,0/1,0,1")


def test_a_normalization_for_other_colors(photo: Path) -> None:
    with pytest.raises(ts.InputError, match="the image has 3 colors, the normalization is for 2"):
        read_image(photo, spec(1, 3, 8, 8), normalize=Normalization((0, 0), (1, 1)))


def test_an_unknown_way_to_resize(photo: Path) -> None:
    with pytest.raises(ts.InputError, match="resize must be one of crop, stretch: 'squeeze'"):
        read_image(photo, spec(1, 3, 8, 8), "squeeze")


def test_without_pillow_it_is_said(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ts.InputError, match=r"needs Pillow: pip install 'tunesmith\[images\]'"):
        read_image(photo, spec(1, 3, 8, 8))
