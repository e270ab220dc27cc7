r"""Sum, mean, maximum and the position of the maximum over any axes of a tensor of up to four dimensions.

.. math:: y_{ab} = \sum_{cd} x_{abcd} \quad \text{for axes=cd}

x is (a, b, c, d), the leading extents 1 where they are left out: ``d=1000`` is a vector, ``c=128,d=768`` a
matrix. ``axes`` names those that are reduced ("d", "ac", "abcd"); the output has the others, in order, or one
axis of extent 1 where none is left. argmax takes one axis and gives int64: where the first of the largest
values stands.

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

_AXES = "abcd"
_SUBSETS = tuple("".join(some) for size in (1, 2, 3, 4) for some in combinations(_AXES, size))
_FLOATS = ("float32", "float64", "float16", "bfloat16")
# One sum of terms of both signs may come near 0, where any rounding of a term is more than the tolerance.
_POSITIVE = {"x": (0.0, 1.0)}


def _positions(axes: str) -> tuple[int, ...]:
    """Return which dimensions are reduced."""
    return tuple(_AXES.index(axis) for axis in axes)


def _kept(axes: str, extents: dict[str, int]) -> tuple[int, ...]:
    """Return the extents of the output."""
    return tuple(extents[axis] for axis in _AXES if axis not in axes) or (1,)


def _reduced(x: Any, axes: str, reduction: Callable[[Any, list[Any]], Any], name: str) -> Any:
    """Reduce a tensor: ``reduction(index, reduced)`` is given x's index and those of its axes that vary."""
    extents = dict(zip(_AXES, map(int, x.shape), strict=True))
    reduced = {
        axis: te.reduce_axis((0, tvm.tirx.IntImm("int64", extents[axis])), name=f"r{axis}") for axis in axes
    }

    def at(*spatial: Any) -> Any:
        left = iter(spatial)
        index = [reduced[axis] if axis in axes else next(left) for axis in _AXES]
        return reduction(index, list(reduced.values()))

    return te.compute(_kept(axes, extents), at, name=name)


def _placeholder(extents: dict[str, int], dtype: str) -> Any:
    return te.placeholder(tuple(extents[axis] for axis in _AXES), dtype, name="x")


def _sum(x: Any, axes: str, wide: str) -> Any:
    return _reduced(x, axes, lambda at, over: te.sum(x[tuple(at)].astype(wide), axis=over), "sum")


def _largest(x: Any, axes: str, name: str) -> Any:
    """Take the maximum, of half floats in float32: TVM stores no vectors of a constant bfloat16."""
    dtype = str(x.dtype)
    wide = sum_dtype(dtype) if "float" in dtype else dtype
    return _reduced(x, axes, lambda at, over: te.max(x[tuple(at)].astype(wide), axis=over), name)


def define_sum(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x = _placeholder(extents, dtype)
    return [x, rounded_to(_sum(x, axes, sum_dtype(dtype)), dtype)]


def define_mean(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x, wide = _placeholder(extents, dtype), sum_dtype(dtype)
    total, count = _sum(x, axes, wide), tvm.tirx.const(_terms(axes, extents), wide)
    mean = te.compute(total.shape, lambda *at: total[at] / count, name="mean")
    return [x, rounded_to(mean, dtype)]


def define_max(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y."""
    x = _placeholder(extents, dtype)
    return [x, rounded_to(_largest(x, axes, "max"), dtype)]


def define_argmax(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y.

    Along what is contiguous it is two reductions of one value each, a maximum, then the least position of an
    element equal to it: one of pairs is a chain of comparisons that TVM cannot take apart. Across it is one
    of pairs, which reads x once; but not of bfloat16, which TVM takes for integers there.
    """
    x = _placeholder(extents, dtype)
    contiguous = _terms(_AXES[_AXES.index(axes) + 1 :], extents) == 1
    in_pairs = not contiguous and dtype != "bfloat16"
    return [x, _largest_with_position(x, axes) if in_pairs else _first_of_largest(x, axes, extents[axes])]


def _first_of_largest(x: Any, axis: str, length: int) -> Any:
    """Find the least position of an element that is equal to the maximum."""
    largest = _largest(x, axis, "largest")
    none = tvm.tirx.const(length, "int32")

    def position(at: list[Any], over: list[Any]) -> Any:
        kept = tuple(index for name, index in zip(_AXES, at, strict=True) if name != axis)
        found = x[tuple(at)].astype(largest.dtype) == largest[kept]
        return te.min(tvm.tirx.Select(found, over[0].var.astype("int32"), none), axis=over)

    first = _reduced(x, axis, position, "first")
    # A maximum starts at the least finite value, which -inf does not exceed.
    return te.compute(
        first.shape,
        lambda *at: tvm.tirx.Select(first[at] < none, first[at], tvm.tirx.const(0, "int32")).astype("int64"),
        name="argmax",
    )


def _largest_with_position(x: Any, axis: str) -> Any:
    """Find the maximum together with its position: of equals the first, as the axis is gone through in order.

    To compare positions as well, as any order would want, takes 1.6 to 2.3 times as long.
    """
    wide = sum_dtype(str(x.dtype))

    def larger(one: Any, other: Any) -> tuple[Any, ...]:
        better = other[1] > one[1]
        return tuple(tvm.tirx.Select(better, new, old) for new, old in zip(other, one, strict=True))

    def nothing(position: str, value: str) -> tuple[Any, Any]:
        return tvm.tirx.const(0, position), tvm.tirx.const(float("-inf"), value)

    largest = te.comm_reducer(larger, nothing, name="larger")

    def pair(at: list[Any], over: list[Any]) -> Any:
        return largest((over[0].var.astype("int32"), x[tuple(at)].astype(wide)), axis=over)

    first, _ = _reduced(x, axis, pair, "first")
    return te.compute(first.shape, lambda *at: first[at].astype("int64"), name="argmax")


def _terms(axes: str, extents: dict[str, int]) -> int:
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


def reference_argmax(x: np.ndarray, *, axes: str, **_: int) -> np.ndarray:
    """Return where the first of the largest values stands, as int64."""
    return np.asarray(exact(x).argmax(_AXES.index(axes)), np.int64)


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
        return lambda: np.atleast_1d(function(x, axis[0] if name == "argmax" else axis))

    return prepare


def _torch_by(name: str) -> Callable[..., Any]:
    """Name PyTorch's function."""

    def prepare(torch: Any, x: Any, *, axes: str, **_: int) -> Any:
        function, axis = getattr(torch, name), _positions(axes)
        return lambda: function(x, dim=axis[0] if name == "argmax" else axis)

    return prepare


def _onnx_by(name: str) -> Callable[..., Any]:
    """Name ONNX's operator."""

    def prepare(node: Any, x: str, *, axes: str, **_: int) -> Any:
        if name == "ArgMax":
            return [node(name, [x], ["y"], axis=_AXES.index(axes), keepdims=0)]
        return [node(name, [x, "axes"], ["y"], keepdims=0)], {"axes": np.array(_positions(axes))}

    return prepare


def _libraries(numpy: str, torch: str, onnx: str) -> Libraries:
    return Libraries(_numpy_by(numpy), _torch_by(torch), _onnx_by(onnx), restore=_restore)


def _restore(y: np.ndarray, **_: Any) -> np.ndarray:
    return np.atleast_1d(y)


def _dims(choices: tuple[str, ...]) -> tuple[Dim, ...]:
    leading = (Dim(axis, default=1) for axis in "abc")
    return (*leading, Dim("d"), Dim("axes", default="d", choices=choices))


_ROWS = Example({"c": 16384, "d": 1024, "axes": "d"}, "rows of 64 MiB, larger than the caches")
_COLUMNS = Example({"c": 16384, "d": 1024, "axes": "c"}, "columns of 64 MiB, larger than the caches")
_ODD = (
    Example({"c": 127, "d": 131, "axes": "d"}, "odd: primes"),
    Example({"c": 7, "d": 3, "axes": "d"}, "odd: rows shorter than a vector"),
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "b"}, "odd: primes, an axis in the middle"),
    Example({"d": 1009, "axes": "d"}, "odd: a vector of prime length"),
    Example({"d": 1, "axes": "d"}, "odd: one element"),
)
_ODD_SEVERAL = (
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "ac"}, "odd: primes, two axes apart"),
    Example({"a": 3, "b": 5, "c": 7, "d": 11, "axes": "abcd"}, "odd: primes, everything"),
)

