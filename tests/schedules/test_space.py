"""Knobs, constraints, and that every default is a point of its space."""

from itertools import product

import pytest
import tunesmith as ts
from tunesmith import schedules
from tunesmith.kernels import OPERATORS
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.space import Constraint, Knob, KnobSpace

SPACE = KnobSpace(
    knobs=(Knob("rows", (1, 2, 4), "rows"), Knob("columns", (8, 16), "columns")),
    constraints=(
        Constraint("rows * columns is at most 32", lambda k: k["rows"] * k["columns"] <= 32),
        Constraint("columns is at least 4", lambda k: k["columns"] >= 4),
    ),
    default={"rows": 2, "columns": 16},
)

TARGETS = {
    mcpu: as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": cores})
    for mcpu, triple, cores in (
        ("x86-64", "x86_64-unknown-linux-gnu", 1),
        ("haswell", "x86_64-unknown-linux-gnu", 3),
        ("x86-64-v4", "x86_64-unknown-linux-gnu", 2),
        ("znver4", "x86_64-unknown-linux-gnu", 96),
        ("neoverse-n1", "aarch64-linux-gnu", 4),
    )
}


def test_points_are_the_combinations_that_keep_the_constraints():
    assert SPACE.combinations == 6
    assert len(SPACE) == 5
    assert {"rows": 4, "columns": 16} not in SPACE.points
    assert SPACE.points[0] == {"rows": 1, "columns": 8}
    assert SPACE.default in SPACE.points


@pytest.mark.parametrize(
    "rule",
    [
        lambda k: k["a"] * k["c"] <= 6,
        lambda k: k.get("c", 0) > 1,
        lambda k: max(k.values()) < 5,
        lambda k: sum(dict(k).values()) % 2 == 0,
        lambda k: {**k}["b"] != 2,
        lambda k: len(k) == 3 and "b" in k and k["b"] > 1,
        lambda k: all(value < 5 for _, value in k.items()),
        lambda k: k.get("d", 1) == 1 and "d" not in k and k["a"] > 1,
        lambda k: (k["c"] if k["a"] > 1 else k["b"]) > 1,
    ],
)
def test_a_rule_may_look_at_knobs_in_any_way(rule):
    knobs = tuple(
        Knob(name, values, "") for name, values in (("a", (1, 2, 3)), ("b", (1, 2)), ("c", (1, 2, 5)))
    )
    combinations = [dict(zip("abc", values, strict=True)) for values in product((1, 2, 3), (1, 2), (1, 2, 5))]
    space = KnobSpace(knobs, (Constraint("a rule", rule),), combinations[0])
    assert list(space.points) == [point for point in combinations if rule(point)]
    assert 0 < len(space) < len(combinations)


def test_a_rule_is_asked_once_for_the_knobs_that_it_looks_at():
    asked = []
    knobs = tuple(Knob(name, tuple(range(10)), "") for name in "abcd")
    rule = Constraint("a is 3", lambda k: asked.append(k["a"]) or k["a"] == 3)
    assert len(KnobSpace(knobs, (rule,), dict.fromkeys("abcd", 3))) == 1000
    assert asked == list(range(10))


def test_a_rule_is_asked_once_for_equal_values_whatever_others_are():
    asked = []
    knobs = tuple(Knob(name, tuple(range(5)), "") for name in "abcd")
    rule = Constraint("a is b + d", lambda k: asked.append((k["b"], k["d"])) or k["a"] == sum(asked[-1]))
    assert len(KnobSpace(knobs, (rule,), dict.fromkeys("abcd", 0))) == 75
    assert len(asked) == 25 * 5


def test_a_rule_may_not_look_at_what_is_no_knob():
    with pytest.raises(KeyError, match="cols"):
        len(KnobSpace(SPACE.knobs, (Constraint("cols is 8", lambda k: k["cols"] == 8),), SPACE.default))


