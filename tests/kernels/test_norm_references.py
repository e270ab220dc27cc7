"""Softmax and norms: references against plain loops, and the values that break naive formulas."""

import math

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels import OPERATORS
from tunesmith.tuning.measuring.verification import inputs_of

RNG = np.random.default_rng(5)

# Rows that a formula without the maximum, or without eps, turns into NaN or infinity.
EXTREME_ROWS = {
    "large": [1e4, 1e4 - 1, 1e4 - 2],
    "negative": [-1e4, -1e4 - 3, -1e4],
    "both": [-1e4, 0, 1e4],
    "equal": [0.1, 0.1, 0.1],
    "zeros": [0, 0, 0],
    "one element": [1e4],
}


def drawn(*shape):
    """Values of both signs; no two alike."""
    return RNG.normal(size=shape)


@pytest.fixture(scope="module")
def both(run):
    """Compute by the reference and by the unscheduled function, which must agree."""

    def computed(workload, *inputs):
        arrays = [np.asarray(i).astype(a.dtype) for i, a in zip(inputs, workload.inputs, strict=True)]
        want = workload.reference(*arrays)
        got = run(workload, arrays)
        assert got.dtype == want.dtype and got.shape == want.shape
        assert np.isfinite(want.astype(float)).all()
        unit = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}[workload.output.dtype]
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=4 * unit, atol=4 * unit)
        return want

    return computed


def looped_softmax(row):
    powers = [math.exp(v - row[0]) for v in row]
    return [p / math.fsum(powers) for p in powers]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_logarithm(name):
    x = drawn(3, 5)
    want = np.array([looped_softmax(row) for row in x])
    got = ts.workload(name, dtype="float64", m=3, n=5).reference(x)
    np.testing.assert_allclose(np.exp(got) if name == "log_softmax" else got, want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("row", EXTREME_ROWS.values(), ids=EXTREME_ROWS)
def test_softmax_is_right_at_extreme_values(row, dtype, both):
    x = np.array([row]).astype(dtype)
    below = x[0].astype(float) - float(x.max())
    odds = [math.exp(v) / sum(map(math.exp, below)) for v in below]
    got = both(ts.workload("softmax", dtype=dtype, m=1, n=len(row)), x)
    np.testing.assert_allclose(got[0], odds, rtol=1e-3 if dtype == "float16" else 1e-6)
    log_odds = [v - math.log(sum(map(math.exp, below))) for v in below]
    got = both(ts.workload("log_softmax", dtype=dtype, m=1, n=len(row)), x)
    np.testing.assert_allclose(got[0], log_odds, rtol=1e-3 if dtype == "float16" else 1e-6)


def test_a_masked_position_has_no_weight(run):
    x = np.array([[0.5, -np.inf, 0.5]], "float32")
    for name, want in (("softmax", [[0.5, 0, 0.5]]), ("log_softmax", [[math.log(0.5), -np.inf] * 2])):
        workload = ts.workload(name, m=1, n=3)
        want = np.float32(want)[:, :3]
        np.testing.assert_allclose(workload.reference(x), want, rtol=1e-6)
        np.testing.assert_allclose(run(workload, [x]), want, rtol=1e-6)


def looped_layer_norm(row, gamma, beta):
    mean = math.fsum(row) / len(row)
    variance = math.fsum((v - mean) ** 2 for v in row) / len(row)
    return [(v - mean) / math.sqrt(variance + 1e-5) * g + b for v, g, b in zip(row, gamma, beta, strict=True)]


def looped_rms_norm(row, gamma):
    root = math.sqrt(math.fsum(v * v for v in row) / len(row) + 1e-6)
    return [v / root * g for v, g in zip(row, gamma, strict=True)]


def test_layer_norm():
    x, gamma, beta = drawn(3, 5), drawn(5), drawn(5)
    want = [looped_layer_norm(row, gamma, beta) for row in x]
    got = ts.workload("layer_norm", dtype="float64", m=3, n=5).reference(x, gamma, beta)
    np.testing.assert_allclose(got, want, rtol=1e-13)


def test_rms_norm():
    x, gamma = drawn(3, 5), drawn(5)
    want = [looped_rms_norm(row, gamma) for row in x]
    got = ts.workload("rms_norm", dtype="float64", m=3, n=5).reference(x, gamma)
    np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("row", EXTREME_ROWS.values(), ids=EXTREME_ROWS)
def test_norms_are_right_at_extreme_values(row, dtype, both):
    x = np.array([row]).astype(dtype)
    shape, wide = {"m": 1, "n": len(row)}, x[0].astype(float)
    gamma, beta = np.arange(1.0, len(row) + 1), np.full(len(row), 0.5)
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-6, "atol": 1e-6}
    got = both(ts.workload("layer_norm", dtype=dtype, **shape), x, gamma, beta)
    np.testing.assert_allclose(got[0], looped_layer_norm(wide, gamma, beta), **close)
    got = both(ts.workload("rms_norm", dtype=dtype, **shape), x, gamma)
    np.testing.assert_allclose(got[0], looped_rms_norm(wide, gamma), **close)


