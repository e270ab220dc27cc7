r"""The position of the maximum along an axis of a tensor of up to four dimensions.

.. math:: y_{abd} = \operatorname{argmax}_c x_{abcd} \quad \text{for axes=c}

x is as in `reduction`, ``axes`` names one axis. y is int64: where the first of the largest values stands.
float16 and bfloat16 are compared in float32. An element is read once for one operation: memory bandwidth is
the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import exact, sum_dtype
from .libraries import Libraries
from .operator import Example, Operator
from .reduction import (
    AXES,
    FLOATS,
    LARGE,
    ODD,
    dims_of,
    flops,
    largest_of,
    placeholder,
    reduced_by,
    restore,
    terms,
)


def define_argmax(axes: str, dtype: str, **extents: int) -> list[Any]:
    """Return the TE tensors x and y.

    Along what is contiguous it is two reductions of one value each, a maximum, then the least position of an
    element equal to it: one of pairs is a chain of comparisons that TVM cannot take apart. Across it is one
    of pairs, which reads x once; but not of bfloat16, which TVM takes for integers there.
    """
    x = placeholder(extents, dtype)
    contiguous = terms(AXES[AXES.index(axes) + 1 :], extents) == 1
    in_pairs = not contiguous and dtype != "bfloat16"
    return [x, _largest_with_position(x, axes) if in_pairs else _first_of_largest(x, axes, extents[axes])]


def _first_of_largest(x: Any, axis: str, length: int) -> Any:
    """Find the least position of an element that is equal to the maximum."""
    largest = largest_of(x, axis, "largest")
    none = tvm.tirx.const(length, "int32")

    def position(at: list[Any], over: list[Any]) -> Any:
        kept = tuple(index for name, index in zip(AXES, at, strict=True) if name != axis)
        found = x[tuple(at)].astype(largest.dtype) == largest[kept]
        return te.min(tvm.tirx.Select(found, over[0].var.astype("int32"), none), axis=over)

    first = reduced_by(x, axis, position, "first")
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

    first, _ = reduced_by(x, axis, pair, "first")
    return te.compute(first.shape, lambda *at: first[at].astype("int64"), name="argmax")


def reference_argmax(x: np.ndarray, *, axes: str, **_: int) -> np.ndarray:
    """Return where the first of the largest values stands, as int64."""
    return np.asarray(exact(x).argmax(AXES.index(axes)), np.int64)


def _numpy(x: np.ndarray, *, axes: str, **_: int) -> Any:
    """NumPy's own."""
    return lambda: np.atleast_1d(np.argmax(x, AXES.index(axes)))


def _torch(torch: Any, x: Any, *, axes: str, **_: int) -> Any:
    """PyTorch's own."""
    return lambda: torch.argmax(x, dim=AXES.index(axes))


def _onnx(node: Any, x: str, *, axes: str, **_: int) -> Any:
    """ONNX's own."""
    return [node("ArgMax", [x], ["y"], axis=AXES.index(axes), keepdims=0)]


ARGMAX = Operator(
    name="argmax",
    dims=dims_of(tuple(AXES)),
    define=define_argmax,
    reference=reference_argmax,
    flops=flops,
    dtypes=FLOATS,
    libraries=Libraries(_numpy, _torch, _onnx, restore=restore),
    examples=(
        Example({"d": 50257, "axes": "d"}, "GPT-2, one token: the likeliest next"),
        Example({"c": 8, "d": 128256, "axes": "d"}, "Llama 3 8B, 8 sequences: the likeliest next tokens"),
        Example({"c": 32, "d": 1000, "axes": "d"}, "ResNet-50, 32 images: their classes"),
        Example({"b": 21, "c": 520, "d": 520, "axes": "b"}, "DeepLabV3, one image: class of each pixel"),
        *LARGE,
        *ODD,
    ),
)