def test_a_rule_may_fail_on_what_another_excludes():
    knobs = (Knob("a", (0, 2), ""), Knob("b", (1, 2, 4), ""))
    rules = (
        Constraint("all are at least 1", lambda k: min(k.values()) >= 1),
        Constraint("a divides 6", lambda k: 6 % k["a"] == 0),
    )
    assert len(KnobSpace(knobs, rules, {"a": 2, "b": 1})) == 3
    with pytest.raises(ZeroDivisionError):
        len(KnobSpace(knobs, rules[1:], {"a": 2, "b": 1}))


def test_a_knob_without_values_is_refused():
    with pytest.raises(ts.InputError, match=r"a knob needs at least one value: Knob\('rows', \(\), \.\.\.\)"):
        Knob("rows", (), "rows")


def test_a_space_without_points_names_the_constraints_that_exclude_them():
    narrow = Constraint("rows * columns is at most 8", lambda k: k["rows"] * k["columns"] <= 8)
    odd = Constraint("columns is odd", lambda k: k["columns"] % 2)
    space = KnobSpace(SPACE.knobs, (*SPACE.constraints, narrow, odd), SPACE.default)
    with pytest.raises(ts.InputError, match=r"^[^\n]*$") as caught:
        len(space)
    assert (
        "Of 6, 'columns is odd' excludes 6, 'rows * columns is at most 8' excludes 5, "
        "'rows * columns is at most 32' excludes 1; give"
    ) in str(caught.value)


def test_knobs_left_out_have_their_default():
    assert SPACE.check({}) == SPACE.default
    assert SPACE.check({"rows": 1}) == {"rows": 1, "columns": 16}


def test_a_value_outside_the_candidates_is_allowed_where_the_constraints_hold():
    assert SPACE.check({"rows": 3, "columns": 10}) == {"rows": 3, "columns": 10}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"row": 1}, r"unknown knob 'row'; did you mean rows\?"),
        ({"zz": 1}, r"unknown knob 'zz'; there are: columns, rows"),
        ({"rows": "2"}, r"a knob's value is an integer of at least 0: rows='2'"),
        ({"rows": -1}, r"a knob's value is an integer of at least 0: rows=-1"),
        ({"rows": True}, r"a knob's value is an integer of at least 0: rows=True"),
        ({"columns": 2}, r"knobs must keep the rule: columns is at least 4: rows=2, columns=2"),
        ({"rows": 4}, r"knobs must keep the rule: rows \* columns is at most 32: rows=4, columns=16"),
    ],
)
def test_wrong_knobs_are_named(knobs, message):
    with pytest.raises(ts.InputError, match=f"^{message}$"):
        SPACE.check(knobs)


def test_a_switch_has_two_positions():
    space = KnobSpace((Knob("on", (0, 1), "1: on"),), (), {"on": 0})
    assert space.check({"on": 1}) == {"on": 1}
    with pytest.raises(ts.InputError, match=r"^the knob on is 0 or 1: on=2$"):
        space.check({"on": 2})


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"mrr": 4}, "unknown knob 'mrr'; did you mean"),
        ({"nr": 20}, "knobs must keep the rule: lanes must divide nr: lanes=16, .*nr=20"),
        ({"lanes": 0}, "lanes, mr, nr, block_rows, block_columns and beside are at least 1"),
        ({"mr": 16}, r"\(mr \+ 1\) \* nr / lanes accumulators and weights and a broadcast fit 32 registers"),
        ({"mr": 64, "nr": 16}, "fit 32 registers"),
        ({"mr": 20, "nr": 16}, "mr is at most the row axis"),
        ({"mr": 2, "nr": 80}, "nr is at most the column axis, rounded up to a vector"),
        ({"block_rows": 999}, "block_rows is at most the row tiles"),
        ({"block_columns": 999}, "block_columns is at most the panels"),
        ({"mr": 6, "pad": 1}, "pad=1 where mr leaves rows that need no copy"),
        ({"stage": 1}, "stage=1 where data lie along the rows"),
        ({"beside": 0}, "block_columns and beside are at least 1"),
        ({"nr": 16, "block_columns": 4, "beside": 3}, "beside divides the panels packed at once"),
        ({"nr": 12, "lanes": 4, "pack": 0, "beside": 5}, "beside divides the panels packed at once"),
        ({"pad": 2}, "split_columns, pad, stage, skip and fetch are 0 or 1"),
        ({"fetch": 2}, "skip and fetch are 0 or 1"),
        ({"pack": 3}, "pack is 0, 1 or 2"),
    ],
)
def test_a_tile_that_breaks_a_rule_is_refused_in_one_line(knobs, message):
    func = ts.workload("matmul", m=18, n=60, k=20).func
    with pytest.raises(ts.InputError, match=message) as error:
        ts.schedule_rules()["matmul"].scheduled(func, TARGETS["x86-64-v4"], knobs)
    assert "\n" not in str(error.value)


