"""Code: memory is planned, calls become bytecode, and LLVM compiles the functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ...schedules.code_generation import generate_code
from .dump import NO_DUMP, Dump
from .weights import lift_weights


@dataclass(frozen=True, eq=False)
class Code:
    """A compiled module.

    Parameters
    ----------
    executable : VMExecutable
        The code without weights.
    weights : list of tvm.runtime.Tensor
        What ``main`` takes after its inputs.
    planned_bytes : int
        Memory that one inference takes for the results of its functions, outputs among them; inputs and
        weights are not.
    """

    executable: Any
    weights: list[Any]
    planned_bytes: int


def compile_code(mod: Any, target: Any, dump: Dump = NO_DUMP) -> Code:
    """Compile a module whose functions are as they should be."""
    code, weights = lift_weights(mod)
    with target:
        code = relax.get_pipeline("default_build")(code)
    dump("code", code)
    return Code(generate_code(code, target, relax_pipeline=None), weights, planned_bytes(code))


def planned_bytes(mod: Any) -> int:
    """Add up what ``main`` allocates, in bytes; what is used twice in turn is allocated once."""
    sizes: list[int] = []
    allocate = tvm.ir.Op.get("relax.vm.alloc_storage")

    def visit(call: Any) -> None:
        if call.op == allocate:
            sizes.append(int(call.args[0].values[0]))

    tvm_ffi.structural_walk(mod["main"].body, (relax.Call, visit))
    return sum(sizes)
