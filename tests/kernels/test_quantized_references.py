"""The quantised references against loops written straight from the formulas, in exact fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.tuning.measuring.verification import inputs_of


def looped_requantisation(total, bias, scale, zero):
    """Python rounds halves to even; the scale is taken in float32, as the definition says."""
    scaled = np.float32(int(total) + int(bias)) * np.float32(scale)
    return min(255, max(0, round(Fraction(float(scaled))) + zero))


def test_quantized_matmul():
    workload = ts.workload("quantized_matmul", m=3, n=4, k=5)
    A, B = inputs_of(workload, 0)
    want = [[sum(int(A[i, k]) * int(B[k, j]) for k in range(5)) for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(workload.reference(A, B), want)


@pytest.mark.parametrize("zero", [0, 7, 255])
def test_quantized_linear(zero):
    workload = ts.workload("quantized_linear", m=6, n=5, k=9, zero=zero)
    x, weight, bias, scale = inputs_of(workload, 0)
    scale = scale * 4
    want = np.empty((6, 5), "uint8")
    for i, j in product(range(6), range(5)):
        total = sum(int(x[i, k]) * int(weight[j, k]) for k in range(9))
        want[i, j] = looped_requantisation(total, bias[j], scale[j], zero)
    np.testing.assert_array_equal(workload.reference(x, weight, bias, scale), want)


def test_quantized_conv2d():
    shape = {"n": 2, "h": 4, "w": 5, "ci": 3, "co": 2, "kh": 2, "kw": 3, "stride": 2, "padding": 1}
    workload = ts.workload("quantized_conv2d", **shape, zero=100, data_zero=90)
    data, weight, bias, scale = inputs_of(workload, 0)
    want = np.empty(workload.output.shape, "uint8")

    def pixel(n, y, x, c):
        return int(data[n, y, x, c]) if 0 <= y < 4 and 0 <= x < 5 else 90

    for n, p, q, o in np.ndindex(want.shape):
        taps = product(range(2), range(3), range(3))
        total = sum(pixel(n, 2 * p + i - 1, 2 * q + j - 1, c) * int(weight[i, j, c, o]) for i, j, c in taps)
        want[n, p, q, o] = looped_requantisation(total, bias[o], scale[o], 100)
    assert want.std() > 15
    np.testing.assert_array_equal(workload.reference(data, weight, bias, scale), want)


def test_halves_are_rounded_to_even_and_ends_are_clipped(run):
    workload = ts.workload("quantized_linear", m=1, n=8, k=1, zero=2)
    bias = np.int32([-5, -3, -1, 1, 3, 5, 1000, -1000])
    inputs = [np.zeros((1, 1), "uint8"), np.zeros((8, 1), "int8"), bias, np.full(8, 0.5, "float32")]
    want = [[0, 0, 2, 2, 4, 4, 255, 0]]
    np.testing.assert_array_equal(workload.reference(*inputs), want)
    np.testing.assert_array_equal(run(workload, inputs), want)


def test_the_zero_point_of_the_data_is_part_of_the_bias():
    """A margin of that zero point and a corrected bias: a convolution of what the bytes stand for."""
    shape = {"n": 1, "h": 4, "w": 4, "ci": 3, "co": 5, "kh": 3, "kw": 3, "padding": 1}
    data, weight, bias, scale = inputs_of(ts.workload("quantized_conv2d", **shape), 0)
    corrected = bias - 50 * weight.sum(axis=(0, 1, 2), dtype="int32")
    got = ts.workload("quantized_conv2d", **shape, data_zero=50).reference(data, weight, corrected, scale)
    real = ts.workload("conv2d", dtype="float64", **shape, bias=1)
    sums = real.reference(data.astype("float64") - 50, weight.astype("float64"), bias.astype("float64"))
    np.testing.assert_array_equal(got, np.clip(np.rint(sums.astype("float32") * scale), 0, 255))


@pytest.mark.parametrize("name", ["quantized_linear", "quantized_conv2d"])
def test_a_zero_point_is_a_byte(name):
    shape = {"m": 1, "n": 1, "k": 1}
    if name == "quantized_conv2d":
        shape = dict.fromkeys(("n", "h", "w", "ci", "co", "kh", "kw"), 1)
    with pytest.raises(ts.InputError, match="zero must be at most 255: zero=256"):
        ts.workload(name, **shape, zero=256)


def test_a_window_fits_the_padded_data():
    shape = {"n": 1, "h": 4, "w": 4, "ci": 1, "co": 1, "kh": 1, "kw": 7, "padding": 1}
    with pytest.raises(ts.InputError, match=r"kw must be at most w \+ 2 \* padding: kw=7, w=4, padding=1"):
        ts.workload("quantized_conv2d", **shape)


def test_test_data_has_all_of_its_range_and_is_neither_all_clipped_nor_all_equal():
    workload = ts.workload("quantized_linear", m=64, n=64, k=256, zero=128)
    x, weight, bias, scale = inputs_of(workload, 0)
    assert (x.min(), x.max(), weight.min(), weight.max()) == (0, 255, -128, 127)
    assert np.abs(bias).max() > 10_000
    y = workload.reference(x, weight, bias, scale)
    assert np.mean((y > 0) & (y < 255)) > 0.3
    assert y.std() > 30


def test_an_operator_of_one_type_needs_no_dtype():
    assert ts.workload("quantized_matmul", m=1, n=1, k=1).dtype == "uint8"
    with pytest.raises(ts.InputError, match="quantized_matmul supports dtype uint8: dtype='float32'"):
        ts.workload("quantized_matmul", dtype="float32", m=1, n=1, k=1)
