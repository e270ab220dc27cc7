"""The contract of every schedule: on every operator, size and dtype it computes what the reference does."""

import pytest
import tunesmith as ts
from hypothesis import assume, given
from hypothesis import strategies as st
from tunesmith.kernels import OPERATORS
from tunesmith.machine.facts import facts
from tunesmith.machine.target import host_target
from tunesmith.schedules import rules_for

LANES = facts(host_target()).lanes("float32")
# The tile of a large nest: what it is on this machine.
TILE = (
    ts.schedule_rules()["matmul"]
    .space(ts.workload("matmul", m=512, n=512, k=512).func, host_target())
    .default
)
MR, NR = TILE["mr"], TILE["nr"]

# Rows, columns and the length of the sum, around the tile.
SIZES = {
    "one": (1, 1, 1),
    "below": (MR - 1, NR - 1, LANES - 1),
    "tile": (MR, NR, LANES),
    "above": (MR + 1, NR + 1, LANES + 1),
    "prime": (31, 37, 41),
    "long": (3, 5, 131),
    "larger": (8 * MR, 6 * NR, 2 * LANES),
}


def workload_of(op, size, dtype):
    m, n, k = SIZES[size]
    if op.name == "conv2d":
        image = {"n": 1 + (size == "above"), "h": 3, "w": m, "padding": 1, "bias": 1, "relu": 1}
        return op.workload({**image, "ci": min(k, 19), "co": n, "kh": 3, "kw": 3}, dtype)
    return op.workload({d.name: {"m": m, "n": n, "k": k}[d.name] for d in op.dims}, dtype)


CASES = [
    pytest.param(op, size, dtype, id=f"{op.name}-{size}-{dtype}")
    for op in OPERATORS.values()
    for size in SIZES
    for dtype in op.dtypes
    if dtype == "float32" or size == "above"
]


@pytest.mark.parametrize(("op", "size", "dtype"), CASES)
def test_every_applicable_rule_computes_the_reference(op, size, dtype, target, assert_right):
    workload = workload_of(op, size, dtype)
    rules = rules_for(workload.func, target)
    assert rules[-1].name == "general"
    for rule in rules:
        assert_right(workload, rule.scheduled(workload.func, target))


def test_matmul_linear_relu_and_conv2d_have_rules_of_their_own(target):
    def best(op):
        return rules_for(workload_of(OPERATORS[op], "larger", "float32").func, target)[0].name

    assert {op: best(op) for op in OPERATORS} == {
        "matmul": "matmul",
        "linear_relu": "matmul",
        "conv2d": "conv2d",
        "relu": "general",
        "add": "general",
    }


def extents(most):
    return st.integers(1, most) | st.sampled_from([x for x in (MR, NR, NR + 1, 2 * NR) if x <= most])


@st.composite
def convolutions(draw):
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    shape = {
        "n": draw(st.integers(1, 3)),
        "h": draw(st.integers(1, 16)),
        "w": draw(extents(40)),
        "ci": groups * draw(st.integers(1, 17)),
        "co": groups * draw(extents(2 * NR)),
        "kh": draw(st.integers(1, 4)),
        "kw": draw(st.integers(1, 4)),
        "stride": draw(st.integers(1, 3)),
        "padding": draw(st.integers(0, 3)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "layout": draw(st.sampled_from(("NHWC", "NCHW"))),
        "bias": draw(st.integers(0, 1)),
        "relu": draw(st.integers(0, 1)),
    }
    for kernel, size in (("kh", "h"), ("kw", "w")):
        assume(shape["dilation"] * (shape[kernel] - 1) < shape[size] + 2 * shape["padding"])
    return ts.workload("conv2d", dtype=draw(st.sampled_from(OPERATORS["conv2d"].dtypes)), **shape)


@st.composite
def products(draw, name):
    shape = {dim: draw(extents(140)) for dim in "mnk"}
    return ts.workload(name, dtype=draw(st.sampled_from(OPERATORS[name].dtypes)), **shape)


def assert_points_are_right(data, workload, target, assert_right):
    """Check a rule's default and a point drawn from its space."""
    rule = data.draw(st.sampled_from(rules_for(workload.func, target)), label="rule")
    space = rule.space(workload.func, target)
    for knobs in (space.default, data.draw(st.sampled_from(space.points), label="knobs")):
        assert space.allows(knobs)
        assert_right(workload, rule.scheduled(workload.func, target, knobs))


@given(st.data())
def test_any_matmul_is_right_at_any_point(target, assert_right, data):
    assert_points_are_right(data, data.draw(products("matmul")), target, assert_right)


@given(st.data())
def test_any_linear_relu_is_right_at_any_point(target, assert_right, data):
    assert_points_are_right(data, data.draw(products("linear_relu")), target, assert_right)


@given(st.data())
def test_any_conv2d_is_right_at_any_point(target, assert_right, data):
    assert_points_are_right(data, data.draw(convolutions()), target, assert_right)
