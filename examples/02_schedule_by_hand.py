"""Step 2 of 3: schedule it. Rewrite the loops by hand, step by step; then leave the numbers to a search.

    python examples/02_schedule_by_hand.py

A schedule is a Python function that rewrites loops in place and leaves the result as it is. Its numbers are
keyword arguments, the knobs: with a value for each it is a hand schedule, with candidates and rules between
them it is a space. Here the operator of step 1 gets one.
"""

from __future__ import annotations

from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tunesmith as ts
from tunesmith.machine.arrays import aligned_copy, as_tensor
from tunesmith.machine.facts import facts
from tunesmith.schedules.analysis import block_names
from tunesmith.tuning.measuring.measurement import Timing, measure
from tunesmith.tuning.measuring.verification import inputs_of
from tunesmith.tuning.records.compilation import build
from tvm import s_tir

OPERATOR = f"{Path(__file__).with_name('01_first_kernel.py')}:SWISH_MATMUL"


def tile(sch: Any, rows: int, columns: int) -> None:
    """C in tiles of rows x columns; the product of a tile is computed where its swish is."""
    i, j = sch.get_loops(sch.get_sblock("swish"))
    i, row = sch.split(i, [None, rows])
    j, column = sch.split(j, [None, columns])
    sch.reorder(j, i, row, column)
    sch.compute_at(sch.get_sblock("product"), i, preserve_unit_loops=True)


def keep_in_registers(sch: Any) -> None:
    """The sums of a tile are a small local array: each term of the sum updates all of them."""
    product = sch.get_sblock("product")
    sch.set_scope(product, 0, "local")
    x, y, r = sch.get_loops(product)[-3:]
    sch.reorder(r, x, y)


def use_vectors_and_threads(sch: Any) -> None:
    """Columns are vectors, rows are written out, the threads share the columns of tiles."""
    product = sch.get_sblock("product")
    j, _, r, x, y = sch.get_loops(product)
    row, column = sch.get_loops(sch.get_sblock("swish"))[-2:]
    sch.parallel(j)
    for along_rows, along_columns in ((row, column), (x, y)):
        sch.unroll(along_rows)
        sch.vectorize(along_columns)
    sch.decompose_reduction(product, r)  # the zeros are set before r, not inside it


def rewrite(sch: Any, *, rows: int, columns: int) -> None:
    tile(sch, rows, columns)
    keep_in_registers(sch)
    use_vectors_and_threads(sch)


def open_space(func: Any, target: Any) -> ts.KnobSpace | None:
    """Candidates for each knob, rules between them, and the point to take without a search."""
    if block_names(s_tir.Schedule(func)) != ["product", "swish"]:
        return None  # another operator: the rule does not apply
    m, n = (int(extent) for extent in func.params[-1].shape)
    lanes = facts(target).lanes("float32")
    knobs = (
        ts.Knob("rows", (1, 2, 4, 8), "rows of a tile"),
        ts.Knob("columns", (1, 2, 4, 8, 16, 32, 64), "columns of a tile"),
    )
    rules = (
        ts.Constraint("a tile divides C", lambda k: m % k["rows"] == 0 == n % k["columns"]),
        ts.Constraint("16 vectors hold a tile", lambda k: k["rows"] * k["columns"] <= 16 * lanes),
    )
    return ts.KnobSpace(knobs, rules, default={"rows": gcd(m, 8), "columns": gcd(n, 2 * lanes)})


TILED = ts.ScheduleRule("tiled", "tiles of C held in registers", rewrite, open_space)


def main(extent: int = 256, trials: int = 8) -> None:
    workload = ts.workload(OPERATOR, m=extent, n=extent, k=extent)
    inputs = inputs_of(workload, seed=0)
    tensors = [as_tensor(aligned_copy(array)) for array in (*inputs, workload.reference(*inputs))]

    # What each step buys. The command line has the same: tunesmith show OP --shape ... --steps
    sch, default = s_tir.Schedule(workload.func), TILED.space(workload.func, ts.host_target()).default
    steps = (
        ("as defined", lambda _: None),
        ("tile", lambda s: tile(s, **default)),
        ("keep in registers", keep_in_registers),
        ("vectors and threads", use_vectors_and_threads),
    )
    for name, step in steps:
        step(sch)
        seconds = min(measure(build(sch, "host")["main"], tensors, Timing()).run_secs)
        print(f"{name:<20}{workload.flops / seconds / 1e9:8.1f} GFLOP/s")

    assert all(row["ok"] for row in ts.verify(workload, [TILED]))
    with TemporaryDirectory() as folder:
        result = ts.tune(
            workload, space=TILED, strategy="grid", trials=trials, database=Path(folder, "tiled.db")
        )
        print(f"best of {result.trials}: {dict(result.best.knobs)}, {result.best.median_s * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
