"""How the kernels count: in which type a sum is kept and returned, and where it is rounded."""

from __future__ import annotations

from math import e, log2
from typing import Any

import ml_dtypes  # noqa: F401  gives NumPy the name "bfloat16"
import numpy as np
from tvm import te

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8")
"""The element types of the operators here."""

LOG2_E = log2(e)
"""e^x is 2 to the power of x times this."""

# A sum of products is kept in a type wide enough to add thousands of them.
_SUM_DTYPE = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}

# A sum of int8 products does not fit into int8: what to scale it by is a model's business.
_RESULT_DTYPE = {"int8": "int32"}


def sum_dtype(dtype: str) -> str:
    """Name the type in which products of two ``dtype`` values are summed."""
    return _SUM_DTYPE.get(dtype, dtype)


def result_dtype(dtype: str) -> str:
    """Name the output's type of a contraction over ``dtype`` inputs."""
    return _RESULT_DTYPE.get(dtype, dtype)


def rounded_to(tensor: Any, dtype: str) -> Any:
    """Append a block named ``cast`` where the tensor's type is not the one wanted."""
    if tensor.dtype == dtype:
        return tensor
    return te.compute(tensor.shape, lambda *i: tensor[i].astype(dtype), name="cast")


def exact(array: np.ndarray) -> np.ndarray:
    """Widen an input of a reference to float64.

    Sums of int8 products are integers below 2**53, which float64 holds exactly, and NumPy
    multiplies float64 matrices a hundred times faster than int64 ones.
    """
    return array.astype(np.float64)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round a reference's float64 result once; an integer that does not fit wraps as the kernel's does."""
    kind = np.dtype(dtype)
    return (values.astype(np.int64) if kind.kind == "i" else values).astype(kind)
