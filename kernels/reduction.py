r"""Sum, mean and maximum over any axes of a tensor of up to four dimensions.

.. math:: y_{ab} = \sum_{cd} x_{abcd} \quad \text{for axes=cd}

x is (a, b, c, d), the leading extents 1 where they are left out: ``d=1000`` is a vector, ``c=128,d=768`` a
matrix. ``axes`` names those that are reduced ("d", "ac", "abcd"); the output has the others, in order, or one
axis of extent 1 where none is left.

float16 and bfloat16 are summed in float32 and rounded once; the mean divides the sum. A maximum needs no
rounding; where it is -inf, the least finite value of the type is given. An element is read once for one
operation: memory bandwidth is the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

AXES = "abcd"
"""Names of the dimensions, in order."""

_SUBSETS = tuple("".join(some) for size in (1, 2, 3, 4) for some in combinations(AXES, size))

FLOATS = ("float32", "float64", "float16", "bfloat16")
"""The types that are reduced."""

# One sum of terms of both signs may come near 0, where any rounding of a term is more than the tolerance.
_POSITIVE = {"x": (0.0, 1.0)}


def _positions(axes: str) -> tuple[int, ...]:
    """Return which dimensions are reduced."""
    return tuple(AXES.index(axis) for axis in axes)


def _kept(axes: str, extents: dict[str, int]) -> tuple[int, ...]:
    """Return the extents of the output."""
    return tuple(extents[axis] for axis in AXES if axis not in axes) or (1,)


def reduced_by(x: Any, axes: str, reduction: Callable[[Any, list[Any]], Any], name: str) -> Any:
    """Reduce a tensor: ``reduction(index, reduced)`` is given x's index and those of its axes that vary."""
    extents = dict(zip(AXES, map(int, x.shape), strict=True))
    reduced = {
        axis: te.reduce_axis((0, tvm.tirx.IntImm("int64", extents[axis])), name=f"r{axis}") for axis in axes
    }

    def at(*spatial: Any) -> Any:
        left = iter(spatial)
        index = [reduced[axis] if axis in axes else next(left) for axis in AXES]
        return reduction(index, list(reduced.values()))

    return te.compute(_kept(axes, extents), at, name=name)


def placeholder(extents: dict[str, int], dtype: str) -> Any:
    """Return the tensor that is reduced, x."""
    return te.placeholder(tuple(extents[axis] for axis in AXES), dtype, name="x")


def _sum(x: Any, axes: str, wide: str) -> Any:
    return reduced_by(x, axes, lambda at, over: te.sum(x[tuple(at)].astype(wide), axis=over), "sum")


def largest_of(x: Any, axes: str, name: str) -> Any:
    """Take the maximum, of half floats in float32: TVM stores no vectors of a constant bfloat16."""
    dtype = str(x.dtype)
    wide = sum_dtype(dtype) if "float" in dtype else dtype
    return reduced_by(x, axes, lambda at, over: te.max(x[tuple(at)].astype(wide), axis=over), name)


