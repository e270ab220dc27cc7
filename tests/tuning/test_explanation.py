import dataclasses

import pytest
import tunesmith as ts
from tunesmith.tuning.reporting.explanation import explain

KNOBS, SKETCH, FAILED = "f57be17b9ed9", "6f42597b7a8b", "e39bc670a622"


@pytest.fixture
def explained(frozen):
    """Explain a record of the frozen database, with some fields changed."""

    def call(record_id, **changes):
        with ts.Database(frozen) as database:
            record = dataclasses.replace(database.get(record_id), **changes)
        return explain(record, ts.workload("matmul", m=16, n=16, k=16))

    return call


def test_what_was_computed_comes_first(explained):
    operator, arguments, cost, target = explained(KNOBS).computed
    assert operator == "matmul m=16 n=16 k=16 float32"
    assert arguments.startswith("A float32[16, 16], B float32[16, 16], matmul")
    assert cost.startswith("8192 operations and at least 3072 bytes")
    assert '"mcpu":"znver5"' in target


def test_loops_are_shown_before_and_after(explained):
    explanation = explained(KNOBS)
    assert explanation.before.splitlines()[0] == "for i in range(16)"
    assert explanation.after.splitlines()[2] == "parallel j_0 in range(1)"


def test_each_step_has_code_and_words(explained):
    steps = explained(KNOBS).steps
    assert steps[3].code.startswith("b3 = sch.cache_read(") and steps[3].words.startswith("Copy what a block")
    assert all(step.words for step in steps) and steps[-1].code.startswith("b27 = sch.decompose_reduction(")


def test_knobs_are_told_with_their_meaning(explained):
    mr = next(knob for knob in explained(KNOBS).knobs if knob.name == "mr")
    assert (mr.value, mr.meaning) == (8, "rows of the register tile")
    assert [knob.meaning for knob in explained(FAILED).knobs] == [None]
    assert explained(SKETCH).knobs == ()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "3 repetitions, of so many calls as were not written down"),
        ({"calls": 7}, "3 repetitions x 7 calls = 21 timed calls, after calls to warm up"),
        ({"calls": 5, "run_secs": (1.0,)}, "1 repetition x 5 calls = 5 timed calls, after calls to warm up"),
        ({"threads": 4, "cache": "cold"}, "on 4 threads, device local, with cold caches"),
        ({"device": "rpc:board"}, "on an unknown number of threads, device rpc:board, with warm caches"),
        ({"same_as": "abc"}, "not run: its binary equals that of record abc, whose times these are"),
        ({"run_secs": ()}, "not timed"),
    ],
)
def test_how_often_it_ran_is_told(explained, changes, line):
    assert line in explained(KNOBS, **changes).ran


def test_checks_are_told_where_there_were_some(explained):
    told = "one call on each test case of fresh data, each output checked"
    assert told in explained(KNOBS).ran
    assert told not in explained(KNOBS, verified=False).ran


def test_the_result_is_told_with_quantiles_and_rate(explained):
    changes = {"run_secs": (1e-6, 2e-6, 3e-6), "confirmed_secs": (4e-6,), "max_error": 2e-7}
    assert explained(KNOBS, **changes).result == (
        "ok, verified",
        "largest error 2.0e-07 of the tolerance's scale",
        "trial: median 2 us (4.1 GFLOP/s), 20 to 80 % quantiles 1.4 us to 2.6 us",
        "confirmation: median 4 us (2.0 GFLOP/s), 20 to 80 % quantiles 4 us to 4 us",
    )


def test_a_failure_is_told_with_what_helps(explained):
    explanation = explained(FAILED)
    assert explanation.after is None and explanation.steps == ()
    assert explanation.result[0] == "schedule_error, not verified: it is not applied"
    assert "no_such_block" in explanation.result[1] and explanation.result[2].startswith("what helps: ")
    assert explanation.built[0].endswith("not built here")


def test_a_trace_that_does_not_fit_is_told(explained):
    explanation = explained(KNOBS, trace='[[["GetSBlock", [], ["none", "main"], ["b0"]]], []]')
    assert explanation.after is None and "the trace does not fit this function" in explanation.built[0]


def test_versions_and_machine_are_told(explained):
    created, versions = explained(KNOBS).made
    assert created.endswith("on znver5-2cpu-88c843b7") and versions == "tunesmith 0.1.0, TVM 0.27.0.post1"