SUM = Operator(
    name="sum",
    dims=_dims(_SUBSETS),
    define=define_sum,
    reference=reference_sum,
    flops=flops,
    dtypes=_FLOATS,
    ranges=_POSITIVE,
    libraries=_libraries("sum", "sum", "ReduceSum"),
    examples=(
        Example({"c": 4096, "d": 3072, "axes": "c"}, "BERT-base, 32 x 128 tokens: gradient of a bias"),
        Example(
            {"a": 32, "b": 56, "c": 56, "d": 64, "axes": "abc"}, "ResNet-50, 32 images: a beta's gradient"
        ),
        Example({"c": 1536, "d": 128, "axes": "d"}, "BERT-base, 128 tokens: sums of a softmax"),
        _ROWS,
        _COLUMNS,
        *_ODD,
        *_ODD_SEVERAL,
    ),
)

MEAN = Operator(
    name="mean",
    dims=_dims(_SUBSETS),
    define=define_mean,
    reference=reference_mean,
    flops=flops_mean,
    dtypes=_FLOATS,
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
        _ROWS,
        _COLUMNS,
        *_ODD,
        *_ODD_SEVERAL,
    ),
)

MAX = Operator(
    name="max",
    dims=_dims(_SUBSETS),
    define=define_max,
    reference=reference_max,
    flops=flops,
    dtypes=(*_FLOATS, "int8"),
    libraries=_libraries("max", "amax", "ReduceMax"),
    examples=(
        Example({"b": 32, "c": 1024, "d": 1024, "axes": "d"}, "PointNet, 32 clouds of 1024 points: features"),
        Example({"c": 1536, "d": 128, "axes": "d"}, "BERT-base, 128 tokens: maxima of a softmax"),
        Example({"d": 50257, "axes": "d"}, "GPT-2, one token: largest of the log-odds"),
        _ROWS,
        _COLUMNS,
        *_ODD,
        *_ODD_SEVERAL,
    ),
)

ARGMAX = Operator(
    name="argmax",
    dims=_dims(tuple(_AXES)),
    define=define_argmax,
    reference=reference_argmax,
    flops=flops,
    dtypes=_FLOATS,
    libraries=_libraries("argmax", "argmax", "ArgMax"),
    examples=(
        Example({"d": 50257, "axes": "d"}, "GPT-2, one token: the likeliest next"),
        Example({"c": 8, "d": 128256, "axes": "d"}, "Llama 3 8B, 8 sequences: the likeliest next tokens"),
        Example({"c": 32, "d": 1000, "axes": "d"}, "ResNet-50, 32 images: their classes"),
        Example({"b": 21, "c": 520, "d": 520, "axes": "b"}, "DeepLabV3, one image: class of each pixel"),
        _ROWS,
        _COLUMNS,
        *_ODD,
    ),
)
