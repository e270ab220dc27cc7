"""Schedule a matrix multiplication by hand, step by step; then leave its numbers open and search them.

    python examples/02_schedule_by_hand.py

A schedule is a Python function that rewrites loops in place. Its numbers are keyword arguments, the knobs:
with a value for each it is a hand schedule, with candidates and rules between them it is a space.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tunesmith as ts
from tunesmith.machine.arrays import aligned_copy, as_tensor
from tunesmith.machine.facts import facts
from tunesmith.schedules.space import Constraint, KnobSpace
from tunesmith.tuning.measuring.measurement import Timing, measure
from tunesmith.tuning.measuring.verification import inputs_for
from tunesmith.tuning.records.compilation import build
from tvm import s_tir


def tile(sch: Any, rows: int, columns: int) -> None:
    """C in tiles of rows x columns, each summed over all of k; the threads share the rows of tiles."""
    i, j, k = sch.get_loops(sch.get_sblock("matmul"))
    i, row = sch.split(i, [None, rows])
    j, column = sch.split(j, [None, columns])
    sch.reorder(i, j, k, row, column)
    sch.parallel(i)


def keep_in_registers(sch: Any) -> None:
    """A tile is a local array, written to C once: its rows are unrolled, its columns are vectors."""
    block = sch.get_sblock("matmul")
    _, j, k, row, column = sch.get_loops(block)
    copy_out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copy_out, j)
    sch.vectorize(sch.get_loops(copy_out)[-1])
    sch.unroll(row)
    sch.vectorize(column)
    sch.decompose_reduction(block, k)  # the zeros are set before k, not inside it


def rewrite(sch: Any, *, rows: int, columns: int) -> None:
    tile(sch, rows, columns)
    keep_in_registers(sch)


def open_space(func: Any, target: Any) -> KnobSpace | None:
    """Candidates for each knob, rules between them, and the point to take without a search."""
    m, n = (int(extent) for extent in func.params[-1].shape)
    lanes = facts(target).lanes("float32")
    if m % 4 or n % lanes:
        return None  # the rule does not apply
    knobs = (
        ts.Knob("rows", (1, 2, 4, 8, 16), "rows of a tile"),
        ts.Knob("columns", (lanes, 2 * lanes, 4 * lanes), "columns of a tile"),
    )
    rules = (
        Constraint("rows must divide m", lambda k: m % k["rows"] == 0),
        Constraint("columns must divide n", lambda k: n % k["columns"] == 0),
    )
    return KnobSpace(knobs, rules, default={"rows": 4, "columns": lanes})


TILED = ts.ScheduleRule("tiled", "tiles of C held in registers", rewrite, open_space)


def main(extent: int = 256, trials: int = 8) -> None:
    workload = ts.workload("matmul", m=extent, n=extent, k=extent)
    arrays = [*inputs_for(workload.inputs, seed=0), workload.reference(*inputs_for(workload.inputs, seed=0))]
    tensors = [as_tensor(aligned_copy(array)) for array in arrays]

    sch = s_tir.Schedule(workload.func)
    lanes = facts(ts.host_target()).lanes("float32")
    first = ("as defined", lambda _: None), ("tile", lambda s: tile(s, 4, lanes))
    for name, step in (*first, ("keep in registers", keep_in_registers)):
        step(sch)
        seconds = min(measure(build(sch, "host")["main"], tensors, Timing()).run_secs)
        print(f"{name:<18}{workload.flops / seconds / 1e9:8.1f} GFLOP/s")

    assert all(row["ok"] for row in ts.verify(workload, [TILED]))
    with TemporaryDirectory() as folder:
        result = ts.tune(
            workload, space=TILED, strategy="grid", trials=trials, database=Path(folder, "tiled.db")
        )
        print(f"best of {result.trials}: {dict(result.best.knobs)}, {result.best.median_s * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
