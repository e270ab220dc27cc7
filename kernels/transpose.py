r"""Transposition: the axes of a tensor in another order.

.. math:: y_{\pi(i, j, k, l)} = x_{ijkl}

x is (a, b, c, d); ``order`` names y's axes: with ``acbd`` y is (a, c, b, d). Leading extents are 1 where left
out. Everything that only moves axes is one of these:

- a matrix, or one per a and b: ``abdc``.
- (n, h, w, c) to (n, c, h, w): ``abdc`` of (1, n, h w, c); back: the same of (1, n, c, h w).
- attention's tokens by heads to heads by tokens: ``acbd`` of (batch, tokens, heads, width of a head).
- (n, h, w, C c) to blocked (n, C, h, w, c): ``acbd`` of (n, h w, C, c); from (n, C c, h, w): ``abdc`` of
  (n, C, c, h w).

Each element is read and written once: memory bandwidth is the limit, and reads or writes in strides.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from tvm import te

from .arithmetic import DTYPES
from .libraries import Libraries
from .operator import Dim, Example, Operator

ORDERS = tuple(map("".join, permutations("abcd")))
"""All 24 orders, among them the one that only copies."""


def define(a: int, b: int, c: int, d: int, order: str, dtype: str) -> list[Any]:
    """Return the TE tensors x and y."""
    extents = dict(zip("abcd", (a, b, c, d), strict=True))
    x = te.placeholder(tuple(extents.values()), dtype, name="x")

    def at(*position: Any) -> Any:
        named = dict(zip(order, position, strict=True))
        return x[tuple(named[axis] for axis in "abcd")]

    return [x, te.compute(tuple(extents[axis] for axis in order), at, name="transpose")]


def axes(order: str) -> tuple[int, ...]:
    """Return the place in x of each of y's axes."""
    return tuple("abcd".index(axis) for axis in order)


def reference(x: np.ndarray, order: str, **_: Any) -> np.ndarray:
    """Return y, whose values are x's."""
    return np.ascontiguousarray(x.transpose(axes(order)))


def flops(a: int, b: int, c: int, d: int, order: str) -> int:
    """Count one an element, though none is computed: that throughput is elements moved."""
    return a * b * c * d


def _numpy(x: np.ndarray, order: str, **_: Any) -> Any:
    view = x.transpose(axes(order))
    y = np.empty(view.shape, view.dtype)

    def call() -> np.ndarray:
        np.copyto(y, view)
        return y

    return call


def _torch(torch: Any, x: Any, order: str, **_: Any) -> Any:
    view = x.permute(axes(order))
    y = torch.empty(view.shape, dtype=view.dtype)
    return lambda: y.copy_(view)


def _onnx(node: Any, x: str, order: str, **_: Any) -> list[Any]:
    return [node("Transpose", [x], ["y"], perm=axes(order))]


def _matrix(rows: int, columns: int, source: str, **more: int) -> Example:
    return Example({**more, "c": rows, "d": columns, "order": "abdc"}, source)


def _heads(batch: int, tokens: int, heads: int, width: int, source: str) -> Example:
    return Example({"a": batch, "b": tokens, "c": heads, "d": width, "order": "acbd"}, source)


TRANSPOSE = Operator(
    name="transpose",
    dims=(
        Dim("a", default=1),
        Dim("b", default=1),
        Dim("c"),
        Dim("d"),
        Dim("order", default="abdc", choices=ORDERS),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        _heads(1, 128, 12, 64, "BERT-base, 128 tokens: 12 heads apart"),
        _heads(1, 12, 128, 64, "BERT-base, 128 tokens: 12 heads together again"),
        _heads(8, 384, 12, 64, "BERT-base, 8 sequences of 384 tokens: 12 heads apart"),
        _heads(1, 1024, 12, 64, "GPT-2, 1024 tokens: 12 heads apart"),
        _heads(1, 2048, 32, 128, "Llama 7B, 2048 tokens: 32 heads apart"),
        _matrix(128, 64, "BERT-base, 128 tokens: keys of 12 heads for their product with queries", b=12),
        _matrix(768, 3072, "BERT-base: weight of the first feed-forward layer"),
        _matrix(50176, 3, "ResNet-50, the image: NHWC to NCHW"),
        _matrix(3, 50176, "ResNet-50, the image: NCHW to NHWC"),
        _matrix(3136, 256, "ResNet-50, end of a block at 56x56 pixels: NHWC to NCHW"),
        _matrix(2048, 49, "ResNet-50, end of a block at 7x7 pixels: NCHW to NHWC"),
        _heads(1, 3136, 16, 16, "ResNet-50, end of a block at 56x56 pixels: NHWC to blocks of 16 channels"),
        _matrix(16, 3136, "ResNet-50, end of a block at 56x56 pixels: NCHW to blocks of 16 channels", b=16),
        Example(
            {"a": 3, "b": 3, "c": 64, "d": 64, "order": "dcab"},
            "ResNet-50, stage 1, 3x3: weight of NHWC to that of NCHW",
        ),
        _matrix(4096, 4096, "square, larger than the caches"),
        Example({"a": 3, "b": 7, "c": 17, "d": 19, "order": "dcba"}, "odd: primes, all reversed"),
        Example({"a": 5, "b": 3, "c": 11, "d": 37, "order": "acbd"}, "odd: primes, the innermost stays"),
        _matrix(1009, 3, "odd: a prime by less than a vector"),
        Example({"a": 2, "b": 3, "c": 5, "d": 7, "order": "abcd"}, "odd: only copied"),
        _matrix(1, 1, "odd: one element"),
    ),
)
