"""Rows that begin anywhere, written past the caches: from their first whole line of memory on."""

import pytest
import tunesmith as ts
import tvm
from tunesmith.schedules import code_generation, rule
from tunesmith.schedules.passes import aligned_rows
from tunesmith.schedules.passes.aligned_rows import LEAST_VECTORS, align_rows
from tunesmith.schedules.passes.streaming import STREAM_MARK
from tunesmith.tuning.records.compilation import build
from tvm.script import tirx as T

LANES = 16
VECTORS = 2 * LEAST_VECTORS


def rows(columns, number=lambda step, lane: step * LANES + lane):
    """Return a function of plain loops that copies vectors of rows, with a column's number of two kinds."""

    @T.prim_func
    def copied(x: T.handle, y: T.handle) -> None:
        X = T.match_buffer(x, (5, columns), "float32")
        Y = T.match_buffer(y, (5, columns), "float32")
        for row in range(5):
            for step in range(VECTORS):
                for lane in T.vectorized(LANES, annotations={STREAM_MARK: 1}):
                    Y[row, step * LANES + lane] = X[row, number(step, lane)]

    return copied


def parts(func):
    """Return the loops in which a function's rows are written, and whether each is a choice of lanes."""
    body = align_rows(tvm.IRModule({"main": func}))["main"].body.body
    loops = list(body.seq) if isinstance(body, tvm.tirx.SeqStmt) else [body]
    return [(int(loop.extent), isinstance(loop.body, tvm.tirx.IfThenElse)) for loop in loops]


def test_a_row_begins_and_ends_with_parts_of_a_vector():
    columns = VECTORS * LANES + 3
    assert parts(rows(columns)) == [(LANES, True), (VECTORS - 1, False), (LANES, True)]


@pytest.mark.parametrize(
    "func",
    [
        rows(VECTORS * LANES),  # each row begins with a whole vector
        rows((VECTORS + 1) * LANES + 1, number=lambda step, lane: step),  # as it were with other lanes
        rows((VECTORS + 1) * LANES + 1, number=lambda step, lane: step * LANES + lane // 2),
    ],
    ids=["aligned", "step", "half"],
)
def test_other_rows_stay_as_they_are(func):
    assert parts(func) == [(VECTORS, False)]


def test_short_rows_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(aligned_rows, "LEAST_VECTORS", VECTORS + 1)
    assert parts(rows(VECTORS * LANES + 3)) == [(VECTORS, False)]


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("rows", ts.workload("layer_norm", m=7, n=1001)),
        ("rows", ts.workload("rms_norm", m=6, n=259, dtype="float64")),
        ("rows", ts.workload("softmax", m=5, n=1009)),
        ("rows", ts.workload("log_softmax", m=5, n=531)),
        ("rows", ts.workload("layer_norm", m=3, n=1021, dtype="float16")),
        ("general", ts.workload("scale_shift_clip", m=9, n=403)),
        ("general", ts.workload("bias_gelu", m=4, n=1021)),
        ("general", ts.workload("concat", a=2, b=2, c=5, d=335, more=663)),
        ("general", ts.workload("concat", a=2, b=2, c=5, d=335, more=663, dtype="float16")),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.label} {value.dtype}",
)
def test_it_is_right_and_uses_stores_of_its_own(name, workload, target, assert_right):
    ordinary, streamed = (rule(name).scheduled(workload.func, target, {"stream": s}) for s in (0, 1))
    assert_right(workload, streamed)
    assert "tunesmith_stream" not in str(code_generation.finished(ordinary.mod, target))
    assert "tunesmith_stream" in str(code_generation.finished(streamed.mod, target))
    if target.attrs["mtriple"].startswith("x86_64") and workload.dtype != "float16":
        assert "vmovnt" in build(streamed, target).mod.inspect_source("s")
