"""The references against loops written straight from the formulas, and the convolution against its own."""

from itertools import product

import numpy as np
import pytest
import tunesmith as ts
import tvm
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tunesmith.kernels import OPERATORS
from tunesmith.machine.errors import InputError

RNG = np.random.default_rng(3)


def whole(*shape):
    """Small whole numbers: every sum of products is exact, in any order."""
    return RNG.integers(-4, 5, shape).astype("float32")


def test_matmul():
    A, B = whole(3, 5), whole(5, 4)
    want = [[sum(A[i, k] * B[k, j] for k in range(5)) for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(ts.workload("matmul", m=3, n=4, k=5).reference(A, B), want)


def test_linear_relu():
    x, weight, bias = whole(3, 5), whole(4, 5), whole(4)
    want = [
        [max(0, bias[j] + sum(x[i, k] * weight[j, k] for k in range(5))) for j in range(4)] for i in range(3)
    ]
    np.testing.assert_array_equal(ts.workload("linear_relu", m=3, n=4, k=5).reference(x, weight, bias), want)


def test_relu_and_add():
    A, B = whole(3, 5), whole(3, 5)
    positive = [[max(0, v) for v in row] for row in A]
    np.testing.assert_array_equal(ts.workload("relu", m=3, n=5).reference(A), positive)
    sums = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(A, B, strict=True)]
    np.testing.assert_array_equal(ts.workload("add", m=3, n=5).reference(A, B), sums)


def test_a_reference_rounds_once():
    # 2048 + 1 + 1 is 2050 when rounded once, 2048 when every sum is rounded to float16.
    A, B = np.ones((1, 3), "float16"), np.array([[2048], [1], [1]], "float16")
    got = ts.workload("matmul", dtype="float16", m=1, n=1, k=3).reference(A, B)
    assert got.dtype == np.float16
    assert got.item() == 2050


def test_int8_sums_are_exact_and_sums_that_do_not_fit_wrap():
    A = np.full((1, 100_000), -128, "int8")
    w = ts.workload("matmul", dtype="int8", m=1, n=1, k=100_000)
    assert w.reference(A, A.T).item() == 128 * 128 * 100_000
    A = np.full((1, 140_000), -128, "int8")
    w = ts.workload("matmul", dtype="int8", m=1, n=1, k=140_000)
    assert w.reference(A, A.T).item() == 128 * 128 * 140_000 - 2**32
    w = ts.workload("add", dtype="int8", m=1, n=1)
    assert w.reference(np.int8([[127]]), np.int8([[1]])).item() == -128


@st.composite
def convolutions(draw):
    """Shapes of a convolution that leave an output."""
    few, groups = st.integers(1, 3), draw(st.integers(1, 3))
    shape = {name: draw(few) for name in ("kh", "kw", "stride")}
    shape |= {"n": draw(st.integers(1, 2)), "h": draw(st.integers(1, 7)), "w": draw(st.integers(1, 7))}
    shape |= {"ci": groups * draw(few), "co": groups * draw(few), "groups": groups}
    shape |= {"padding": draw(st.integers(0, 2)), "dilation": draw(st.integers(1, 2))}
    shape |= {"layout": draw(st.sampled_from(["NHWC", "NCHW"]))}
    shape |= {"bias": draw(st.integers(0, 1)), "relu": draw(st.integers(0, 1))}
    for kernel, size in (("kh", "h"), ("kw", "w")):
        assume(shape["dilation"] * (shape[kernel] - 1) < shape[size] + 2 * shape["padding"])
    return shape


def looped(data, weight, bias, s):
    """Convolve by the definition, one output at a time; NCHW in, NCHW out."""
    n, _, h, w = data.shape
    co, window, kh, kw = weight.shape
    step, pad, gap = s["stride"], s["padding"], s["dilation"]
    p = len(range(0, h + 2 * pad - gap * (kh - 1), step))
    q = len(range(0, w + 2 * pad - gap * (kw - 1), step))
    y = np.zeros((n, co, p, q))
    for b, o, i, j, c, u, v in product(*map(range, (n, co, p, q, window, kh, kw))):
        row, col = i * step + u * gap - pad, j * step + v * gap - pad
        if 0 <= row < h and 0 <= col < w:
            group = o // (co // s["groups"])
            y[b, o, i, j] += data[b, group * window + c, row, col] * weight[o, c, u, v]
    if bias is not None:
        y += bias[:, None, None]
    return np.maximum(y, 0) if s["relu"] else y


# Every dimension differs from every other it could be mistaken for, in both layouts.
TELLING = {
    "n": 2,
    "h": 7,
    "w": 6,
    "ci": 4,
    "co": 6,
    "kh": 3,
    "kw": 2,
    "stride": 2,
    "padding": 1,
    "dilation": 2,
}
TELLING |= {"groups": 2, "bias": 1, "relu": 1}


@settings(max_examples=40, deadline=None)
@given(shape=convolutions())
@example(shape={**TELLING, "layout": "NHWC"})
@example(shape={**TELLING, "layout": "NCHW"})
@example(shape={**TELLING, "layout": "NHWC", "groups": 1, "relu": 0})
@example(shape={**TELLING, "layout": "NCHW", "groups": 1, "relu": 0})
def test_conv2d(shape, run):
    workload = ts.workload("conv2d", **shape)
    inputs = [whole(*a.shape) for a in workload.inputs]
    data, weight, *rest = inputs
    if shape["layout"] == "NHWC":
        data, weight = data.transpose(0, 3, 1, 2), weight.transpose(3, 2, 0, 1)
    want = looped(data, weight, rest[0] if rest else None, shape)
    if shape["layout"] == "NHWC":
        want = want.transpose(0, 2, 3, 1)
    assert workload.output.shape == want.shape
    np.testing.assert_array_equal(workload.reference(*inputs), want)
    np.testing.assert_array_equal(run(workload, inputs), want)


def in_blocks_of(block, image):
    """Put every channel of (n, c, h, w) where it belongs in (n, c / block, h, w, block)."""
    n, c, h, w = image.shape
    blocks = np.empty((n, c // block, h, w, block), image.dtype)
    for channel in range(c):
        blocks[:, channel // block, :, :, channel % block] = image[:, channel]
    return blocks


@pytest.mark.parametrize(("layout", "block"), [("NCHW8c", 8), ("NCHW16c", 16)])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kh": 1, "kw": 1},
        {"padding": 1, "bias": 1, "relu": 1},
        {"stride": 2, "padding": 2, "dilation": 2, "residual": 1},
        {"n": 2, "bias": 1, "residual": 1, "relu": 1},
    ],
)
def test_a_convolution_in_blocks_is_that_of_channels_first_in_another_order(layout, block, more, run):
    shape = {"n": 1, "h": 7, "w": 6, "ci": 2 * block, "co": 3 * block, "kh": 3, "kw": 2, **more}
    first, blocked = (ts.workload("conv2d", **shape, layout=each) for each in ("NCHW", layout))
    data, weight, *added = (whole(*a.shape) for a in first.inputs)
    taps = np.empty(blocked.inputs[1].shape, weight.dtype)
    for o, c in np.ndindex(3 * block, 2 * block):
        taps[o // block, c // block, :, :, c % block, o % block] = weight[o, c]
    inputs = [in_blocks_of(block, data), taps, *(in_blocks_of(block, a) if a.ndim > 1 else a for a in added)]
    want = in_blocks_of(block, first.reference(data, weight, *added))
    np.testing.assert_array_equal(blocked.reference(*inputs), want)
    np.testing.assert_array_equal(run(blocked, inputs), want)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ci": 12}, "ci and co must be whole blocks of 8 in NCHW8c: ci=12, co=16"),
        ({"co": 20}, "ci and co must be whole blocks of 8 in NCHW8c: ci=16, co=20"),
        ({"groups": 2}, "NCHW8c knows no groups: groups=2; take NHWC or NCHW"),
    ],
)
def test_what_blocks_do_not_hold_is_refused(more, message):
    shape = {"n": 1, "h": 4, "w": 4, "ci": 16, "co": 16, "kh": 1, "kw": 1, "layout": "NCHW8c"}
    with pytest.raises(InputError, match=message):
        ts.workload("conv2d", **{**shape, **more})


@pytest.mark.parametrize("dtype", OPERATORS["conv2d"].dtypes)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NCHW8c"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv2d_in_every_dtype(dtype, layout, groups, draw, run, assert_close):
    size = {"n": 1, "h": 6, "w": 5, "ci": 8, "co": 8, "kh": 3, "kw": 2, "padding": 1}
    groups = 1 if layout == "NCHW8c" else groups
    workload = ts.workload("conv2d", dtype=dtype, **size, groups=groups, layout=layout, bias=1, relu=1)
    inputs = draw(workload)
    assert_close(workload, run(workload, inputs), workload.reference(*inputs))


@pytest.mark.parametrize(
    ("more", "blocks"),
    [
        ({}, ["conv2d"]),
        ({"padding": 1}, ["pad", "conv2d"]),
        ({"padding": 1, "bias": 1, "relu": 1}, ["pad", "conv2d", "bias_add", "relu"]),
        ({"relu": True}, ["conv2d", "relu"]),
    ],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_conv2d_has_only_the_blocks_asked_for(more, blocks, layout):
    func = ts.workload("conv2d", n=1, h=4, w=4, ci=2, co=2, kh=3, kw=3, layout=layout, **more).func
    sch = tvm.s_tir.Schedule(func)
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))] == blocks
    assert "//" not in func.script()


def test_conv2d_costs():
    resnet = ts.workload("conv2d", n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=1)
    assert resnet.flops == 2 * 56 * 56 * 64 * 64 * 9
    assert resnet.bytes_moved == 4 * (2 * 56 * 56 * 64 + 9 * 64 * 64)
    depthwise = ts.workload(
        "conv2d", n=1, h=14, w=14, ci=384, co=384, kh=3, kw=3, padding=1, groups=384, relu=1
    )
    assert depthwise.flops == 14 * 14 * 384 * (2 * 9 + 1)
    assert depthwise.inputs[1].shape == (3, 3, 1, 384)
