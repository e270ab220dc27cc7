"""The references of what mostly moves data against loops and formulas of their own."""

import math
from itertools import product

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.elementwise import ELEMENTWISE

RNG = np.random.default_rng(5)


def whole(*shape):
    """Small whole numbers: few enough to be told apart, and exact in every type."""
    return RNG.integers(-60, 61, shape).astype("float32")


def distinct(*shape):
    """Numbers that occur once."""
    return RNG.permutation(int(np.prod(shape))).reshape(shape).astype("float32")


def to_nhwc(array, layout):
    return array if layout == "NHWC" else array.transpose(0, 2, 3, 1)


POOLS = [
    {"n": 2, "h": 7, "w": 6, "c": 3, "kernel": 3, "stride": 2, "padding": 1},
    {"n": 1, "h": 5, "w": 8, "c": 2, "kernel": 2, "stride": 3, "padding": 0},
    {"n": 1, "h": 2, "w": 3, "c": 2, "kernel": 4, "stride": 1, "padding": 3},
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", POOLS, ids=str)
@pytest.mark.parametrize(("name", "reduce"), [("max_pool2d", np.max), ("avg_pool2d", np.mean)])
def test_pooling_reduces_the_elements_that_a_window_has(name, reduce, shape, layout):
    workload = ts.workload(name, **shape, layout=layout)
    x = whole(*workload.inputs[0].shape)
    got, x = to_nhwc(workload.reference(x), layout), to_nhwc(x, layout)
    k, s, r = shape["kernel"], shape["stride"], shape["padding"]
    rows, columns = (len(range(-r, shape[size] + r - k + 1, s)) for size in "hw")
    assert got.shape == (shape["n"], rows, columns, shape["c"])
    assert to_nhwc(np.empty(workload.output.shape), layout).shape == got.shape
    for n, p, q, c in np.ndindex(*got.shape):
        top, left = p * s - r, q * s - r
        window = x[n, max(top, 0) : top + k, max(left, 0) : left + k, c]
        assert got[n, p, q, c] == np.float32(reduce(window.astype("float64")))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_global_avg_pool2d(layout):
    workload = ts.workload("global_avg_pool2d", n=2, h=3, w=5, c=4, layout=layout)
    x = whole(*workload.inputs[0].shape)
    got, x = workload.reference(x), to_nhwc(x, layout)
    pixels = list(product(range(3), range(5)))
    want = [[sum(x[n, i, j, c] for i, j in pixels) / 15 for c in range(4)] for n in (0, 1)]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kernel": 2, "padding": 2}, "padding must be less than kernel: padding=2, kernel=2"),
        ({"kernel": 7, "padding": 1}, r"kernel must be at most h \+ 2 \* padding: kernel=7, h=4, padding=1"),
    ],
)
def test_a_window_that_sees_nothing_is_refused(more, message):
    with pytest.raises(ts.InputError, match=message):
        ts.workload("max_pool2d", n=1, h=4, w=9, c=1, **more)


@pytest.mark.parametrize("order", ["abdc", "acbd", "dcba", "cdab", "bcda", "abcd"])
def test_transpose(order):
    extents = {"a": 2, "b": 3, "c": 4, "d": 5}
    workload = ts.workload("transpose", **extents, order=order)
    x = distinct(2, 3, 4, 5)
    got = workload.reference(x)
    assert got.shape == workload.output.shape == tuple(extents[axis] for axis in order)
    assert got.flags.c_contiguous
    for position in np.ndindex(*got.shape):
        at = dict(zip(order, position, strict=True))
        assert got[position] == x[at["a"], at["b"], at["c"], at["d"]]


def test_transposition_moves_blocks_of_channels_as_its_text_says():
    x = distinct(2, 3, 5, 8)  # n, h, w, channels: two blocks of four
    blocked = x.reshape(2, 15, 2, 4).transpose(0, 2, 1, 3)
    last = ts.workload("transpose", a=2, b=15, c=2, d=4, order="acbd")
    np.testing.assert_array_equal(last.reference(x.reshape(2, 15, 2, 4)), blocked)
    first = ts.workload("transpose", a=2, b=2, c=4, d=15, order="abdc")
    channels_first = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(2, 2, 4, 15)
    np.testing.assert_array_equal(first.reference(channels_first), blocked)


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def clip6(v):
    return min(max(v, 0), 6)


