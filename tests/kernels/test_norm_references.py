"""Softmax, norms and reductions: references against plain loops, and the values that break naive formulas."""

import math

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels import OPERATORS

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


BLOCKS = {
    "softmax": ["row_max", "exp", "row_sum", "softmax"],
    "log_softmax": ["row_max", "exp", "row_sum", "log_sum", "log_softmax"],
    "layer_norm": ["row_sum", "mean", "square_sum", "inverse", "layer_norm"],
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