def define_sum(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x = placeholder(extents, dtype)
    return [x, rounded_to(_sum(x, axes, sum_dtype(dtype)), dtype)]


def define_mean(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x, wide = placeholder(extents, dtype), sum_dtype(dtype)
    total, count = _sum(x, axes, wide), tvm.tirx.const(terms(axes, extents), wide)
    mean = te.compute(total.shape, lambda *at: total[at] / count, name="mean")
    return [x, rounded_to(mean, dtype)]


def define_max(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x = placeholder(extents, dtype)
    return [x, rounded_to(largest_of(x, axes, "max"), dtype)]


def terms(axes: str, extents: dict[str, int]) -> int:
    """Count the elements that are reduced to one."""
    return prod(extents[axis] for axis in axes)


def reference_sum(x: np.ndarray, *, axes: str, **_: int) -> np.ndarray:
    """Return the sum, in float64 and rounded once."""
    return rounded(np.atleast_1d(exact(x).sum(_positions(axes))), str(x.dtype))


def reference_mean(x: np.ndarray, *, axes: str, **_: int) -> np.ndarray:
    """Return the mean, in float64 and rounded once."""
    return rounded(np.atleast_1d(exact(x).mean(_positions(axes))), str(x.dtype))


def reference_max(x: np.ndarray, *, axes: str, **_: int) -> np.ndarray:
    """Return the maximum, which needs no rounding."""
    return rounded(np.atleast_1d(exact(x).max(_positions(axes))), str(x.dtype))


def flops(axes: str, **extents: int) -> int:
    """Count one addition or comparison an element."""
    return prod(extents.values())


def flops_mean(axes: str, **extents: int) -> int:
    """Count one addition an element and one division an output."""
    return prod(extents.values()) + prod(_kept(axes, extents))


def _numpy_by(name: str) -> Callable[..., Any]:
    """Name NumPy's function."""

    def prepare(x: np.ndarray, *, axes: str, **_: int) -> Any:
        function, axis = getattr(np, name), _positions(axes)
        return lambda: np.atleast_1d(function(x, axis))

    return prepare


def _torch_by(name: str) -> Callable[..., Any]:
    """Name PyTorch's function."""

    def prepare(torch: Any, x: Any, *, axes: str, **_: int) -> Any:
        function, axis = getattr(torch, name), _positions(axes)
        return lambda: function(x, dim=axis)

    return prepare


def _onnx_by(name: str) -> Callable[..., Any]:
    """Name ONNX's operator."""

    def prepare(node: Any, x: str, *, axes: str, **_: int) -> Any:
        return [node(name, [x, "axes"], ["y"], keepdims=0)], {"axes": np.array(_positions(axes))}

    return prepare


def _libraries(numpy: str, torch: str, onnx: str) -> Libraries:
    return Libraries(_numpy_by(numpy), _torch_by(torch), _onnx_by(onnx), restore=restore)


def restore(y: np.ndarray, **_: Any) -> np.ndarray:
    """Give what is reduced to one number its axis of extent 1."""
    return np.atleast_1d(y)


def dims_of(choices: tuple[str, ...]) -> tuple[Dim, ...]:
    """Return the extents, and the axes that can be reduced together."""
    leading = (Dim(axis, default=1) for axis in "abc")
    return (*leading, Dim("d"), Dim("axes", default="d", choices=choices))


LARGE = (
    Example({"c": 16384, "d": 1024, "axes": "d"}, "rows of 64 MiB, larger than the caches"),
    Example({"c": 16384, "d": 1024, "axes": "c"}, "columns of 64 MiB, larger than the caches"),
)
"""What memory holds, of every reduction."""

ODD = (
    Example({"c": 127, "d": 131, "axes": "d"}, "odd: primes"),
    Example({"c": 7, "d": 3, "axes": "d"}, "odd: rows shorter than a vector"),
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "b"}, "odd: primes, an axis in the middle"),
    Example({"d": 1009, "axes": "d"}, "odd: a vector of prime length"),
    Example({"d": 1, "axes": "d"}, "odd: one element"),
)
"""Shapes that no vectors divide, of every reduction."""

_ODD_SEVERAL = (
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "ac"}, "odd: primes, two axes apart"),
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "abcd"}, "odd: primes, everything"),
)

SUM = Operator(
    name="sum",
    dims=dims_of(_SUBSETS),
    define=define_sum,
    reference=reference_sum,
    flops=flops,
    dtypes=FLOATS,
    ranges=_POSITIVE,
    libraries=_libraries("sum", "sum", "ReduceSum"),
    examples=(
        Example({"c": 4096, "d": 3072, "axes": "c"}, "BERT-base, 32 x 128 tokens: gradient of a bias"),
        Example(
            {"a": 32, "b": 56, "c": 56, "d": 64, "axes": "abc"}, "ResNet-50, 32 images: a beta's gradient"
        ),
        Example({"c": 1536, "d": 128, "axes": "d"}, "BERT-base, 128 tokens: sums of a softmax"),
        *LARGE,
        *ODD,
        *_ODD_SEVERAL,
    ),
)

MEAN = Operator(
    name="mean",
    dims=dims_of(_SUBSETS),
    define=define_mean,
    reference=reference_mean,
    flops=flops_mean,
    dtypes=FLOATS,
    ranges=_POSITIVE,
    libraries=_libraries("mean", "mean", "ReduceMean"),
    examples=(
        Example({"b": 2048, "c": 7, "d": 7, "axes": "cd"}, "ResNet-50, one image: last features, NCHW"),
        Example({"b": 7, "c": 7, "d": 2048, "axes": "bc"}, "ResNet-50, one image: last features, NHWC"),
        Example({"b": 32, "c": 128, "d": 384, "axes": "c"}, "MiniLM-L6, 32 texts of 128 tokens: pooling"),
        Example(
            {"b": 32, "c": 112, "d": 112, "axes": "cd"},
            "EfficientNet-B0, one image: first squeeze",
        ),
        *LARGE,
        *ODD,
        *_ODD_SEVERAL,
    ),
)

MAX = Operator(
    name="max",
    dims=dims_of(_SUBSETS),
    define=define_max,
    reference=reference_max,
    flops=flops,
    dtypes=(*FLOATS, "int8"),
    libraries=_libraries("max", "amax", "ReduceMax"),
    examples=(
        Example({"b": 32, "c": 1024, "d": 1024, "axes": "d"}, "PointNet, 32 clouds of 1024 points: features"),
        Example({"c": 1536, "d": 128, "axes": "d"}, "BERT-base, 128 tokens: maxima of a softmax"),
        Example({"d": 50257, "axes": "d"}, "GPT-2, one token: largest of the log-odds"),
        *LARGE,
        *ODD,
        *_ODD_SEVERAL,
    ),
)
