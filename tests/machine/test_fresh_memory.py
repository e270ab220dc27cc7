"""Memory that was never written holds no zeros."""

import ctypes

import numpy as np
import pytest
from tunesmith.machine.fresh_memory import without_zeros


def allocated(size):
    """Return the bytes of memory that was just allocated."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        pytest.skip("needs glibc")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    memory = libc.malloc(ctypes.c_size_t(size))
    found = np.frombuffer((ctypes.c_char * size).from_address(memory), "uint8").copy()
    libc.free(memory)
    return found


@pytest.mark.parametrize("size", [5_000, 5_000_000])
def test_what_is_allocated_is_large(size):
    with without_zeros():
        found = allocated(size)
    assert (found == 0x7F).all()
    assert found[:4].view("float32") > 3e38


def test_others_get_memory_as_it_is():
    with pytest.raises(KeyError), without_zeros():
        raise KeyError
    assert (allocated(5_000_000) != 0x7F).any()
