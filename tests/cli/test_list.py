import tunesmith as ts
from tunesmith.kernels import OPERATORS
from tunesmith.tuning.strategies import ALIASES, STRATEGIES


def test_operators_have_dimensions_and_defaults(run):
    rows = {row["name"]: row for row in run("list", "operators", "--json").rows}
    assert list(rows) == list(OPERATORS)
    assert rows["matmul"]["dimensions"] == ["m", "n", "k", "transpose=NN"]
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


def test_every_strategy_and_its_aliases_are_listed_and_searches_a_space(run):
    rows = {row["name"]: row for row in run("list", "strategies", "--json").rows}
    assert list(rows) == list(STRATEGIES) and rows["genetic"]["aliases"] == ["ga"]
    assert {alias for row in rows.values() for alias in row["aliases"]} == set(ALIASES)
    spaces = {row["name"]: row for row in run("list", "spaces", "--json").rows}
    assert {name for row in spaces.values() for name in row["strategies"]} == set(STRATEGIES)
    assert spaces["sketch"]["aliases"] == ["ansor"]
