import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.signature import ArgSpec
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import (
    expected_output,
    fill_untouched,
    inputs_for,
    reduction_length,
    tolerance,
)


@pytest.mark.parametrize("length", [16, 300, 4096])
@pytest.mark.parametrize("positive", [False, True])
def test_tolerance_allows_rounding_and_not_a_lost_term(length, positive):
    rng = np.random.default_rng(length)
    a, b = rng.uniform(0 if positive else -1, 1, (2, 400, length)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(1).astype(np.float32)
    # One term after another, as a plain loop does.
    rounded = np.cumsum(a * b, axis=1, dtype=np.float32)[:, -1]
    allowed = tolerance("float32", length)
    assert compare(rounded, exact, allowed).ok
    assert not compare((rounded - a[:, -1] * b[:, -1]).astype(np.float32), exact, allowed).ok


def test_tolerance_follows_the_dtype():
    assert tolerance("int32", 1000) == 0.0
    assert (
        tolerance("float64", 64)
        < tolerance("float32", 64)
        < tolerance("float16", 64)
        < tolerance("bfloat16", 64)
    )


def test_reduction_length_counts_the_terms():
    assert reduction_length(ts.workload("matmul", m=3, n=4, k=37).func) == 37
    conv = ts.workload("conv2d", n=1, h=8, w=8, ci=6, co=4, kh=3, kw=2, stride=1, padding=1)
    assert reduction_length(conv.func) == 6 * 3 * 2
    assert reduction_length(ts.workload("relu", m=3, n=4).func) == 1


def test_inputs_suit_their_dtype():
    args = [ArgSpec(d, (5000,), d) for d in ("float32", "bfloat16", "int8", "uint8", "int32", "bool")]
    drawn = inputs_for(args, seed=1)
    assert [str(a.dtype) for a in drawn] == [a.dtype for a in args]
    assert drawn[0].min() < -0.9 and drawn[0].max() > 0.9
    assert (drawn[2].min(), drawn[2].max(), drawn[3].min(), drawn[3].max()) == (-8, 8, 0, 8)
    full = inputs_for(args, seed=1, output_dtype="int32")
    assert (full[2].min(), full[2].max(), full[3].max()) == (-128, 127, 255)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, inputs_for(args, seed=1), strict=True))
    assert not np.array_equal(drawn[0], inputs_for(args, seed=2)[0])


def test_outputs_are_filled_with_what_no_kernel_computes():
    output = np.zeros(3, np.float32)
    fill_untouched(output, 0)
    assert np.isnan(output).all()
    fill_untouched(output, 1)
    assert not np.isnan(output).any() and (output != 0).all()


def test_unscheduled_function_stands_in_for_a_missing_reference(small):
    import dataclasses

    inputs = inputs_for(small.inputs, 0)
    own = expected_output(dataclasses.replace(small, reference=None), inputs)
    assert compare(own, expected_output(small, inputs), tolerance("float32", 64)).ok


def test_verify_gives_a_row_a_schedule(small, faulty):
    rows = ts.verify([small, ts.workload("relu", m=5, n=7)])
    assert [(r["operator"], r["schedule"]) for r in rows] == [
        ("matmul", "matmul"),
        ("matmul", "general"),
        ("matmul", "unscheduled"),
        ("relu", "general"),
        ("relu", "unscheduled"),
    ]
    assert all(r["ok"] and r["max_error"] <= r["tolerance"] and r["message"] == "" for r in rows)
    assert set(rows[0]) == {
        "operator",
        "shape",
        "dtype",
        "target",
        "schedule",
        "ok",
        "max_error",
        "tolerance",
        "message",
    }


@pytest.mark.parametrize(
    ("fault", "message"), [(2, "crashed: SIGABRT"), (6, "wrong_result: 2048 of 4096"), (8, "schedule_error")]
)
def test_verify_makes_a_row_of_every_fault(small, faulty_default, fault, message):
    (row,) = ts.verify(small, [faulty_default(fault)])
    assert not row["ok"] and row["message"].startswith(message)


def test_verify_names_unknown_schedules(small):
    with pytest.raises(ts.InputError, match="unknown schedule 'matmull'; did you mean matmul"):
        ts.verify(small, ["matmull"])
