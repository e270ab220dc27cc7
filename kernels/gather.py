r"""Gather rows of a table: the lookup of embeddings.

.. math:: y_{ij} = t_{p_i,\, j}

The table t is (v, d), the positions p are (m), of type ``index``, each at least 0 and less than v, which is
not checked; y is (m, d). Each row is read where it lies: memory bandwidth is the limit, and where rows are
short, the latency of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from .arithmetic import DTYPES
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define(v: int, d: int, m: int, index: str, dtype: str) -> list[Any]:
    """Return the TE tensors table, positions and y."""
    table = te.placeholder((v, d), dtype, name="table")
    positions = te.placeholder((m,), index, name="positions")
    return [table, positions, te.compute((m, d), lambda i, j: table[positions[i], j], name="gather")]


def reference(table: np.ndarray, positions: np.ndarray, **_: Any) -> np.ndarray:
    """Return y, whose values are the table's."""
    return table[positions]


def flops(v: int, d: int, m: int, index: str) -> int:
    """Count one an element of y, though none is computed: that throughput is elements moved."""
    return m * d


def _numpy(table: np.ndarray, positions: np.ndarray, **_: Any) -> Any:
    y = np.empty((len(positions), table.shape[1]), table.dtype)
    # Any mode but this one copies the result once more.
    return lambda: np.take(table, positions, axis=0, out=y, mode="clip")


def _torch(torch: Any, table: Any, positions: Any, **_: Any) -> Any:
    return lambda: torch.nn.functional.embedding(positions, table)


def _onnx(node: Any, table: str, positions: str, **_: Any) -> list[Any]:
    return [node("Gather", [table, positions], ["y"], axis=0)]


def _tokens(v: int, d: int, m: int, source: str, **more: str) -> Example:
    return Example({"v": v, "d": d, "m": m, **more}, source)


GATHER = Operator(
    name="gather",
    dims=(Dim("v"), Dim("d"), Dim("m"), Dim("index", default="int64", choices=("int64", "int32"))),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx, weights=(0,)),
    examples=(
        _tokens(30522, 768, 128, "BERT-base, 128 tokens"),
        _tokens(30522, 768, 3072, "BERT-base, 8 sequences of 384 tokens"),
        _tokens(512, 768, 128, "BERT-base, places of 128 tokens"),
        _tokens(50257, 768, 1024, "GPT-2, 1024 tokens"),
        _tokens(32000, 4096, 1, "Llama 7B, one token"),
        _tokens(32000, 4096, 128, "Llama 7B, 128 tokens, positions of 32 bits", index="int32"),
        _tokens(100000, 16, 26624, "DLRM on Criteo Kaggle, 26 features of 1024 samples"),
        _tokens(50257, 768, 32768, "GPT-2, 32 sequences of 1024 tokens, larger than the caches"),
        _tokens(101, 19, 37, "odd: primes"),
        _tokens(13, 3, 1009, "odd: rows shorter than a vector, 32 bits", index="int32"),
        _tokens(1, 5, 7, "odd: a table of one row"),
        _tokens(1, 1, 1, "odd: one element"),
    ),
)
