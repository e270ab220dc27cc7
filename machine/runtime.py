"""TVM's runtime alone: what runs compiled code, without the compiler that made it.

Importing ``tvm`` takes 0.6 s and 150 MB, nearly all of it for the compiler. What runs a model is a library of
3 MB, which tvm-ffi can use by itself.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm_ffi

from .errors import InputError

_CPU, _FIRST_DEVICE, _POOLED_MEMORY = 1, 0, 2
# Sorting and random numbers, which some operators call, lie in the second; not every build has it.
_LIBRARIES = (("libtvm_runtime.so", os.RTLD_GLOBAL), ("libtvm_runtime_extra.so", os.RTLD_LOCAL))


@cache
def load_runtime() -> None:
    """Load TVM's runtime library; where all of TVM is imported already, that is the same one.

    Raises
    ------
    InputError
        TVM is not installed, or has no such library.
    """
    # Finding a package does not import it.
    found = find_spec("tvm")
    folders = [Path(p, "lib") for p in (found.submodule_search_locations or ())] if found else []
    paths = [(folder / name, mode) for folder in folders for name, mode in _LIBRARIES]
    loaded = [ctypes.CDLL(str(path), mode) for path, mode in paths if path.is_file()]
    if not loaded:
        raise InputError("TVM's runtime library is not there; install apache-tvm again")


def global_function(name: str) -> Any:
    """Return one of the runtime's own functions."""
    load_runtime()
    return tvm_ffi.get_global_func(name)


def thread_count() -> int:
    """Return how many threads compiled code runs on."""
    return int(global_function("runtime.NumThreads")())


def load_library(path: Path) -> Any:
    """Load a compiled library; it stays in memory when its file is removed."""
    load_runtime()
    return tvm_ffi.load_module(str(path))


def virtual_machine(library: Any) -> Any:
    """Return a machine of its own, with memory of its own, that runs the functions of a Relax library.

    Its functions are taken by name: ``machine["main"]``.
    """
    load_runtime()
    machine = library["vm_load_executable"]()
    machine["vm_initialization"](_CPU, _FIRST_DEVICE, _POOLED_MEMORY)
    return machine
