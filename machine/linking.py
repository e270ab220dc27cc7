"""Linking: compiled code becomes a shared library, kept as a file or loaded at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import last_line
from .runtime import load_library
from .temporary import new_folder


def load_code(executable: Any) -> Any:
    """Link compiled code and load the library, whose file is gone then.

    Code that LLVM leaves in the memory of the process that compiles it may lie anywhere: a constant's address
    has 64 bits there and wants an instruction and a register, and what is left of these does not hold a large
    tile's sums. Attention over 1024 keys of 40 elements takes 6.8 ms so, and 4.2 from a library. Linking adds
    5 ms to what both take to compile, without ``ld``, by way of g++, 40.

    Parameters
    ----------
    executable : tvm.runtime.Executable
        What ``tvm.compile`` returns.

    Returns
    -------
    tvm.runtime.Module
        Its functions. Where nothing can be linked, a warning says so and they are compiled in memory.
    """
    folder = new_folder()
    try:
        path = Path(folder, "code.so")
        export_library(executable, str(path))
        return load_library(path)
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"cannot link compiled code ({last_line(error)}): it stays in memory, where large kernels are "
            "slower; `tunesmith doctor` says what is missing",
            stacklevel=3,
        )
        return executable.jit()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def export_library(executable: Any, path: str) -> None:
    """Write a shared library: with the linker itself where there is one, 20 ms sooner than by way of g++.

    A compiler that ``CXX`` names, perhaps one for another architecture, links with a linker of its own.

    Raises
    ------
    OSError, RuntimeError
        It cannot be linked or written.
    """
    executable.export_library(path, fcompile=_link if _links_here() else None)


def _links_here() -> bool:
    return not os.environ.get("CXX") and shutil.which("ld") is not None


def _link(path: str, objects: Sequence[str], **_options: Any) -> None:
    found = subprocess.run(["ld", "-shared", "-o", path, *objects], capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"ld failed: {found.stderr.strip()}")
