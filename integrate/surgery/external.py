"""Functions outside of TVM in a model: Python's on NumPy arrays or torch tensors, and C libraries'."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ...kernels.operator import Workload
from ...machine.arrays import as_numpy
from ...machine.errors import InputError, unknown_name
from ..lowering.choice import EXTERNAL_PREFIX

ARRAYS = ("numpy", "torch", "tvm")
"""What an external function may be called with."""

CALL_EXTERNAL = tvm.ir.Op.get("relax.call_dps_packed")


@dataclass(frozen=True)
class External:
    """A function that computes its last argument from the others, on the model's own memory.

    Parameters
    ----------
    function : callable
        ``function(*inputs, output)`` writes its output in place; what it returns is ignored.
    arrays : str
        What it is called with: ``numpy`` arrays (inputs cannot be written), ``torch`` tensors, or ``tvm``
        tensors. Nothing is copied.

    Raises
    ------
    InputError
        ``arrays`` is something else, or torch is not installed.
    """

    function: Callable[..., Any]
    arrays: str = "numpy"

    def __post_init__(self) -> None:
        """Refuse what could not be called."""
        if self.arrays not in ARRAYS:
            raise unknown_name("kind of arrays", self.arrays, ARRAYS)
        if not callable(self.function):
            raise InputError(f"an external function is a callable: found {type(self.function).__name__}")

    @property
    def description(self) -> str:
        """What it is, and where it is defined."""
        if isinstance(self.function, tvm_ffi.Function):
            return "a compiled external function"
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        place = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
        return f"the Python function {name}{place}"

    def on_tensors(self) -> Callable[..., Any]:
        """Return the function in the form in which TVM calls it: on TVM's tensors."""
        if self.arrays == "tvm":
            return self.function
        return _on_numpy(self.function) if self.arrays == "numpy" else _on_torch(self.function)


def _on_numpy(function: Callable[..., Any]) -> Callable[..., None]:
    def call(*tensors: Any) -> None:
        *inputs, output = (as_numpy(tensor) for tensor in tensors)
        for array in inputs:
            array.flags.writeable = False
        function(*inputs, output)

    return call


def _on_torch(function: Callable[..., Any]) -> Callable[..., None]:
    try:
        import torch
    except ImportError:
        raise InputError("torch is not installed: pip install 'tunesmith[baselines]'") from None

    def call(*tensors: Any) -> None:
        with torch.inference_mode():
            function(*(torch.utils.dlpack.from_dlpack(tensor) for tensor in tensors))

    return call


@dataclass(frozen=True, eq=False)
class Registered:
    """An external function that compiled code of this process calls, and the workload that it stands for."""

    external: External
    original: Workload


# By the symbol that compiled code calls it by.
_registered: dict[str, Registered] = {}
_numbers = count()


def register(external: External, original: Workload) -> str:
    """Make an external function callable by compiled code of this process; return its symbol."""
    symbol = f"{EXTERNAL_PREFIX}{next(_numbers)}.{original.name}"
    tvm.register_global_func(symbol, external.on_tensors())
    _registered[symbol] = Registered(external, original)
    return symbol


def registered(symbol: str) -> Registered | None:
    """Return what was registered as a symbol; None for others."""
    return _registered.get(symbol)


def external_calls(mod: Any) -> list[str]:
    """Return the symbol of each call of an external function in a module's Relax functions."""
    found: list[str] = []

    def look(call: Any) -> None:
        if call.op == CALL_EXTERNAL and isinstance(call.args[0], relax.ExternFunc):
            found.append(str(call.args[0].global_symbol))

    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (relax.Call, look))
    return found
