"""A trace in Python, a line for each instruction, as TVM prints it."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

# TVM cannot print the first: it asks for a loop where it hands itself a name. The second has the same inputs
# and outputs.
_UNPRINTABLE, _ALIKE = "DecomposePadding", "DecomposeReduction"
_IN_PYTHON = {_UNPRINTABLE: "sch.decompose_padding(", _ALIKE: "sch.decompose_reduction("}


def trace_lines(trace: s_tir.Trace) -> list[str]:
    """Return a trace in Python, a line for each of its instructions."""
    kind = s_tir.schedule.InstructionKind.get(_ALIKE)

    def printable(instruction: Any) -> Any:
        if instruction.kind.name != _UNPRINTABLE:
            return instruction
        return s_tir.schedule.Instruction(kind, instruction.inputs, instruction.attrs, instruction.outputs)

    instructions = [*trace.insts]
    decisions = dict(trace.decisions.items())
    lines = s_tir.Trace([*map(printable, instructions)], decisions).as_python()
    return [
        str(line).replace(_IN_PYTHON[_ALIKE], _IN_PYTHON[_UNPRINTABLE])
        if instruction.kind.name == _UNPRINTABLE
        else str(line)
        for instruction, line in zip(instructions, lines, strict=True)
    ]
