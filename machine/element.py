"""How wide one element of a type is."""

from __future__ import annotations

from typing import Any

import tvm


def element_bits(dtype: Any) -> int:
    """Return the bits of one element of a type, by its name or as TVM has it; of a vector, of one lane."""
    return int(tvm.DataType(str(dtype)).bits)


def element_bytes(dtype: Any) -> int:
    """Return the bytes that one element of a type takes in memory, by its name or as TVM has it."""
    return -(-element_bits(dtype) // 8)
