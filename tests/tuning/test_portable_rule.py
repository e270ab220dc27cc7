"""A rule of one's own reaches the workers, wherever its functions were defined."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import tunesmith as ts
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
rule = pickle.loads(bytes.fromhex(sys.argv[1]))
sch = rule.scheduled(ts.workload("relu", m=8, n=16).func, ts.host_target())
print("vectorized" in sch.mod.script())
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


def works_elsewhere(rule: ts.ScheduleRule) -> bool:
    pickled = portable_rule(rule)
    assert isinstance(pickled, bytes)
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLE, pickled.hex()], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


def test_a_rule_of_tunesmith_travels_by_its_name() -> None:
    assert portable_rule(ts.schedule_rules()["matmul"]) == "matmul"


@pytest.mark.parametrize("listed", [False, True])
def test_a_rule_from_a_file_travels_with_its_code(
    module: ModuleType, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if listed:
        monkeypatch.setitem(sys.modules, "own_rule", module)
    assert works_elsewhere(module.RULE)


def test_a_partial_travels_with_its_function(module: ModuleType) -> None:
    fixed = ts.ScheduleRule(
        "fixed", "", functools.partial(module.rewrite, lanes=8), lambda func, target: None
    )
    pickled = portable_rule(fixed)
    assert isinstance(pickled, bytes) and b"rewrite" in pickled
    # functools itself is importable everywhere: its code does not travel.
    assert len(pickled) < 5000
