"""The contract of every schedule: on every operator, size and dtype it computes what the reference does."""

import pytest
import tunesmith as ts
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tunesmith.kernels import OPERATORS
from tunesmith.kernels.layouts import BLOCKED_LAYOUTS
from tunesmith.machine.facts import facts
from tunesmith.machine.target import host_target
from tunesmith.schedules import apply_default, rules_for


def odd_shapes(op):
    """Return an operator's small examples: those whose source begins with "odd"."""
    odd = [example.shape for example in op.examples if example.source.startswith("odd")]
    assert len(odd) >= 2, f"{op.name} needs two small examples or more whose source begins with odd"
    return {f"odd{i}": shape for i, shape in enumerate(odd)}


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


# Operators whose extents are rows, columns and the length of a sum; the others run their examples called odd.
TILED = ("matmul", "linear_relu", "conv2d", "relu", "add")


def workload_of(op, size, dtype):
    if op.name not in TILED:
        return op.workload(odd_shapes(op)[size], dtype)
    m, n, k = SIZES[size]
    if op.name == "conv2d":
        image = {"n": 1 + (size == "above"), "h": 3, "w": m, "padding": 1, "bias": 1, "relu": 1}
        return op.workload({**image, "ci": min(k, 19), "co": n, "kh": 3, "kw": 3}, dtype)
    extents = {"m": m, "n": n, "k": k}
    return op.workload({d.name: extents[d.name] for d in op.dims if d.name in extents}, dtype)


CASES = [
    pytest.param(op, size, dtype, id=f"{op.name}-{size}-{dtype}")
    for op in OPERATORS.values()
    for size in (SIZES if op.name in TILED else odd_shapes(op))
    for dtype in op.dtypes
    # Other types are drawn below.
    if dtype == op.dtypes[0] or size == "above" or (size == "odd0" and dtype == op.dtypes[-1])
]


@pytest.mark.parametrize(("op", "size", "dtype"), CASES)
def test_every_applicable_rule_computes_the_reference(op, size, dtype, target, assert_right):
    workload = workload_of(op, size, dtype)
    rules = rules_for(workload.func, target)
    assert "general" in [rule.name for rule in rules]
    for rule in rules:
        assert_right(workload, rule.scheduled(workload.func, target))


def test_matmul_linear_relu_and_conv2d_have_rules_of_their_own(target):
    def best(op):
        rules = rules_for(workload_of(OPERATORS[op], "larger", "float32").func, target)
        # Another algorithm may be worth it: that depends on the machine.
        return next(rule.name for rule in rules if rule.name != "winograd")

    assert {op: best(op) for op in TILED} == {
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
    layout = draw(st.sampled_from(("NHWC", "NHWC", "NCHW", "NCHW", *BLOCKED_LAYOUTS)))
    block = BLOCKED_LAYOUTS.get(layout, 0)
    groups = 1 if block else draw(st.sampled_from((1, 1, 1, 2, 3)))
    shape = {
        "n": draw(st.integers(1, 3)),
        "h": draw(st.integers(1, 16)),
        "w": draw(extents(40)),
        "ci": block * draw(st.integers(1, 3)) or groups * draw(st.integers(1, 17)),
        "co": block * draw(st.integers(1, 5)) or groups * draw(extents(2 * NR)),
        "kh": draw(st.integers(1, 4)),
        "kw": draw(st.integers(1, 4)),
        "stride": draw(st.integers(1, 3)),
        "padding": draw(st.integers(0, 3)),
        "dilation": draw(st.integers(1, 2)),
        "groups": groups,
        "layout": layout,
        "bias": draw(st.integers(0, 1)),
        "relu": draw(st.integers(0, 1)),
        "residual": draw(st.integers(0, 1)),
    }
    for kernel, size in (("kh", "h"), ("kw", "w")):
        assume(shape["dilation"] * (shape[kernel] - 1) < shape[size] + 2 * shape["padding"])
    return ts.workload("conv2d", dtype=draw(st.sampled_from(OPERATORS["conv2d"].dtypes)), **shape)


@st.composite
def products(draw, name):
    shape = {dim: draw(extents(140)) for dim in "mnk"}
    if name == "matmul":
        shape["transpose"] = draw(st.sampled_from(("NN", "NT", "TN", "TT")))
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


# What a dimension of this name is drawn up to, where it is no extent.
SMALL = {"kh": 4, "kw": 4, "kernel": 4, "stride": 3, "padding": 3, "dilation": 2, "groups": 3, "scale": 3}
SMALL |= {"before": 3, "after": 3}


@st.composite
def shapes(draw, op):
    """Draw any shape of an operator, by the ranges of its dimensions and what it checks."""
    shape = {}
    for dim in op.dims:
        if dim.choices:
            shape[dim.name] = draw(st.sampled_from(dim.choices))
        else:
            most = SMALL.get(dim.name, 40)
            shape[dim.name] = draw(st.integers(dim.minimum, most))
    try:
        return op.complete(shape)
    except ts.InputError:
        assume(False)


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS.values() if op.name not in TILED], ids=lambda op: op.name
)
def test_any_shape_is_right_at_any_point(op, target, assert_right, reads_outside):
    @settings(
        max_examples=max(3, settings.default.max_examples // 5), suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def right(data):
        dtype = data.draw(st.sampled_from(op.dtypes), label="dtype")
        workload = op.workload(data.draw(shapes(op), label="shape"), dtype)
        assert not reads_outside(workload.func)
        assert_points_are_right(data, workload, target, assert_right)

    right()


@pytest.mark.parametrize("op", OPERATORS.values(), ids=list(OPERATORS))
def test_the_default_schedule_applies_to_every_example(op):
    for example in op.examples:
        schedule, rule = apply_default(op.workload(example.shape).func, host_target())
        assert schedule.trace.insts, f"{rule.name} does nothing for {example.shape}"
