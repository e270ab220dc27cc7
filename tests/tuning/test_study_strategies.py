"""The strategies study, tiny: points are measured once, the best again."""

from dataclasses import replace
from statistics import median

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.measuring.tasks import Ran
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.running.workbench import Workbench
from tunesmith.tuning.search import search_for
from tunesmith.tuning.study import strategies, table
from tunesmith.tuning.study.meter import Meter

SMALL = {"m": 64, "n": 64, "k": 64}
QUICK = Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.0)


def quiet(line):
    pass


@pytest.fixture
def briefly(monkeypatch):
    """Measure only the best again, and once."""
    monkeypatch.setattr(table, "_FASTEST", 1)
    monkeypatch.setattr(table, "_AGAIN", 1)


def count(small, database, *names, **options):
    given = {"seeds": 2, "limit": 6, "timing": QUICK, "say": quiet, **options}
    return strategies.study_strategies(small, database, names, **given)


def test_a_point_is_measured_once_and_a_study_goes_on(small, tiles, tmp_path, briefly):
    with ts.Database(tmp_path / "study.db") as database:
        first = count(small, database, "random", "grid", space=tiles, share=1e-4)
        known = database.records()
        # Every right point is within that of the best, whatever runs beside: the first trial reaches it.
        assert [row.trials for row in first] == [(1, 1), (1, 1)]
        assert len({record.key for record in known}) == len(known) <= 15
        assert all(record.usable and record.space == "tiles" for record in known)
        again = count(small, database, "random", "grid", space=tiles, share=1e-4)
        assert [row.trials for row in again] == [(1, 1), (1, 1)]
        assert [record.id for record in database.records()] == [record.id for record in known]


def test_a_search_that_does_not_arrive_is_more_than_the_limit(small, tiles, tmp_path, monkeypatch):
    monkeypatch.setattr(table.Table, "confirmed_s", lambda self, fastest: 1e-12)
    with ts.Database(tmp_path / "study.db") as database:
        (row,) = count(small, database, "random", space=tiles)
    assert row.trials == (None, None) and row.median is None and row.reached == 0


class Fake:
    """Measures nothing: a point takes 8 / rows seconds, and a hundredth of that the first time."""

    def __init__(self, record):
        self.record, self.seen = record, set()

    def __call__(self, knobs):
        rows = knobs["rows"]
        seconds = 8 / rows / (1 if rows in self.seen else 100)
        self.seen.add(rows)
        name = f"{rows}: {seconds}"
        return replace(self.record, id=name, key=name, knobs=dict(knobs), run_secs=(seconds,), space="tiles")


def test_the_best_is_measured_again_and_a_lucky_trial_is_not(small, tiles, tmp_path):
    search = search_for(small, host_target(), tiles)
    with ts.Database(tmp_path / "study.db") as database:
        with Meter(small, search, host_target(), QUICK) as meter:
            fake = Fake(meter({"rows": 4, "columns": 8}))
        points = table.Table(small, search, database, fake, quiet)
        for rows in (1, 2, 4, 8, 16):
            points({"rows": rows, "columns": 8})
        # The first time of each point is 1 / 100 of what it really takes.
        assert points.confirmed_s(points.fastest()) == pytest.approx(0.5)


def test_a_point_that_met_a_slow_minute_is_not_slow(small, tiles, monkeypatch):
    search = search_for(small, host_target(), tiles)
    with Meter(small, search, host_target(), QUICK, default_s=1.0) as meter:
        monkeypatch.setattr(Workbench, "compare", lambda *_: [[2.0, 10.0, 1.0], [3.0, 15.0, 1.5]])
        assert meter({"rows": 4, "columns": 8}).run_secs == pytest.approx((1.5, 1.5, 1.5))
        monkeypatch.setattr(Workbench, "compare", lambda *_: None)
        assert meter({"rows": 4, "columns": 8}).status is Status.CRASHED


def test_times_of_another_day_refer_to_the_speed_of_the_first(small, tiles, tmp_path, briefly, monkeypatch):
    asked = []

    class Spied(Meter):
        def __init__(self, *args):
            asked.append(args[-1])
            super().__init__(*args)

    monkeypatch.setattr(strategies, "Meter", Spied)
    search = search_for(small, host_target(), tiles)
    with ts.Database(tmp_path / "study.db") as database:
        for _ in range(2):
            count(small, database, "random", space=tiles, share=1e-4)
        (default,) = [record for record in database.records() if search.is_default(record)]
    assert asked == [None, median(default.run_secs)]


def test_without_a_right_default_there_is_nothing_to_compare_with(small, tiles, monkeypatch):
    search = search_for(small, host_target(), tiles)
    monkeypatch.setattr(Workbench, "compare", lambda *_: None)
    with pytest.raises(InputError, match="in turns with the default of the space 'tiles', but it crashed"):
        Meter(small, search, host_target(), QUICK)
    monkeypatch.setattr(Workbench, "check", lambda *_: Ran(Status.WRONG_RESULT, "all NaN"))
    with pytest.raises(InputError, match="but it ended in wrong_result: all NaN; give another --space"):
        Meter(small, search, host_target(), QUICK)


def test_a_warm_start_collects_trials_of_other_shapes_only_once(tmp_path, briefly):
    small, other = ts.workload("matmul", **SMALL), ts.workload("matmul", m=32, n=64, k=64)
    said = []
    options = {"others": [other], "collect": 2, "seeds": 1, "limit": 2, "say": said.append}
    with ts.Database(tmp_path / "study.db") as database:
        (row,) = count(small, database, "xgb+transfer", **options)
        assert row.learned_from == len(database.records(other.hash)) == 4
        said.clear()
        count(small, database, "xgb+transfer", **options)
    assert said[0] == f"{other.label}: 4 trials are known"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([], {}, "name at least one strategy"),
        (["xbg"], {}, "unknown strategy 'xbg'; did you mean xgb?"),
        (["xgb+transfer"], {}, "xgb.transfer starts from other shapes: give them with --transfer-from"),
        (["random"], {"seeds": 0}, "seeds must be at least 1: seeds=0"),
        (["random"], {"limit": 0}, "limit must be at least 1: limit=0"),
        (["random"], {"share": 1.5}, "at most 1: share=1.5"),
        (["random"], {"space": "sketch"}, "strategies are compared on knob spaces: found 'sketch'"),
        (["xgb+transfer"], {"others": [ts.workload("matmul", **SMALL)]}, "start from other shapes"),
        (["random+transfer"], {"others": [ts.workload("matmul", m=3, n=3, k=3)]}, "random cannot start from"),
    ],
)
def test_the_strategies_study_refuses_bad_input(small, tmp_path, names, options, message):
    with ts.Database(tmp_path / "study.db") as database, pytest.raises(InputError, match=message):
        count(small, database, *names, **options)


def test_times_of_another_machine_are_refused(small, frozen, monkeypatch):
    monkeypatch.setattr(strategies, "machine_fingerprint", lambda: "this machine")
    with ts.Database(frozen) as database, pytest.raises(InputError, match="holds trials of another machine"):
        count(small, database, "random")


def test_times_of_a_tuning_are_refused(small, tiles, tmp_path):
    with ts.Database(tmp_path / "tuned.db") as database:
        ts.tune(small, trials=1, space=tiles, strategy="random", database=database)
        with pytest.raises(InputError, match="trials of random, which were not timed in turns"):
            count(small, database, "random", space=tiles)
