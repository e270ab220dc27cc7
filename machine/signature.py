"""What a compiled function takes and gives: names, shapes and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import tvm_ffi


@dataclass(frozen=True)
class ArgSpec:
    """One argument of a kernel or a model: its name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return (prod(self.shape) * tvm_ffi.dtype(self.dtype).bits + 7) // 8
