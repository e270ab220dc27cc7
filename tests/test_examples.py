"""The examples run, in small sizes: each is a test of its own assertions and of what it prints."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import tunesmith
from tunesmith import schedules

FOLDER = Path(tunesmith.__file__).parent / "examples"
NUMBERED = sorted(path.name for path in FOLDER.glob("[0-9]*.py"))
SMALL = {
    "01_first_kernel.py": {"extent": 64},
    "02_schedule_by_hand.py": {"extent": 64, "trials": 2},
    "03_tune_and_swap.py": {"batch": 8, "width": 32, "trials": 2},
    "04_own_relax_pipeline.py": {"batch": 8, "width": 32, "trials": 2},
    "05_custom_legalization.py": {"batch": 8, "width": 32},
    "06_pattern_rewriting.py": {"batch": 8, "width": 32},
}


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch):
    """The schedules that an example adds are for it alone."""
    monkeypatch.setattr(schedules, "_own", {})


def example(name):
    """Load an example as a module."""
    spec = spec_from_file_location(f"example_{name[:2]}", FOLDER / name)
    module = module_from_spec(spec)
    # Worker processes get a rule with its code, and that is looked up by its module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NUMBERED)
def test_example_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example(name).main(**SMALL.get(name, {}))
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


def test_numbers_have_no_gap():
    assert [int(name[:2]) for name in NUMBERED] == list(range(1, len(NUMBERED) + 1))


def test_the_hand_schedule_does_not_apply_where_no_tile_fits():
    tiled = example("02_schedule_by_hand.py").TILED
    odd = tunesmith.workload("matmul", m=7, n=5, k=3)
    assert tiled.space(odd.func, tunesmith.host_target()) is None