def test_equal_values_have_no_deviation(both):
    # The variance by E[x^2] - E[x]^2 would be a rounding error of 1e8.
    x, gamma, beta = np.full((1, 768), 1e4), np.ones(768), np.arange(768.0)
    got = both(ts.workload("layer_norm", m=1, n=768), x, gamma, beta)
    np.testing.assert_array_equal(got[0], beta)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups):
    x, gamma, beta = drawn(2, 6, 3, 4), drawn(6), drawn(6)
    want, size = np.empty_like(x), 6 // groups
    for b, g in np.ndindex(2, groups):
        values = [(c, *at) for c in range(g * size, (g + 1) * size) for at in np.ndindex(3, 4)]
        row = [x[(b, *at)] for at in values]
        scales, shifts = ([p[c] for c, *_ in values] for p in (gamma, beta))
        for at, value in zip(values, looped_layer_norm(row, scales, shifts), strict=True):
            want[(b, *at)] = value
    workload = ts.workload("group_norm", dtype="float64", n=2, c=6, h=3, w=4, groups=groups)
    np.testing.assert_allclose(workload.reference(x, gamma, beta), want, rtol=1e-12)


def test_groups_that_do_not_divide_the_channels_are_refused():
    with pytest.raises(ts.InputError, match="groups must divide c: groups=32, c=48"):
        ts.workload("group_norm", n=1, c=48, h=2, w=2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("row", EXTREME_ROWS.values(), ids=EXTREME_ROWS)
def test_group_norm_is_right_at_extreme_values(row, dtype, both):
    shape = {"n": 1, "c": len(row), "h": 1, "w": 1, "groups": 1}
    x = np.array(row).astype(dtype).reshape(1, -1, 1, 1)
    gamma, beta = np.arange(1.0, len(row) + 1), np.full(len(row), 0.5)
    got = both(ts.workload("group_norm", dtype=dtype, **shape), x, gamma, beta)
    want = looped_layer_norm(x.reshape(-1).astype(float), gamma, beta)
    limit = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(got.reshape(-1), want, rtol=limit, atol=limit)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_batch_norm(layout):
    shape = {"n": 2, "h": 3, "w": 4, "c": 5}
    data = drawn(*(shape[axis.lower()] for axis in layout))
    parameters = [drawn(5), drawn(5), drawn(5), drawn(5) ** 2]
    want = np.empty_like(data)
    for at in np.ndindex(*data.shape):
        gamma, beta, mean, variance = (p[at[layout.index("C")]] for p in parameters)
        want[at] = (data[at] - mean) / math.sqrt(variance + 1e-5) * gamma + beta
    workload = ts.workload("batch_norm", dtype="float64", **shape, layout=layout)
    assert [a.shape for a in workload.inputs] == [data.shape, (5,), (5,), (5,), (5,)]
    np.testing.assert_allclose(workload.reference(data, *parameters), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_is_right_at_extreme_values(dtype, both):
    # The scale and shift of y = x * scale + shift are 3e6 and cancel here.
    data = np.array([1e4, -1e4, 1e4 + 1]).reshape(1, 1, 3, 1)
    workload = ts.workload("batch_norm", dtype=dtype, n=1, h=1, w=3, c=1)
    got = both(workload, data, [1], [0.5], [1e4], [0])
    root = math.sqrt(1e-5)
    np.testing.assert_allclose(got.reshape(-1), [0.5, -2e4 / root + 0.5, 1 / root + 0.5], rtol=1e-6)


def test_a_variance_is_drawn_from_positive_values():
    workload = ts.workload("batch_norm", n=1, h=1, w=1, c=1000)
    *_, variance = inputs_of(workload, 0)
    assert 0.5 <= variance.min() < 0.55 and 1.95 < variance.max() < 2


BLOCKS = {
    "softmax": ["row_max", "exp", "row_sum", "inverse", "softmax"],
    "log_softmax": ["row_max", "exp", "row_sum", "log_sum", "log_softmax"],
    "layer_norm": ["row_sum", "mean", "square_sum", "inverse", "layer_norm"],
    "group_norm": ["group_sum", "mean", "square_sum", "inverse", "group_norm"],
    "batch_norm": ["scale", "batch_norm"],
    "rms_norm": ["square_sum", "inverse", "rms_norm"],
}


@pytest.mark.parametrize(("name", "blocks"), BLOCKS.items(), ids=BLOCKS)
def test_narrow_types_are_computed_in_float32_and_rounded_once(name, blocks):
    def written(dtype):
        op = OPERATORS[name]
        sch = tvm.s_tir.Schedule(op.workload(op.examples[0].shape, dtype).func)
        found = [sch.get(b) for b in sch.get_child_blocks(sch.get_sblock("root"))]
        return [(b.name_hint, str(b.writes[0].source.dtype)) for b in found]

    assert written("float64") == [(block, "float64") for block in blocks]
    assert written("float32") == [(block, "float32") for block in blocks]
    for narrow in ("float16", "bfloat16"):
        assert written(narrow) == [*written("float32"), ("cast", narrow)]


def test_costs():
    for name in ("softmax", "log_softmax"):
        assert ts.workload(name, m=3, n=5).flops == 5 * 15 + 3
        assert ts.workload(name, m=3, n=5).bytes_moved == 4 * 30
    assert ts.workload("layer_norm", m=3, n=5).flops == 8 * 15 + 5 * 3
    assert ts.workload("rms_norm", m=3, n=5).flops == 4 * 15 + 4 * 3
    assert ts.workload("group_norm", n=2, c=6, h=3, w=4, groups=3).flops == 8 * 144 + 5 * 6
    assert ts.workload("batch_norm", n=2, c=6, h=3, w=4).flops == 3 * 144 + 3 * 6
    assert ts.workload("batch_norm", n=2, c=6, h=3, w=4).bytes_moved == 4 * (2 * 144 + 4 * 6)
