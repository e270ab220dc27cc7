"""Images as inputs: read, resized and normalized as models for pictures expect it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...machine.arrays import array_dtype
from ...machine.errors import InputError
from ...machine.signature import ArgSpec

if TYPE_CHECKING:
    from PIL import Image

RESIZE_MODES = ("crop", "stretch")
"""How an image gets the model's size: its middle, or all of it out of proportion."""

# The shorter side is made longer than the middle that is kept: 256 pixels for 224.
_MARGIN = 256 / 224
_COLORS = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Normalization:
    """What becomes of pixels between 0 and 1: ``(x - mean) / std``, for each color."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


NORMALIZATIONS = {
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": Normalization((0.5,), (0.5,)),
    "none": Normalization((0.0,), (1.0,)),
}
"""By name: the colors' statistics in ImageNet, pixels between -1 and 1, pixels between 0 and 1."""


def parse_normalization(text: str) -> Normalization:
    """Read a name, or means and deviations: ``0.5,0.5,0.5/0.2,0.2,0.2``.

    Raises
    ------
    InputError
        It is neither, or a deviation is 0.
    """
    if text in NORMALIZATIONS:
        return NORMALIZATIONS[text]
    try:
        mean, std = (tuple(float(value) for value in part.split(",")) for part in text.split("/"))
    except ValueError:
        known = ", ".join(NORMALIZATIONS)
        raise InputError(
            f"a normalization is one of {known}, or MEANS/DEVIATIONS as in 0.5,0.5,0.5/0.2,0.2,0.2: {text!r}"
        ) from None
    if not all(std):
        raise InputError(f"a normalization's deviations must not be 0: {text!r}")
    return Normalization(mean, std)


def read_image(
    path: str | Path, spec: ArgSpec, resize: str = "crop", normalize: Normalization | None = None
) -> np.ndarray:
    """Read an image for an input.

    Parameters
    ----------
    path : path
        An image in any format that Pillow reads.
    spec : ArgSpec
        The input: (1, colors, height, width), (1, height, width, colors), or the same without the 1, with one
        color or three.
    resize : str
        ``crop``: the shorter side becomes 8/7 of the wanted one and the middle is kept; ``stretch``: all of
        it, out of proportion.
    normalize : Normalization, optional
        ImageNet's if left out (of a gray image none). An input of integers gets pixels from 0 to 255.

    Raises
    ------
    InputError
        The file is no image, Pillow is not installed, or the input is for no image.
    """
    if resize not in RESIZE_MODES:
        raise InputError(f"resize must be one of {', '.join(RESIZE_MODES)}: {resize!r}")
    height, width, colors, first = _layout(spec)
    image = _opened(path, _COLORS[colors])
    fitted = (_cropped if resize == "crop" else _resized)(image, width, height)
    pixels = np.asarray(fitted).reshape(height, width, colors)
    values = _normalized(pixels, spec, normalize)
    return (values.transpose(2, 0, 1) if first else values).reshape(spec.shape)


def _layout(spec: ArgSpec) -> tuple[int, int, int, bool]:
    """Return height, width, colors, and whether the colors come first."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3 and shape[0] in _COLORS:
        return shape[1], shape[2], shape[0], True
    if len(shape) == 3 and shape[2] in _COLORS:
        return shape[0], shape[1], shape[2], False
    raise InputError(
        f"input {spec.name} takes no image: its shape {spec.shape} is none of (1, 3, height, width) or "
        "(1, height, width, 3); give arrays instead"
    )


def _opened(path: str | Path, mode: str) -> Image.Image:
    try:
        from PIL import Image
    except ImportError:
        raise InputError("reading images needs Pillow: pip install 'tunesmith[images]'") from None
    if not Path(path).is_file():
        raise InputError(f"no such image: {path}")
    try:
        with Image.open(path) as image:
            return image.convert(mode)
    except Exception as error:  # Pillow fails in many ways on a damaged file, and refuses huge ones
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is no image that can be read: {reason}") from None


def _cropped(image: Image.Image, width: int, height: int) -> Image.Image:
    """Return the middle of an image, in proportion."""
    scale = _MARGIN * max(width / image.width, height / image.height)
    wide, high = max(width, round(scale * image.width)), max(height, round(scale * image.height))
    left, top = (wide - width) // 2, (high - height) // 2
    return _resized(image, wide, high).crop((left, top, left + width, top + height))


def _resized(image: Image.Image, width: int, height: int) -> Image.Image:
    from PIL import Image

    return image.resize((width, height), Image.Resampling.BILINEAR)


def _normalized(pixels: np.ndarray, spec: ArgSpec, given: Normalization | None) -> np.ndarray:
    dtype = array_dtype(spec.dtype)
    if dtype.kind in "iu":
        if given is not None:
            raise InputError(f"input {spec.name} is {spec.dtype}: it takes pixels as they are")
        return pixels.astype(dtype)
    colors = pixels.shape[2]
    used = given or NORMALIZATIONS["imagenet" if colors == 3 else "none"]
    mean, std = (_for_colors(values, colors) for values in (used.mean, used.std))
    return ((pixels / 255.0 - mean) / std).astype(dtype)


def _for_colors(values: Sequence[float], colors: int) -> np.ndarray:
    if len(values) not in (1, colors):
        raise InputError(f"the image has {colors} colors, the normalization is for {len(values)}")
    return np.asarray(values)