# One element at a time, by the standard library.
FORMULAS = {
    "exp": math.exp,
    "tanh": lambda v: (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1),
    "sigmoid": sigmoid,
    "silu": lambda v: v * sigmoid(v),
    "gelu_tanh": lambda v: v * sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)),
    "bias_gelu": lambda v, b: (v + b) * math.erfc(-(v + b) / math.sqrt(2)) / 2,
    "swiglu": lambda a, b: a * sigmoid(a) * b,
    "hard_swish": lambda v: v * clip6(v + 3) / 6,
    "scale_shift_clip": lambda v, s, t: clip6(v * s + t),
}


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_references_and_kernels_follow_the_formulas(op, run, assert_close):
    workload = op.workload({"m": 9, "n": 5})
    inputs = [RNG.uniform(-8, 8, a.shape).astype("float32") for a in workload.inputs]
    got = workload.reference(*inputs)
    for i, j in np.ndindex(9, 5):
        want = FORMULAS[op.name](*(float(x[i, j] if x.ndim == 2 else x[j]) for x in inputs))
        assert got[i, j] == pytest.approx(want, rel=1e-6, abs=1e-12)
    assert_close(workload, run(workload, inputs), got)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_rounded_once_after_the_whole_chain(dtype, run):
    workload = ts.workload("gelu_tanh", dtype=dtype, m=3, n=400)
    x = RNG.uniform(-3, 3, (3, 400)).astype(dtype)
    got, want = run(workload, [x]), workload.reference(x)
    # Where float32 is near the middle of two numbers it may go either way.
    assert np.mean(got != want) < 0.02


@pytest.mark.parametrize("axis", "abcd")
def test_concat(axis):
    workload = ts.workload("concat", a=2, b=3, c=4, d=5, more=3, axis=axis)
    x, z = (distinct(*a.shape) for a in workload.inputs)
    got, along = workload.reference(x, -z), "abcd".index(axis)
    assert got.shape == workload.output.shape
    for position in np.ndindex(*got.shape):
        beyond = position[along] - x.shape[along]
        there = (*position[:along], beyond, *position[along + 1 :])
        assert got[position] == (x[position] if beyond < 0 else -z[there])


def test_pad():
    workload = ts.workload("pad", n=2, h=3, w=4, c=5, before=1, after=2, value=-9)
    x = distinct(*workload.inputs[0].shape)
    got = workload.reference(x)
    assert got.shape == workload.output.shape == (2, 6, 7, 5)
    for n, p, q, c in np.ndindex(*got.shape):
        inside = 1 <= p < 4 and 1 <= q < 5
        assert got[n, p, q, c] == (x[n, p - 1, q - 1, c] if inside else -9)


def test_padding_with_what_int8_does_not_have_is_refused():
    shape = {"n": 1, "h": 1, "w": 1, "c": 1, "before": 1}
    assert ts.workload("pad", dtype="int8", **shape, value=127).reference(np.int8([[[[5]]]])).max() == 127
    with pytest.raises(ts.InputError, match="value must be at most 127 in int8: value=128"):
        ts.workload("pad", dtype="int8", **shape, value=128)
    with pytest.raises(ts.InputError, match="value must be an integer of at least -128"):
        ts.workload("pad", **shape, value=-129)


@pytest.mark.parametrize("index", ["int64", "int32"])
def test_gather(index, draw):
    workload = ts.workload("gather", v=7, d=3, m=40, index=index)
    table, positions = draw(workload)
    assert positions.dtype == index and set(positions) == set(range(7))
    got = workload.reference(table, positions)
    assert [list(row) for row in got] == [list(table[position]) for position in positions]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_resize2d(scale, mode, layout):
    workload = ts.workload("resize2d", n=2, h=3, w=4, c=2, scale=scale, mode=mode, layout=layout)
    x = whole(*workload.inputs[0].shape)
    got, x = workload.reference(x), to_nhwc(x, layout)
    assert got.shape == workload.output.shape
    got = to_nhwc(got, layout)

    def seen(place, size):
        """Two neighbours and their parts, by the distance between the centres of pixels."""
        if mode == "nearest":
            return [(place // scale, 1.0)]
        centre = (place + 0.5) / scale - 0.5
        near = [math.floor(centre), math.floor(centre) + 1]
        return [(min(max(i, 0), size - 1), 1 - abs(centre - i)) for i in near]

    for n, p, q, c in np.ndindex(*got.shape):
        want = sum(x[n, i, j, c] * f * g for i, f in seen(p, 3) for j, g in seen(q, 4))
        assert got[n, p, q, c] == pytest.approx(want, abs=1e-5)
