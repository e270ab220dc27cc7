import tunesmith as ts
from tunesmith.kernels import OPERATORS
from tunesmith.tuning.strategies import STRATEGIES


def test_operators_have_dimensions_and_defaults(run):
    rows = {row["name"]: row for row in run("list", "operators", "--json").rows}
    assert list(rows) == list(OPERATORS)
    assert rows["matmul"]["dimensions"] == ["m", "n", "k"]
    assert "stride=1" in rows["conv2d"]["dimensions"]
    assert rows["relu"]["kind"] == "operator"


def test_schedules_and_spaces(run):
    rules = list(ts.schedule_rules())
    assert [row["name"] for row in run("list", "schedules", "--json").rows] == rules
    assert [row["name"] for row in run("list", "spaces", "--json").rows] == [*rules, "sketch"]


def test_everything_is_listed_without_a_kind(run):
    rows = run("list", "--json").rows
    assert {row["kind"] for row in rows} == {"operator", "schedule", "space", "strategy"}
    table = run("list").stdout
    assert all(name in table for name in [*OPERATORS, *ts.schedule_rules(), *STRATEGIES])
