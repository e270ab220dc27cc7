r"""Concatenation of two tensors along one axis.

.. math:: y_{ijkl} = x_{ijkl} \;\text{where}\; l < d, \quad z_{i,j,k,l-d} \;\text{elsewhere}

for the axis d; others likewise. x is (a, b, c, d), z is alike but for ``more`` elements along ``axis``, and y
has both. Leading extents are 1 where left out. Each element is read and written once: memory bandwidth is
the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from .arithmetic import DTYPES
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define(a: int, b: int, c: int, d: int, more: int, axis: str, dtype: str) -> list[Any]:
    """Return the TE tensors x, z and y."""
    first, along = (a, b, c, d), "abcd".index(axis)
    split = first[along]
    x = te.placeholder(first, dtype, name="x")
    z = te.placeholder(_with(first, along, more), dtype, name="z")

    def at(*position: Any) -> Any:
        here = position[along]
        return te.if_then_else(here < split, x[position], z[_with(position, along, here - split)])

    return [x, z, te.compute(_with(first, along, split + more), at, name="concat")]


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def reference(x: np.ndarray, z: np.ndarray, axis: str, **_: Any) -> np.ndarray:
    """Return y, whose values are those of x and z."""
    return np.concatenate([x, z], "abcd".index(axis))


def flops(a: int, b: int, c: int, d: int, more: int, axis: str) -> int:
    """Count one an element, though none is computed: that throughput is elements moved."""
    extents = {"a": a, "b": b, "c": c, "d": d}
    return a * b * c * d // extents[axis] * (extents[axis] + more)


def _numpy(x: np.ndarray, z: np.ndarray, axis: str, **_: Any) -> Any:
    along = "abcd".index(axis)
    y = np.empty(_with(x.shape, along, x.shape[along] + z.shape[along]), x.dtype)
    return lambda: np.concatenate([x, z], along, out=y)


def _torch(torch: Any, x: Any, z: Any, axis: str, **_: Any) -> Any:
    return lambda: torch.cat([x, z], "abcd".index(axis))


def _onnx(node: Any, x: str, z: str, axis: str, **_: Any) -> list[Any]:
    return [node("Concat", [x, z], ["y"], axis="abcd".index(axis))]


def _channels(size: int, c: int, more: int, source: str, a: int = 1) -> Example:
    """Join the channels of two images, channels last."""
    return Example({"a": a, "b": size, "c": size, "d": c, "more": more, "axis": "d"}, source)


CONCAT = Operator(
    name="concat",
    dims=(
        Dim("a", default=1),
        Dim("b", default=1),
        Dim("c"),
        Dim("d"),
        Dim("more"),
        Dim("axis", default="d", choices=tuple("abcd")),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        _channels(64, 512, 512, "U-Net, 512x512 pixels, first expansion"),
        _channels(256, 128, 128, "U-Net, 512x512 pixels, third expansion"),
        Example(
            {"b": 64, "c": 512, "d": 512, "more": 64, "axis": "b"},
            "U-Net, 512x512 pixels, last expansion, channels first",
        ),
        _channels(40, 256, 256, "YOLOv5s, 640x640 pixels, neck at 40x40"),
        _channels(56, 64, 32, "DenseNet-121, first block, second layer"),
        _channels(14, 992, 32, "DenseNet-121, third block, last layer"),
        Example({"c": 1, "d": 768, "more": 196, "axis": "c"}, "ViT-B/16, class token before the patches"),
        Example({"b": 32, "c": 1023, "d": 128, "more": 1, "axis": "c"}, "Llama 7B, keys and a new token's"),
        Example({"b": 2048, "c": 32, "d": 64, "more": 64}, "Llama 7B, halves of rotary queries"),
        _channels(256, 128, 128, "U-Net, 2 images, third expansion, larger than the caches", a=2),
        Example({"a": 3, "b": 5, "c": 7, "d": 17, "more": 19, "axis": "d"}, "odd: primes, innermost"),
        Example({"a": 3, "b": 5, "c": 7, "d": 19, "more": 11, "axis": "c"}, "odd: primes, in the middle"),
        Example({"a": 2, "b": 3, "c": 5, "d": 7, "more": 1, "axis": "a"}, "odd: one more, outermost"),
        Example({"c": 1, "d": 1, "more": 1}, "odd: one element and one"),
    ),
)
