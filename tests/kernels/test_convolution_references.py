"""The references of one-dimensional and of transposed convolutions against loops from the formulas."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import tunesmith as ts
import tvm

RNG = np.random.default_rng(11)


def whole(workload):
    """Small whole numbers: every sum of products is exact, in any order."""
    return [RNG.integers(-4, 5, a.shape).astype("float32") for a in workload.inputs]


def ended(y, bias, shape):
    """Add the bias and cut off below zero where asked for."""
    y = y + bias[0] if bias else y
    return np.maximum(y, 0) if shape.get("relu") else y


LINES = [
    {"n": 2, "l": 9, "ci": 3, "co": 4, "kernel": 3},
    {"n": 1, "l": 11, "ci": 2, "co": 5, "kernel": 4, "stride": 3, "padding": 2, "bias": 1},
    {"n": 2, "l": 8, "ci": 2, "co": 3, "kernel": 3, "stride": 2, "padding": 1, "dilation": 3, "relu": 1},
    {"n": 1, "l": 5, "ci": 3, "co": 2, "kernel": 2, "padding": 3, "bias": 1, "relu": 1},
]


@pytest.mark.parametrize("shape", LINES, ids=str)
def test_conv1d(shape, run):
    workload = ts.workload("conv1d", **shape)
    data, weight, *bias = inputs = whole(workload)
    stride, padding, dilation = (shape.get(k, d) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    span = dilation * (shape["kernel"] - 1) + 1
    starts = range(-padding, shape["l"] + padding - span + 1, stride)
    want = np.zeros((shape["n"], len(starts), shape["co"]))
    for n, p, o, i, c in product(*map(range, (*want.shape, shape["kernel"], shape["ci"]))):
        place = starts[p] + i * dilation
        if 0 <= place < shape["l"]:
            want[n, p, o] += data[n, place, c] * weight[i, c, o]
    want = ended(want, bias, shape)
    assert workload.output.shape == want.shape
    np.testing.assert_array_equal(workload.reference(*inputs), want)
    np.testing.assert_array_equal(run(workload, inputs), want)
    outputs = shape["n"] * len(starts) * shape["co"]
    assert workload.flops == outputs * (2 * weight[..., 0].size + len(bias) + shape.get("relu", 0))


IMAGES = [
    {"n": 2, "h": 3, "w": 4, "ci": 2, "co": 3, "kh": 3, "kw": 2},
    {"n": 1, "h": 3, "w": 4, "ci": 2, "co": 3, "kh": 4, "kw": 4, "stride": 2, "padding": 1, "bias": 1},
    {"n": 1, "h": 4, "w": 3, "ci": 3, "co": 2, "kh": 3, "kw": 5, "stride": 2, "padding": 1, "relu": 1},
    {"n": 2, "h": 3, "w": 2, "ci": 1, "co": 2, "kh": 1, "kw": 2, "stride": 3, "bias": 1, "relu": 1},
    {"n": 1, "h": 5, "w": 6, "ci": 2, "co": 2, "kh": 2, "kw": 3, "padding": 2},
    {"n": 1, "h": 5, "w": 6, "ci": 2, "co": 2, "kh": 5, "kw": 7, "stride": 3, "padding": 4},
    {"n": 1, "h": 6, "w": 5, "ci": 2, "co": 2, "kh": 1, "kw": 1, "stride": 2, "padding": 3},
    {"n": 2, "h": 3, "w": 2, "ci": 4, "co": 6, "kh": 3, "kw": 2, "stride": 2, "groups": 2, "bias": 1},
    {"n": 1, "h": 3, "w": 4, "ci": 3, "co": 3, "kh": 3, "kw": 4, "stride": 2, "padding": 1, "groups": 3},
    {"n": 1, "h": 3, "w": 4, "ci": 3, "co": 3, "kh": 2, "kw": 2, "stride": 3, "output_padding": 2},
    {
        "n": 1,
        "h": 3,
        "w": 2,
        "ci": 2,
        "co": 4,
        "kh": 3,
        "kw": 3,
        "stride": 2,
        "output_padding": 1,
        "groups": 2,
    },
]


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_conv2d_transpose(shape, run):
    workload = ts.workload("conv2d_transpose", **shape)
    data, weight, *bias = inputs = whole(workload)
    stride, padding = shape.get("stride", 1), shape.get("padding", 0)
    groups, more = shape.get("groups", 1), shape.get("output_padding", 0) - 2 * padding
    p, q = ((shape[s] - 1) * stride + more + shape[k] for s, k in (("h", "kh"), ("w", "kw")))
    want = np.zeros((shape["n"], p, q, shape["co"]))
    for n, u, v, i, j in product(*map(range, (*data.shape[:3], *weight.shape[:2]))):
        row, column = u * stride + i - padding, v * stride + j - padding
        if 0 <= row < p and 0 <= column < q:
            parts = zip(np.split(data[n, u, v], groups), np.split(weight[i, j], groups), strict=True)
            want[n, row, column] += np.concatenate([pixel @ taps for pixel, taps in parts])
    want = ended(want, bias, shape)
    assert workload.output.shape == want.shape
    np.testing.assert_array_equal(workload.reference(*inputs), want)
    np.testing.assert_array_equal(run(workload, inputs), want)
    sch = tvm.s_tir.Schedule(workload.func)
    sch.fuse(*sch.get_loops(sch.get_sblock("conv2d_transpose"))[:4])
    fused = dataclasses.replace(workload, func=sch.mod["main"])
    np.testing.assert_array_equal(run(fused, inputs), want)
    products = data.size * weight[:, :, 0].size  # groups are in both: a pixel meets those of its own
    assert workload.flops == 2 * products + want.size * (len(bias) + shape.get("relu", 0))


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "blocks"),
    [
        (2, 2, 0, []),
        (4, 2, 2, []),
        (4, 2, 1, ["pad"]),
        (3, 2, 1, ["pad", "weight_pad"]),
    ],
)
def test_a_transposed_convolution_multiplies_no_inserted_zeros(kernel, stride, padding, blocks):
    shape = {"n": 1, "h": 4, "w": 4, "ci": 2, "co": 2, "kh": kernel, "kw": kernel}
    sch = tvm.s_tir.Schedule(ts.workload("conv2d_transpose", **shape, stride=stride, padding=padding).func)
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))] == [
        *blocks,
        *("weight_by_phase", "phases", "conv2d_transpose"),
    ]
    taps = [int(v.dom.extent) for v in sch.get(sch.get_sblock("phases")).iter_vars[4:]]
    assert sorted(taps) == sorted([-(-kernel // stride)] * 2 + [2])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "conv1d",
            {"l": 4, "kernel": 3, "dilation": 3, "padding": 1},
            r"dilation \* \(kernel - 1\) \+ 1 must be at most l \+ 2 \* padding: "
            "kernel=3, l=4, dilation=3, padding=1",
        ),
        (
            "conv2d_transpose",
            {"h": 5, "w": 2, "kh": 2, "kw": 2, "stride": 2, "padding": 2},
            r"2 \* padding must be less than \(w - 1\) \* stride \+ kw \+ output_padding: "
            "padding=2, w=2, stride=2, kw=2, output_padding=0",
        ),
    ],
)
def test_a_shape_without_output_is_refused(name, shape, message):
    with pytest.raises(ts.InputError, match=message):
        ts.workload(name, n=1, ci=1, co=1, **shape)
