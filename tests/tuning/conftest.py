"""Workloads and rules that tests tune: small, and faulty in every way a candidate can be."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import Workload
from tunesmith.schedules.rule import ScheduleRule
from tunesmith.schedules.space import Knob, KnobSpace
from tvm import s_tir
from tvm.script import tirx as T

# All matmuls here are SIZE by SIZE, float32.
SIZE = 64
S = (SIZE, SIZE)


@pytest.fixture(scope="session")
def small() -> Workload:
    return ts.workload("matmul", m=SIZE, n=SIZE, k=SIZE)


@pytest.fixture
def frozen_version(tmp_path: Path) -> Callable[[int], Path]:
    """Copy the frozen database of a version, see data/README.md: records of a matmul of 16."""
    data = Path(__file__).parent / "data"
    return lambda version: Path(shutil.copy(data / f"records_v{version}.db", tmp_path / "frozen.db"))


@pytest.fixture
def frozen(frozen_version: Callable[[int], Path]) -> Path:
    """Return a copy of the frozen database of version 1: seven records of a matmul of 16."""
    return frozen_version(1)


def space_of(**values: tuple[int, ...]) -> KnobSpace:
    knobs = tuple(Knob(name, choices, "a knob of a test") for name, choices in values.items())
    return KnobSpace(knobs, (), {k.name: k.values[0] for k in knobs})


def make_rule(name: str, rewrite: Callable[..., None], **values: tuple[int, ...]) -> ScheduleRule:
    return ScheduleRule(name, "a rule of a test", rewrite, lambda func, target: space_of(**values))


def tile(sch: Any, rows: int, columns: int = 8) -> None:
    """Tile the two outer loops of a matmul."""
    i, j, _ = sch.get_loops(sch.get_sblock("matmul"))
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, columns])
    sch.reorder(i0, j0, i1, j1)


@pytest.fixture(scope="session")
def tiles() -> ScheduleRule:
    return make_rule("tiles", tile, rows=(4, 1, 2, 8, 16), columns=(8, 4, 16))


@T.prim_func(s_tir=True)
def hangs(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    while T.bool(True):
        c[0, 0] = c[0, 0] + a[0, 0] * b[0, 0]


@T.prim_func(s_tir=True)
def aborts(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    T.evaluate(T.call_extern("int32", "abort"))


@T.prim_func(s_tir=True)
def reads_far_away(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    for i in range(SIZE):
        c[0, i] = a[1 << 24, i]


@T.prim_func(s_tir=True)
def raises(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    assert a[0, 0] > T.float32(1e9), "the kernel says no"
    c[0, 0] = a[0, 0]


@T.prim_func(s_tir=True)
def writes_nothing(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    T.evaluate(0)


@T.prim_func(s_tir=True)
def writes_half(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    for i, j in T.grid(SIZE // 2, SIZE):
        c[i, j] = T.float32(0)
        for k in range(SIZE):
            c[i, j] = c[i, j] + a[i, k] * b[k, j]


@T.prim_func(s_tir=True)
def changes_its_input(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    for i, j in T.grid(SIZE, SIZE):
        c[i, j] = T.float32(0)
        for k in range(SIZE):
            c[i, j] = c[i, j] + a[i, k] * b[k, j]
    b[0, 0] = T.float32(0)


FAULTS = {
    "hangs": hangs,
    "aborts": aborts,
    "reads_far_away": reads_far_away,
    "raises": raises,
    "writes_nothing": writes_nothing,
    "writes_half": writes_half,
    "changes_its_input": changes_its_input,
}


@dataclass
class Scheduled:
    """What a schedule is to a builder: a module and a trace."""

    mod: Any
    trace: Any


@dataclass(frozen=True)
class FaultyRule(ScheduleRule):
    """A rule whose knob `fault` counts through right schedules (0), FAULTS, and one that cannot be made."""

    def scheduled(self, func: Any, target: Any, knobs: Any = None) -> Any:
        fault = (knobs or self.space(func, target).default)["fault"]
        schedule = s_tir.Schedule(func)
        if fault > len(FAULTS):
            schedule.get_sblock("no_such_block")
        if fault == 0:
            tile(schedule, 4)
            return schedule
        return Scheduled(tvm.IRModule({"main": list(FAULTS.values())[fault - 1]}), schedule.trace)


def nothing(sch: Any, fault: int) -> None:
    """Stand in for a rewriting: FaultyRule has its own."""


@pytest.fixture(scope="session")
def faulty() -> FaultyRule:
    faults = tuple(range(len(FAULTS) + 2))
    return FaultyRule("faulty", "a rule of a test", nothing, lambda func, target: space_of(fault=faults))


@pytest.fixture(scope="session")
def faulty_default() -> Callable[[int], FaultyRule]:
    """Make a rule whose default has a given fault."""
    return lambda fault: FaultyRule(
        "faulty", "a rule of a test", nothing, lambda func, target: space_of(fault=(fault,))
    )
