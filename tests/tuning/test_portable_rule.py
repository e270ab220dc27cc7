"""A rule of one's own reaches the workers, wherever its functions were defined."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import tunesmith as ts
from tunesmith.tuning.processes.worker_group import WorkerGroup
from tunesmith.tuning.running.builder import portable_rule

SOURCE = """
import tunesmith as ts


def rewrite(sch, *, lanes):
    sch.vectorize(sch.split(sch.get_loops("relu")[-1], [None, lanes])[1])


def open_space(func, target):
    return ts.KnobSpace((ts.Knob("lanes", (4, 8), "elements"),), (), {"lanes": 4})


RULE = ts.ScheduleRule("own", "one's own", rewrite, open_space)
"""

# What a worker does with it, in a process that knows nothing of the file.
UNPICKLE = """
import sys, pickle, tunesmith as ts
assert "own_rule" not in sys.modules
rule = pickle.loads({!r})
sch = rule.scheduled(ts.workload("relu", m=8, n=16).func, ts.host_target())
assert "vectorized" in sch.mod.script()
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """A file loaded as a user's script may load it: not listed in sys.modules."""
    (tmp_path / "own_rule.py").write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("own_rule", tmp_path / "own_rule.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def assert_works_elsewhere(rule: ts.ScheduleRule) -> None:
    pickled = portable_rule(rule)
    assert isinstance(pickled, bytes)
    with WorkerGroup(1) as group:
        group.workers[0].call(exec, UNPICKLE.format(pickled), 120)


def test_a_rule_of_tunesmith_travels_by_its_name() -> None:
    assert portable_rule(ts.schedule_rules()["matmul"]) == "matmul"


@pytest.mark.parametrize("listed", [False, True])
def test_a_rule_from_a_file_travels_with_its_code(
    module: ModuleType, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if listed:
        monkeypatch.setitem(sys.modules, "own_rule", module)
    assert_works_elsewhere(module.RULE)


def test_a_partial_travels_with_its_function(module: ModuleType) -> None:
    fixed = ts.ScheduleRule(
        "fixed", "", functools.partial(module.rewrite, lanes=8), lambda func, target: None
    )
    pickled = portable_rule(fixed)
    assert isinstance(pickled, bytes) and b"rewrite" in pickled
    # functools itself is importable everywhere: its code does not travel.
    assert len(pickled) < 5000
