"""What the compiler made of the innermost loop: its multiply-adds, loads and spills, read off the assembly.

The register tile of a schedule is a promise: so many accumulators that stay in registers over the whole sum.
Whether it was kept shows in the loop that does the work: it adds into as many registers as the tile has
vectors, of the target's full width, stores nothing, and has nothing go to the stack and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"^([.\w$]+):")
# LLVM may say which of two encodings it means.
_INSTRUCTION = re.compile(r"^\s+(?:\{e?vex\d?\}\s*)?([a-z][\w.]*)\s*(.*)$")
_FUSED = re.compile(
    r"^(vfn?m(add|sub)\d+[ps][sdh]|vpdp\w+|v?pmaddwd|vdpbf16ps|tdp\w+"  # x86
    r"|fn?m(la|ls|add|sub)|[su]+dot|bfdot|[su]?mlal?2?|[su]?mmla)$"  # aarch64
)
# These multiply and sum two products; another instruction adds the sums up.
_SUMS_OF_TWO = re.compile(r"^v?pmaddwd$")
_ADDS_UP = re.compile(r"^v?paddd$")
# The address of memory: (%rbx,%rax) or -64(%rcx) of x86, [x3, #2048] of aarch64.
_ADDRESS = re.compile(r"\((%[^)]*)\)|(?:^|, )\[([^\]]*)\]")
_COMMENT = re.compile(r"\s+(# |//).*$")
_JUMP = re.compile(r"^(j\w+|b(\.\w+)?|cbn?z|tbn?z)$")
_FRAME = re.compile(r"^movq?\s+(?:%rsp, %(rbp)|(x29), sp)$")
_NO_ACCESS = ("lea", "prefetch", "prfm", "nop")
_COMPARES = ("cmp", "test", "vucomis", "vcomis", "ucomis", "comis")
_WIDTHS = {"tmm": 16 * 512, "zmm": 512, "ymm": 256, "xmm": 128}
_SCALAR = {"s": 32, "d": 64, "h": 16}
_LANE_BITS = {"b": 8, "h": 16, "s": 32, "d": 64}


@dataclass(frozen=True)
class InnerLoop:
    """The innermost loop with the most multiply-adds.

    Parameters
    ----------
    label : str
        Where it begins.
    instructions : int
        How many instructions one iteration has.
    multiply_adds : int
        How many of them multiply and add.
    bits : int
        The width of the narrowest of these in bits; 0 where only the machine knows (SVE).
    accumulators : int
        Into how many registers they add.
    loads, stores : int
        Instructions that read and write memory.
    spills : int
        Those of them that go to the stack.
    """

    label: str
    instructions: int
    multiply_adds: int
    bits: int
    accumulators: int
    loads: int
    stores: int
    spills: int

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"inner loop {self.label}: {self.multiply_adds} multiply-adds of {self.bits or 'scalable'} bits "
            f"into {self.accumulators} registers, {self.loads} loads, {self.stores} stores, "
            f"{self.spills} spills, {self.instructions} instructions"
        )


@dataclass(frozen=True)
class _Instruction:
    """A mnemonic with its operands; ``frame`` is the register that addresses the stack besides its own."""

    name: str
    operands: str
    frame: str

    @property
    def fused(self) -> bool:
        return _FUSED.match(self.name) is not None

    @property
    def _address(self) -> re.Match[str] | None:
        return None if self.name.startswith(_NO_ACCESS) else _ADDRESS.search(self.operands)

    @property
    def stores(self) -> bool:
        found = self._address
        if found is None:
            return False
        if found[2] is not None:
            return self.name.startswith("st")
        # AT&T's order: the destination comes last; a mask may follow it.
        at_end = re.sub(r"\s*\{[^}]*\}", "", self.operands[found.end() :]) == ""
        return at_end and not self.name.startswith(_COMPARES)

    @property
    def loads(self) -> bool:
        return self._address is not None and not self.stores

    @property
    def spills(self) -> bool:
        found = self._address
        base = (found[1] or found[2]).split(",")[0].strip().lstrip("%") if found else ""
        return base in {"rsp", "esp", "sp", self.frame} - {""}

    @property
    def accumulator(self) -> str:
        """The register that a multiply-add adds to."""
        found = re.sub(r"\s*\{[^}]*\}", "", self.operands).split(",")
        return found[-1 if "%" in self.operands else 0].partition(".")[0].strip()

    @property
    def bits(self) -> int:
        """The width of a multiply-add."""
        if "%" in self.operands:
            scalar = re.search(r"\d+s([sdh])$", self.name)
            found = re.search(r"%([txyz]mm)\d+\s*(\{[^}]*\}\s*)*$", self.operands)
            return _SCALAR[scalar[1]] if scalar else _WIDTHS[found[1]] if found else 0
        lanes = re.match(r"v\d+\.(\d+)([bhsd])", self.operands)
        if lanes is not None:
            return int(lanes[1]) * _LANE_BITS[lanes[2]]
        return 0 if self.operands.startswith("z") else _SCALAR.get(self.operands[:1], 0)


def inner_loop(assembly: str) -> InnerLoop | None:
    """Find the innermost loop in which most instructions are multiply-adds; the first of several alike.

    There a good kernel spends its time: other loops end sums, or move and change data.

    Parameters
    ----------
    assembly : str
        What LLVM writes for x86-64 or aarch64.

    Returns
    -------
    InnerLoop or None
        None where no loop multiplies and adds in one instruction.
    """
    return max(summing_loops(assembly), key=lambda e: e.multiply_adds / e.instructions, default=None)


def summing_loops(assembly: str) -> list[InnerLoop]:
    """Find the innermost loops that multiply and add in one instruction, in the order of the assembly."""
    found = (_summary(label, body) for label, body in _innermost(assembly.splitlines()))
    return [each for each in found if each.multiply_adds]


def _summary(label: str, body: Sequence[_Instruction]) -> InnerLoop:
    fused = [each for each in body if each.fused]
    added_to = [each for each in fused if _SUMS_OF_TWO.match(each.name) is None]
    if len(added_to) < len(fused):
        added_to += [each for each in body if _ADDS_UP.match(each.name)]
    return InnerLoop(
        label=label,
        instructions=len(body),
        multiply_adds=len(fused),
        bits=min((each.bits for each in fused), default=0),
        accumulators=len({each.accumulator for each in added_to}),
        loads=sum(each.loads for each in body),
        stores=sum(each.stores for each in body),
        spills=sum(each.spills for each in body),
    )


def _innermost(lines: Sequence[str]) -> Iterator[tuple[str, list[_Instruction]]]:
    """Yield the loops that have no loop inside: from a label to a jump back to it."""
    labels: dict[str, int] = {}
    instructions: list[_Instruction] = []
    latest, frame = -1, ""
    for line in lines:
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
            # A function of its own says whether it has a frame.
            frame = frame if label[1].startswith(".L") else ""
        elif found := _INSTRUCTION.match(_COMMENT.sub("", line)):
            name, operands = found[1], found[2].strip()
            if pointer := _FRAME.match(f"{name} {operands}"):
                frame = pointer[1] or pointer[2]
            instructions.append(_Instruction(name, operands, frame))
            target = operands.rpartition(",")[2].strip()
            if _JUMP.match(name) and target in labels:
                if latest < labels[target]:
                    yield target, instructions[labels[target] :]
                latest = max(latest, labels[target])