def test_a_weight_is_read_as_it_lies_in_whole_vectors_unless_there_are_masks():
    func, odd = ts.workload("matmul", m=18, n=60, k=20).func, {"nr": 16, "pack": 0}
    with pytest.raises(
        ts.InputError, match=r"pack=0 needs columns that are contiguous, and nr to divide them \(60"
    ):
        schedules.rule("matmul").scheduled(func, TARGETS["haswell"], odd)
    assert schedules.rule("matmul").scheduled(func, TARGETS["znver4"], odd) is not None
    turned = ts.workload("matmul", m=18, n=60, k=20, transpose="NT").func
    with pytest.raises(ts.InputError, match="pack=0 needs columns that are contiguous"):
        schedules.rule("matmul").scheduled(turned, TARGETS["znver4"], {"nr": 16, "pack": 0})


def test_blocks_of_a_convolution_are_parts_of_a_line_or_whole_lines():
    func = ts.workload("conv2d", n=1, h=6, w=12, ci=4, co=16, kh=1, kw=1).func
    rule, wanted = ts.schedule_rules()["conv2d"], {"mr": 3}
    for block_rows in (1, 2, 3, 4, 8, 24):
        assert rule.scheduled(func, TARGETS["x86-64-v4"], {**wanted, "block_rows": block_rows}) is not None
    with pytest.raises(ts.InputError, match="block_rows is part of a line of row tiles or whole lines"):
        rule.scheduled(func, TARGETS["x86-64-v4"], {**wanted, "block_rows": 6})


@pytest.mark.parametrize("name", ["row", "generall"])
def test_an_unknown_rule_is_named(name):
    with pytest.raises(ts.InputError, match=f"unknown schedule '{name}'"):
        schedules.rule(name)


SHAPES = {op: [dict(example.shape) for example in OPERATORS[op].examples] for op in OPERATORS}
SHAPES["conv2d"] += [
    {"n": n, "h": h, "w": w, "ci": 5, "co": co, "kh": 1, "kw": 1}
    for n, h, w, co in ((1, 9, 34, 16), (3, 3, 19, 45), (2, 5, 31, 8), (1, 1, 127, 200), (4, 7, 15, 64))
]
SHAPES["matmul"] += [{"m": m, "n": n, "k": 64} for m in (1, 2, 13, 97, 300) for n in (1, 17, 96, 1009)]


@pytest.mark.parametrize("op", OPERATORS)
def test_every_default_is_a_point_of_its_space(op):
    funcs = ((shape, ts.workload(op, **shape).func) for shape in SHAPES[op])
    for (shape, func), mcpu in product(funcs, TARGETS):
        for rule in rules_for(func, TARGETS[mcpu]):
            space = rule.space(func, TARGETS[mcpu])
            broken = [c.rule for c in space.constraints if not c.holds(space.default)]
            assert broken == [], f"{rule.name} {mcpu} {shape}: {dict(space.default)}"
            outside = [k.name for k in space.knobs if space.default[k.name] not in k.values]
            assert outside == [], f"{rule.name} {mcpu} {shape}: {dict(space.default)}"
            assert set(space.default) == {k.name for k in space.knobs}
