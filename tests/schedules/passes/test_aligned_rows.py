"""Rows that begin anywhere, written past the caches in whole lines of memory, also those that two share."""

import re

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.schedules import code_generation, rule
from tunesmith.schedules.passes.aligned_rows import LINES_MARK, align_rows
from tunesmith.schedules.passes.row_chunks import CHUNK_MARK, chunk_rows
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm.script import tirx as T

LANES, ROWS = 16, 5


def rows(columns, length=None, number=lambda step, lane: step * LANES + lane, lanes=LANES):
    """Return a function of plain loops that copies vectors of rows, with a column's number of two kinds."""
    length = columns if length is None else length

    @T.prim_func
    def copied(x: T.handle, y: T.handle) -> None:
        X = T.match_buffer(x, (ROWS, columns), "float32")
        Y = T.match_buffer(y, (ROWS, columns), "float32")
        for row in T.serial(ROWS, annotations={CHUNK_MARK: 2}):
            for step in range(-(-length // lanes)):
                for lane in T.vectorized(lanes, annotations={LINES_MARK: length}):
                    if step * lanes + lane < length:
                        Y[row, step * lanes + lane] = X[row, number(step, lane)]

    return copied


def pieces(*lengths):
    """Return a function of plain loops that copies rows of several pieces, each of whole vectors or one."""
    columns, full, ends = sum(lengths), lengths[0] // LANES, lengths[1]

    @T.prim_func
    def copied(x: T.handle, y: T.handle) -> None:
        X = T.match_buffer(x, (ROWS, columns), "float32")
        Y = T.match_buffer(y, (ROWS, columns), "float32")
        for row in T.serial(ROWS, annotations={CHUNK_MARK: 2}):
            for step in range(full):
                for lane in T.vectorized(LANES, annotations={LINES_MARK: columns}):
                    Y[row, step * LANES + lane] = X[row, step * LANES + lane]
            for lane in T.vectorized(LANES, annotations={LINES_MARK: columns}):
                if lane < ends:
                    Y[row, full * LANES + lane] = X[row, full * LANES + lane]

    return copied


def in_lines(func):
    """Return a function as the passes leave it, and how many of its statements write lines."""
    mod = align_rows(chunk_rows(tvm.IRModule({"main": func})))
    return mod["main"], len(re.findall("tunesmith_stream", str(mod)))


@pytest.mark.parametrize(
    ("func", "lines"),
    [
        (rows(333), 3),  # the line in which a row begins, those between, and perhaps one more
        (rows(32 + 1), 3),
        (pieces(320, 13), 4),  # also what a short piece completes
        (pieces(64, 1), 4),
    ],
    ids=["333", "33", "320+13", "64+1"],
)
def test_rows_are_written_in_lines(func, lines, run):
    written, count = in_lines(func)
    assert count == lines
    columns = int(func.params[0].ty.shape[1]) if hasattr(func.params[0].ty, "shape") else None
    buffer = func.buffer_map[func.params[0]] if columns is None else None
    shape = (ROWS, columns if buffer is None else int(buffer.shape[1]))
    x = np.arange(1, 1 + ROWS * shape[1], dtype="float32").reshape(shape)
    (y,) = run(written, [x])
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(
    "func",
    [
        rows(320),  # each row begins with a line
        rows(333, length=332),  # something lies between two rows
        rows(31),  # a row may end in the line in which it begins
        rows(333, lanes=8),  # vectors are halves of lines
        rows(333, number=lambda step, lane: step),  # as it were with other lanes
        rows(333, number=lambda step, lane: step * LANES + lane // 2),
    ],
    ids=["aligned", "apart", "short", "narrow", "step", "half"],
)
def test_other_rows_stay_as_they_are(func):
    assert in_lines(func)[1] == 0


WORKLOADS = [
    ("rows", ts.workload("layer_norm", m=7, n=1001)),
    ("rows", ts.workload("layer_norm", m=11, n=33)),
    ("rows", ts.workload("rms_norm", m=6, n=259, dtype="float64")),
    ("rows", ts.workload("softmax", m=5, n=1009)),
    ("rows", ts.workload("softmax", m=12, n=100)),
    ("rows", ts.workload("log_softmax", m=9, n=531)),
    ("rows", ts.workload("layer_norm", m=3, n=1021, dtype="float16")),
    ("rows", ts.workload("softmax", m=10, n=333, dtype="float16")),
    ("rows", ts.workload("group_norm", n=3, c=64, h=7, w=7)),
    ("general", ts.workload("scale_shift_clip", m=9, n=403)),
    ("general", ts.workload("bias_gelu", m=4, n=1021)),
    ("general", ts.workload("bias_gelu", m=9, n=197)),
    ("general", ts.workload("bias_gelu", m=9, n=301, dtype="float16")),
    ("general", ts.workload("gather", v=50, d=75, m=13)),
    ("general", ts.workload("concat", a=2, b=2, c=5, d=335, more=663)),
    ("general", ts.workload("concat", a=2, b=2, c=5, d=100, more=49)),
    ("general", ts.workload("concat", a=2, b=2, c=5, d=335, more=663, dtype="float16")),
]


def name_of(value):
    return f"{value.label} {value.dtype}" if isinstance(value, ts.Workload) else str(value)


@pytest.mark.parametrize("chunk", [1, 4, 64])  # each alone, some with a rest, all
@pytest.mark.parametrize(("name", "workload"), WORKLOADS, ids=name_of)
def test_it_is_right_and_uses_stores_of_its_own(name, workload, chunk, target, assert_right):
    knobs = {"chunk": chunk} | ({"whole": 2} if workload.name == "softmax" else {})
    ordinary, streamed = (rule(name).scheduled(workload.func, target, {**knobs, "stream": s}) for s in (0, 1))
    assert_right(workload, streamed)
    assert "tunesmith_stream" not in str(code_generation.finished(ordinary.mod, target))
    assert "tunesmith_stream" in str(code_generation.finished(streamed.mod, target))
    if target.attrs["mtriple"].startswith("x86_64") and workload.dtype != "float16":
        assert "vmovnt" in build(streamed, target).mod.inspect_source("s")


def test_a_trace_keeps_it(target):
    func = ts.workload("layer_norm", m=16, n=333).func
    schedule = rule("rows").scheduled(func, target, {"stream": 1, "chunk": 8})
    again = replay_trace(trace_text(schedule), func)
    texts = [str(code_generation.finished(each.mod, target)) for each in (schedule, again)]
    assert texts[0] == texts[1] and texts[0].count("tunesmith_stream") == 3
