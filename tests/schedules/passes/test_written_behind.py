"""Rows that are written while the next are computed: results, which rows, how far apart."""

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.rows import ROWS
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import tirx
from tvm_ffi import structural_walk

KNOBS = {"stream": 1, "block": 1, "ahead": 1, "chunk": 8}


def cpu(mcpu):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})


def loops_of_two_rows(schedule, target):
    """Return the loops over vectors that compute powers of a row and write another past the caches."""
    found = []

    def note(loop):
        text = str(loop)
        if loop.loop_var.name == "together" and "exp2" in text and "tunesmith_stream" in text:
            found.append(loop)

    structural_walk(finished(schedule.mod, target)["main"].body, [(tirx.For, note)])
    return found


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 8, 37])  # less than a chunk, one, and some with a rest
@pytest.mark.parametrize("length", [128, 300, 1024, 1030, 2049])
def test_results_are_as_without(name, dtype, rows, length, target, assert_right):
    workload = ts.workload(name, m=rows, n=length, dtype=dtype)
    assert_right(workload, ROWS.scheduled(workload.func, target, {**KNOBS, "behind": 1}))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
@pytest.mark.parametrize("length", [320, 1024, 1030])  # whole vectors, a page, and neither
def test_a_row_is_written_while_the_next_is_computed(name, mcpu, length):
    func, target = ts.workload(name, m=64, n=length).func, cpu(mcpu)
    first, behind = (ROWS.scheduled(func, target, {**KNOBS, "behind": b}) for b in (0, 1))
    assert not loops_of_two_rows(first, target)
    assert len(loops_of_two_rows(behind, target)) == 1


@pytest.mark.parametrize(
    ("length", "steps"),
    # Of 4 vectors of 16 elements, 256 bytes. Rows that are pages are written half of one, 8 steps, ahead.
    [(512, 8), (1024, 8), (2048, 24), (2112, 25), (1536, 24)],
)
def test_rows_of_pages_are_written_ahead_of_what_is_computed(length, steps):
    func, target = ts.workload("softmax", m=64, n=length).func, cpu("x86-64-v4")
    knobs = {**KNOBS, "behind": 1, "lanes": 16, "vectors": 4}
    (loop,) = loops_of_two_rows(ROWS.scheduled(func, target, knobs), target)
    assert int(loop.extent) == steps


def test_a_trace_keeps_it(target):
    func = ts.workload("softmax", m=16, n=320).func
    schedule = ROWS.scheduled(func, target, {**KNOBS, "behind": 1})
    again = replay_trace(trace_text(schedule), func)
    assert len(loops_of_two_rows(again, target)) == len(loops_of_two_rows(schedule, target)) == 1


@pytest.mark.parametrize(
    ("name", "shape", "knobs"),
    [
        ("softmax", {"m": 16384, "n": 1024}, (64, 1, 1)),
        ("log_softmax", {"m": 1024, "n": 30522}, (64, 1, 1)),
        ("softmax", {"m": 100, "n": 200000}, (8, 1, 1)),
        ("softmax", {"m": 40, "n": 400000}, (1, 0, 1)),  # too few to share
        ("softmax", {"m": 1024, "n": 1024}, (1, 0, 2)),  # caches hold it
        ("log_softmax", {"m": 262144, "n": 101}, (64, 0, 2)),  # few vectors: two rows at a time
        ("softmax", {"m": 262144, "n": 100}, (64, 0, 2)),
    ],
)
def test_rows_beyond_the_caches_are_written_behind(name, shape, knobs):
    default = ROWS.space(ts.workload(name, **shape).func, cpu("x86-64-v4")).default
    assert (default["chunk"], default["behind"], default["block"]) == knobs


@pytest.mark.parametrize(
    ("name", "knobs"),
    [("layer_norm", KNOBS), ("softmax", KNOBS | {"stream": 0}), ("softmax", KNOBS | {"block": 2})],
)
def test_others_are_not(name, knobs, target):
    with pytest.raises(InputError, match="behind=0 unless rows of exponentials are written past the caches"):
        ROWS.scheduled(ts.workload(name, m=64, n=320).func, target, {**knobs, "behind": 1})
