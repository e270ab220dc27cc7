r"""Group normalisation of images: each image's channels in groups, each group by its own mean and variance.

.. math::
    y_{n,c,h,w} = \frac{x_{n,c,h,w} - \mu_{n,g(c)}}{\sqrt{\sigma^2_{n,g(c)} + \epsilon}} \gamma_c + \beta_c,
    \quad g(c) = \Bigl\lfloor \frac{c}{C / G} \Bigr\rfloor,
    \quad \epsilon = 10^{-5}

The mean and the variance are those of all pixels of the C / G channels of a group. x and y are (n, c, h, w),
gamma and beta are (c); groups must divide c. One group is a layer normalisation of the image, c groups are an
instance normalisation. The variance is that of the centred values, and float16 and bfloat16 are computed in
float32 and rounded once, as in a layer normalisation. A group is read three times: memory bandwidth is the
limit where it does not fit into the caches.

References
----------
Wu and He, "Group Normalization", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from ..machine.errors import InputError
from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

EPSILON = 1e-5
"""What keeps a group of equal values from a division by 0."""


def check(c: int, groups: int, **_: int) -> None:
    """Raise InputError where groups do not divide the channels."""
    if c % groups:
        raise InputError(f"groups must divide c: groups={groups}, c={c}")


def define(n: int, c: int, h: int, w: int, groups: int, dtype: str) -> list[Any]:
    """Return the TE tensors x, gamma, beta and y."""
    wide, size = sum_dtype(dtype), c // groups
    count, epsilon, one = (tvm.tirx.const(value, wide) for value in (size * h * w, EPSILON, 1))
    x = te.placeholder((n, c, h, w), dtype, name="x")
    gamma, beta = (te.placeholder((c,), dtype, name=name) for name in ("gamma", "beta"))

    def group(channel: Any) -> Any:
        return 0 if groups == 1 else channel if size == 1 else channel // size

    def centred(b: Any, g: Any, channel: Any, i: Any, j: Any) -> Any:
        return x[b, channel, i, j].astype(wide) - mean[b, g]

    def total(term: Any, name: str) -> Any:
        k, i, j = (te.reduce_axis((0, e), name=a) for a, e in (("k", size), ("i", h), ("j", w)))

        def at(b: Any, g: Any) -> Any:
            return te.sum(term(b, g, k if groups == 1 else g * size + k, i, j), axis=[k, i, j])

        return te.compute((n, groups), at, name=name)

    group_sum = total(lambda b, g, channel, i, j: x[b, channel, i, j].astype(wide), "group_sum")
    mean = te.compute((n, groups), lambda b, g: group_sum[b, g] / count, name="mean")
    square_sum = total(lambda *at: centred(*at) * centred(*at), "square_sum")
    inverse = te.compute(
        (n, groups), lambda b, g: one / te.sqrt(square_sum[b, g] / count + epsilon), name="inverse"
    )

    def normalised(b: Any, channel: Any, i: Any, j: Any) -> Any:
        g = group(channel)
        scaled = centred(b, g, channel, i, j) * inverse[b, g] * gamma[channel].astype(wide)
        return scaled + beta[channel].astype(wide)

    return [x, gamma, beta, rounded_to(te.compute(x.shape, normalised, name="group_norm"), dtype)]


def reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, groups: int, **_: Any) -> np.ndarray:
    """Return y, in float64 and rounded once."""
    grouped = exact(x).reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(axis=2, keepdims=True)
    scaled = centred / np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + EPSILON)
    y = scaled.reshape(x.shape) * exact(gamma)[:, None, None] + exact(beta)[:, None, None]
    return rounded(y, str(x.dtype))


def flops(n: int, c: int, h: int, w: int, groups: int) -> int:
    """Count eight operations an element and five a group, as in a layer normalisation."""
    return n * (8 * c * h * w + 5 * groups)


def _numpy(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, **shape: int) -> Any:
    y = np.empty_like(x)
    grouped, centred = (array.reshape(shape["n"], shape["groups"], -1) for array in (x, y))
    scale, shift = gamma[:, None, None], beta[:, None, None]

    def call() -> np.ndarray:
        np.subtract(grouped, grouped.mean(axis=2, keepdims=True), out=centred)
        variance = np.einsum("ngk,ngk->ng", centred, centred) / x.dtype.type(centred.shape[2])
        np.multiply(centred, (1 / np.sqrt(variance + x.dtype.type(EPSILON)))[..., None], out=centred)
        np.multiply(y, scale, out=y)
        return np.add(y, shift, out=y)

    return call


def _torch(torch: Any, x: Any, gamma: Any, beta: Any, **shape: int) -> Any:
    return lambda: torch.nn.functional.group_norm(x, shape["groups"], gamma, beta, EPSILON)


def _onnx(node: Any, x: str, gamma: str, beta: str, **shape: int) -> Any:
    """Spell it out, as PyTorch exports it: gamma and beta are of the channels only since version 21."""
    groups = shape["groups"]
    nodes = [
        node("Reshape", [x, "grouped"], ["g"]),
        node("InstanceNormalization", ["g", "ones", "zeros"], ["normalised"], epsilon=EPSILON),
        node("Reshape", ["normalised", "extents"], ["image"]),
        node("Reshape", [gamma, "broadcast"], ["scale"]),
        node("Reshape", [beta, "broadcast"], ["shift"]),
        node("Mul", ["image", "scale"], ["scaled"]),
        node("Add", ["scaled", "shift"], ["y"]),
    ]
    constants = {
        "grouped": np.array([0, groups, -1]),
        "extents": np.array([shape[name] for name in "nchw"]),
        "broadcast": np.array([-1, 1, 1]),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
    }
    return nodes, constants


def _shape(n: int, c: int, size: int, groups: int = 32) -> dict[str, int]:
    return {"n": n, "c": c, "h": size, "w": size, "groups": groups}


GROUP_NORM = Operator(
    name="group_norm",
    dims=(*(Dim(name) for name in "nchw"), Dim("groups", default=32)),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1, 2)),
    examples=(
        Example(_shape(1, 320, 64), "Stable Diffusion 1.5's U-Net, one image: at 64x64"),
        Example(_shape(2, 640, 32), "Stable Diffusion 1.5's U-Net, with and without the prompt: at 32x32"),
        Example(_shape(1, 1280, 16), "Stable Diffusion 1.5's U-Net, one image: at 16x16"),
        Example(_shape(1, 1280, 8), "Stable Diffusion 1.5's U-Net, one image: at 8x8"),
        Example(_shape(1, 256, 56), "ResNet-50 with group normalisation (Wu and He 2018): at 56x56 pixels"),
        Example(
            _shape(1, 128, 512), "Stable Diffusion 1.5's decoder at 512x512: 128 MiB, larger than the caches"
        ),
        Example({"n": 2, "c": 6, "h": 7, "w": 5, "groups": 3}, "odd: primes"),
        Example({"n": 1, "c": 5, "h": 3, "w": 3, "groups": 1}, "odd: one group, rows shorter than a vector"),
        Example({"n": 3, "c": 7, "h": 11, "w": 13, "groups": 7}, "odd: a channel a group"),
        Example({"n": 1, "c": 1, "h": 1, "w": 1, "groups": 1}, "odd: one element"),
    ),
)
