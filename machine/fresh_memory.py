"""Fresh memory without zeros: what is read of it before it is written is plainly wrong.

The system gives memory that is zero, in which sums come out right that nobody set to zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# glibc's `mallopt` fills what it hands out with the complement of this byte: 0x7f7f7f7f is 3.4e38 as float32,
# 0x7f7f as much as bfloat16, and NaN as float16.
_M_PERTURB, _BYTE = -6, 0x80


@contextmanager
def without_zeros() -> Iterator[None]:
    """Let memory that is allocated in here hold large numbers; where the C library is not glibc, nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_M_PERTURB, _BYTE)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
