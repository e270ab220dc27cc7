"""An operator of one's own with a schedule of its own: C = swish(A B), where swish(x) = x / (1 + exp(-x)).

tunesmith bench examples/my_ops.py:swish_matmul --shape m=256,n=256,k=256
"""

from math import gcd

import numpy as np
import tunesmith as ts
from tunesmith.machine.facts import facts
from tunesmith.schedules.analysis import block_names
from tvm import s_tir, te


def define(m, n, k, dtype):  # what is computed: the inputs first, the output last
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    P = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    return [A, B, te.compute((m, n), lambda i, j: P[i, j] * te.sigmoid(P[i, j]), name="swish")]


def reference(A, B, **shape):  # the specification: float64 inside, rounded once
    P = A.astype(np.float64) @ B.astype(np.float64)
    return (P / (1 + np.exp(-P))).astype(A.dtype)


def rewrite(sch, rows, columns):  # how: a tile of sums stays in registers until its swish is stored
    product, swish = sch.get_sblock("product"), sch.get_sblock("swish")
    i, j = sch.get_loops(swish)
    (i, row), (j, column) = sch.split(i, [None, rows]), sch.split(j, [None, columns])
    sch.reorder(j, i, row, column)
    sch.compute_at(product, i, preserve_unit_loops=True)
    sch.set_scope(product, 0, "local")
    x, y, r = sch.get_loops(product)[-3:]
    sch.reorder(r, x, y)
    sch.parallel(j)
    for along_rows, along_columns in ((row, column), (x, y)):
        sch.unroll(along_rows)
        sch.vectorize(along_columns)
    sch.decompose_reduction(product, r)  # the zeros are set before r, not inside it


def space(func, target):  # the knobs, the rules they keep, and the point to take without a search
    if block_names(s_tir.Schedule(func)) != ["product", "swish"]:
        return None  # another operator: other schedules apply
    (m, n), machine = map(int, func.params[-1].shape), facts(target)
    lanes, tile = machine.lanes("float32"), machine.vector_registers // 2
    knobs = (
        ts.Knob("rows", (1, 2, 4, 8), "rows of a tile"),
        ts.Knob("columns", (1, 2, 4, 8, 16, 32, 64), "columns of a tile"),
    )
    fits = (
        ts.Constraint("a tile divides C", lambda t: m % t["rows"] == 0 == n % t["columns"]),
        ts.Constraint(f"{tile} vectors hold a tile", lambda t: t["rows"] * t["columns"] <= tile * lanes),
    )
    return ts.KnobSpace(knobs, fits, default={"rows": gcd(m, tile // 2), "columns": gcd(n, 2 * lanes)})


ts.add_schedule(ts.ScheduleRule("swish_tiles", "tiles of the product in registers", rewrite, space))
swish_matmul = ts.Operator(
    name="swish_matmul",
    dims=(ts.Dim("m"), ts.Dim("n"), ts.Dim("k")),
    define=define,
    reference=reference,
    flops=lambda m, n, k: 2 * m * n * k + 5 * m * n,
    examples=(ts.Example({"m": 128, "n": 3072, "k": 768}, "a feed-forward layer of BERT-base"),),
)
