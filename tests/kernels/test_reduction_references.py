"""Sums, means, maxima and their positions: references against plain loops over every set of axes."""

import math

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels import OPERATORS
from tunesmith.tuning.measuring.verification import inputs_of

RNG = np.random.default_rng(5)


def looped_reduction(x, axes, of_values):
    """Reduce by the definition, one output at a time."""
    kept = [i for i, axis in enumerate("abcd") if axis not in axes]
    groups = {}
    for at in np.ndindex(*x.shape):
        groups.setdefault(tuple(at[i] for i in kept), []).append(x[at])
    y = np.empty([x.shape[i] for i in kept] or [1])
    for at, values in groups.items():
        y[at or 0] = of_values(values)
    return y


FORMULAS = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "max": max,
    "argmax": lambda values: values.index(max(values)),
}
REDUCTIONS = [
    (name, axes)
    for name in FORMULAS
    for dim in OPERATORS[name].dims
    if dim.name == "axes"
    for axes in dim.choices
]


@pytest.mark.parametrize(("name", "axes"), REDUCTIONS)
def test_reductions_over_any_axes(name, axes, run):
    extents = {"a": 2, "b": 3, "c": 4, "d": 5}
    # Few different whole numbers: sums are exact, and the largest stands in several places.
    x = RNG.integers(-3, 4, tuple(extents.values())).astype("float32")
    workload = ts.workload(name, **extents, axes=axes)
    want = looped_reduction(x, axes, FORMULAS[name])
    got = workload.reference(x)
    assert got.shape == workload.output.shape == want.shape and str(got.dtype) == workload.output.dtype
    np.testing.assert_allclose(got, want, rtol=1e-7)
    np.testing.assert_allclose(run(workload, [x]), want, rtol=1e-6)


def test_every_set_of_axes_can_be_reduced():
    assert len({axes for name, axes in REDUCTIONS if name == "sum"}) == 2**4 - 1
    assert [axes for name, axes in REDUCTIONS if name == "argmax"] == list("abcd")
    with pytest.raises(ts.InputError, match="axes must be one of a, b, c, d: axes='cd'"):
        ts.workload("argmax", d=3, axes="cd")


def test_leading_extents_may_be_left_out():
    assert ts.workload("sum", d=7).inputs[0].shape == (1, 1, 1, 7)
    assert ts.workload("sum", c=5, d=7, axes="c").output.shape == (1, 1, 7)
    assert ts.workload("argmax", d=7).output.dtype == "int64"


@pytest.mark.parametrize("dtype", OPERATORS["argmax"].dtypes)
@pytest.mark.parametrize(
    ("values", "position"),
    [
        ([1e4, -1e4, 1e4], 0),
        ([-1e4, -1e4, -5], 2),
        ([0, 0, 0], 0),
        ([-np.inf, -np.inf, -np.inf], 0),
        ([-np.inf, -1, np.inf], 2),
    ],
)
def test_argmax_is_the_first_of_the_largest(values, position, dtype, run):
    workload = ts.workload("argmax", dtype=dtype, d=len(values))
    x = np.array(values).astype(dtype).reshape(1, 1, 1, -1)
    assert workload.reference(x).item() == position
    assert run(workload, [x]).item() == position


def test_a_mean_of_narrow_values_is_summed_in_float32():
    def sums(dtype):
        sch = tvm.s_tir.Schedule(ts.workload("mean", dtype=dtype, d=9).func)
        found = [sch.get(b) for b in sch.get_child_blocks(sch.get_sblock("root"))]
        return [(b.name_hint, str(b.writes[0].source.dtype)) for b in found]

    assert sums("float32") == [("sum", "float32"), ("mean", "float32")]
    assert sums("float16") == [*sums("float32"), ("cast", "float16")]


def test_a_reduction_reads_each_element_once():
    workload = ts.workload("mean", b=2, c=3, d=5, axes="bd")
    assert workload.flops == 30 + 3
    assert workload.bytes_moved == 4 * (30 + 3)
    assert ts.workload("argmax", c=3, d=5).bytes_moved == 4 * 15 + 8 * 3


@pytest.mark.parametrize("name", ["max", "argmax"])
def test_int8_and_narrow_maxima_are_exact(name, run):
    dtype = "int8" if name == "max" else "float16"
    x = RNG.integers(-128, 128, (1, 1, 7, 33)).astype(dtype)
    workload = ts.workload(name, dtype=dtype, c=7, d=33)
    np.testing.assert_array_equal(run(workload, [x]), getattr(x, name)(axis=3))


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_terms_are_drawn_that_do_not_cancel(name):
    (x,) = inputs_of(ts.workload(name, d=1000), 0)
    assert 0 <= x.min() < 0.05 and 0.95 < x.max() < 1
