"""A tuning's course, with a pipeline that invents the outcome of each trial and ends them out of order."""

import random
import signal
import tempfile
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tunesmith as ts
from tunesmith import schedules
from tunesmith.kernels.operator import Workload
from tunesmith.machine.peaks import Peaks
from tunesmith.schedules.rule import ScheduleRule
from tunesmith.schedules.space import Knob, KnobSpace
from tunesmith.tuning import conclusion, tuner
from tunesmith.tuning import session as session_module
from tunesmith.tuning.measuring.cases import prepare_cases
from tunesmith.tuning.measuring.tasks import BuildJob, Built, Ran
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.reporting.events import Learned, Started, TrialEnded, TuneResult, quiet
from tunesmith.tuning.running.device import this_machine
from tunesmith.tuning.session import DEAD_END_TRIALS
from tunesmith.tuning.strategies import AHEAD, KNOB_STRATEGIES


def seconds_of(knobs):
    """Return the invented seconds of a candidate: a bowl with its ground at (40, 8)."""
    return 1e-3 * (1 + (knobs["rows"] - 40) ** 2 / 1600 + (knobs["columns"] - 8) ** 2 / 400)


class FakePipeline:
    """Ends any of the trials on its way, whichever the dice say; `outcome` says how."""

    def __init__(self, bench):
        self.bench, self.flight = bench, []
        self.seconds = dict.fromkeys(("build", "verify", "run"), 0.0)

    def submit(self, trial):
        self.flight.append(trial)
        self.bench.most = max(self.bench.most, len(self.flight))

    def next_ended(self, conditions):
        trial = self.flight.pop(self.bench.dice.randrange(len(self.flight)))
        trial.built = Built(Status.OK, "", trial.job.library, "{}", 0.01, trial.candidate.key)
        trial.ran = self.bench.outcome(trial.candidate.knobs)
        return trial

    def discard(self):
        self.flight.clear()


class FakeBench:
    """A workbench without workers."""

    dice = random.Random(0)

    def __init__(self, timeout, **options):
        self.folder, self.device, self.most = tempfile.mkdtemp(), this_machine(), 0
        FakeBench.latest = self

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def pipeline(self):
        return FakePipeline(self)

    def cases(self, workload):
        return prepare_cases(workload, f"{self.folder}/{workload.hash}")

    def job(self, *arguments, quick):
        assert quick, "what is built for its trial alone need not be the very fastest"
        return BuildJob("", "", "library")

    @staticmethod
    def outcome(knobs):
        return Ran(Status.OK, "", True, 0.0, (seconds_of(knobs),), 1)


@pytest.fixture(autouse=True)
def fakes(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tuner, "Workbench", FakeBench)
    monkeypatch.setattr(conclusion, "_compare", lambda sessions: None)
    monkeypatch.setattr(FakeBench, "dice", random.Random(0))


@pytest.fixture
def wide():
    """A rule with 4096 points, of which nothing is ever built."""
    knobs = tuple(Knob(name, tuple(range(64)), "a knob of a test") for name in ("rows", "columns"))
    space = KnobSpace(knobs, (), {"rows": 4, "columns": 8})
    return ScheduleRule(
        "wide", "a rule of a test", lambda sch, rows, columns: None, lambda func, target: space
    )


@pytest.fixture
def workloads():
    return [ts.workload("matmul", m=8, n=8, k=k) for k in (8, 16, 32)]


@pytest.fixture
def tune(tmp_path, wide):
    """Tune into the same database each time."""

    def tune(workload, **options):
        database = options.pop("database", tmp_path / "t.db")
        return ts.tune(workload, **{"space": wide, "database": database, "progress": quiet, **options})

    return tune


class Noted:
    """A strategy, and what it is asked and told."""

    def __init__(self, strategy, notes):
        self.strategy, self.notes = strategy, notes
        self.batch = strategy.batch

    def ask(self, count):
        found = self.strategy.ask(count)
        self.notes.append((count, [c.key for c in found]))
        return found

    def tell(self, candidate, record):
        self.notes.append((candidate.key, record.run_secs))
        self.strategy.tell(candidate, record)


@pytest.mark.parametrize("name", [n for n in KNOB_STRATEGIES if not n.startswith("optuna")])
def test_equal_seeds_and_times_give_equal_searches_in_whatever_order_trials_end(
    tune, workloads, name, tmp_path, monkeypatch
):
    notes = []
    make = session_module.make_strategy
    monkeypatch.setattr(session_module, "make_strategy", lambda *args: Noted(make(*args), notes[-1]))
    for dice in (1, 2, 3):
        notes.append([])
        monkeypatch.setattr(FakeBench, "dice", random.Random(dice))
        result = tune(workloads[0], strategy=name, trials=45, seed=7, database=tmp_path / f"{dice}.db")
        assert result.trials == 45
    assert notes[0] == notes[1] == notes[2] and len(notes[0]) > 45


def test_no_more_are_on_their_way_than_a_strategy_stands(tune, workloads):
    tune(workloads[0], strategy="random", trials=100)
    assert AHEAD - 4 <= FakeBench.latest.most <= AHEAD + 1


def test_trials_that_end_out_of_order_are_recorded_as_they_end(tune, workloads, tmp_path):
    told = []
    tune(workloads[0], strategy="grid", trials=20, progress=told.append)
    with ts.Database(tmp_path / "t.db") as database:
        records = database.records()
    reported = [event for event in told if isinstance(event, TrialEnded)]
    assert [event.record for event in reported] == records
    assert [event.number for event in reported] == list(range(1, 21))
    assert [r.knobs for r in records] != sorted(
        (r.knobs for r in records), key=lambda k: (k["rows"], k["columns"])
    )


def test_dead_end_is_given_up(tune, workloads, monkeypatch):
    monkeypatch.setattr(FakeBench, "outcome", staticmethod(lambda knobs: Ran(Status.CRASHED, "SIGSEGV")))
    result = tune(workloads[0], strategy="random", trials=500)
    assert result.stopped_by == "dead_end" and result.best is None
    assert DEAD_END_TRIALS <= sum(result.counts.values()) <= DEAD_END_TRIALS + 1


def test_dead_end_leaves_its_trials_to_the_others(tune, workloads, monkeypatch):
    dead, *_ = workloads
    monkeypatch.setattr(
        FakePipeline,
        "next_ended",
        lambda self, conditions, end=FakePipeline.next_ended: _of_workload(end(self, conditions), self, dead),
    )
    monkeypatch.setattr(FakeBench, "job", lambda self, ir, *rest, **more: BuildJob(ir, "", "library"))
    first, second = tune(workloads[:2], strategy="random", trials=120)
    assert (first.stopped_by, second.stopped_by) == ("dead_end", "trials")
    assert first.trials + second.trials == 120 and first.trials == DEAD_END_TRIALS


def _of_workload(trial, pipeline, dead: Workload):
    if trial.job.func_ir == session_module.tvm.ir.save_json(dead.func):
        trial.ran = Ran(Status.CRASHED, "SIGSEGV")
    return trial


def test_roofline_stops_who_is_near_enough(tune, workloads, monkeypatch):
    least_s = 1.2e-3
    peaks = SimpleNamespace(seconds=lambda flops, bytes_moved, dtype: least_s)
    assert hasattr(Peaks, "seconds")
    monkeypatch.setattr(session_module, "measured_peaks", lambda: peaks)
    result = tune(workloads[0], strategy="genetic", trials=1000, roofline=0.75)
    assert result.stopped_by == "roofline"
    assert min(seconds_of(r.knobs) for r in [result.best]) <= least_s / 0.75
    # It was not near enough before its last trials.
    assert result.trials > 1 and seconds_of(result.default.knobs) > least_s / 0.75


def test_early_stopping_counts_trials_without_gain(tune, workloads, monkeypatch):
    monkeypatch.setattr(
        FakeBench, "outcome", staticmethod(lambda knobs: Ran(Status.OK, "", True, 0.0, (1.0,), 1))
    )
    result = tune(workloads[0], strategy="random", trials=1000, early_stopping=10)
    assert (result.stopped_by, result.trials) == ("early_stopping", 11)


def test_budget_of_several_is_kept_exactly_and_resumed(tune, workloads):
    results = tune(workloads, strategy="random", trials=50, weights=[1.0, 1.0, 50.0])
    trials = [result.trials for result in results]
    assert sum(trials) == 50 and min(trials) >= 8 and trials[2] == max(trials)
    again = tune(workloads, strategy="random", trials=50)
    assert [result.trials for result in again] == trials and not any(result.counts for result in again)
    more = tune(workloads, strategy="random", trials=70)
    assert sum(result.trials for result in more) == 70


def interrupt_at(number, events):
    def progress(event):
        events.append(event)
        if isinstance(event, TrialEnded) and event.number == number:
            signal.raise_signal(signal.SIGINT)

    return progress


def of_a_model(workload, number):
    """Return a workload as a function of a model: it has a name of its own, and no dimensions."""
    return replace(workload, name=f"fused_matmul{number}", shape={})


def test_functions_of_a_model_learn_from_those_that_had_turns_before(tune, workloads):
    functions, events = [of_a_model(each, n) for n, each in enumerate(workloads)], []
    tune(functions, trials=60, progress=events.append)
    learned = [event for event in events if isinstance(event, Learned)]
    # The first one has but the others' defaults, and those say nothing alone.
    assert [event.workload for event in learned] == functions[1:]
    before = [[e for e in events[: events.index(one)] if isinstance(e, TrialEnded)] for one in learned]
    for one, ended in zip(learned, before, strict=True):
        of_others = Counter(e.record.workload_hash for e in ended if e.record.operator != one.workload.name)
        assert one.records == sum(count for count in of_others.values() if count > 1) > 1


def test_functions_learn_nothing_where_transfer_is_off(tune, workloads):
    events = []
    functions = [of_a_model(each, n) for n, each in enumerate(workloads)]
    tune(functions, trials=60, transfer=False, progress=events.append)
    assert not any(isinstance(event, Learned) for event in events)


def test_interrupt_ends_every_workload_with_what_it_has(tune, workloads):
    events = []
    results = tune(workloads, strategy="random", trials=60, progress=interrupt_at(12, events))
    assert [result.stopped_by for result in results] == ["interrupted"] * 3
    assert sum(result.trials for result in results) == 12
    # Each is announced and ends once, also the one that had no turn.
    assert [sum(isinstance(e, kind) for e in events) for kind in (Started, TuneResult)] == [3, 3]


def test_interrupt_of_the_comparisons_keeps_what_was_compared(tune, workloads, monkeypatch):
    compared = []

    def interrupted(sessions):
        compared.append(sessions)
        if len(compared) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(conclusion, "_compare", interrupted)
    events = []
    results = tune(workloads, strategy="random", trials=30, progress=events.append)
    assert [result.stopped_by for result in results] == ["trials", "interrupted", "interrupted"]
    assert [event for event in events if isinstance(event, TuneResult)] == results


@pytest.fixture
def rules(monkeypatch):
    """Three rules, the only ones there are: the second has slower schedules, the last fits everything."""
    found = {}
    for factor, name in ((1, "first"), (2, "second"), (9, "last")):
        knobs = tuple(Knob(each, tuple(range(32)), "a knob of a test") for each in ("rows", "columns"))
        space = KnobSpace(
            (*knobs, Knob("factor", (factor,), "slower")), (), {"rows": 4, "columns": 8, "factor": factor}
        )
        found[name] = ScheduleRule(
            name, "a rule of a test", lambda sch, **_: None, lambda *_, space=space: space
        )
    monkeypatch.setattr(schedules, "schedule_rules", lambda: found)

    def outcome(knobs):
        return Ran(Status.OK, "", True, 0.0, (knobs["factor"] * seconds_of(knobs),), 1)

    monkeypatch.setattr(FakeBench, "outcome", staticmethod(outcome))
    return found


def trials_of_spaces(path, workload):
    with ts.Database(path) as database:
        return Counter(record.space for record in database.records(workload.hash))


def test_spaces_of_a_workload_share_its_trials_and_the_better_one_gets_more(tune, workloads, rules, tmp_path):
    events = []
    result = tune(workloads[0], space="all", strategy="random", trials=60, progress=events.append)
    spaces = trials_of_spaces(tmp_path / "t.db", workloads[0])
    assert set(spaces) == {"first", "second"} and spaces.total() == result.trials == 60
    assert spaces["first"] > 3 * spaces["second"]
    # One workload, one answer.
    assert result.best.space == "first" and result.default.knobs["factor"] == 1
    assert [type(event) for event in events].count(TuneResult) == 1
    assert [event.space for event in events if isinstance(event, Started)] == ["first", "second"]


def test_what_fits_everything_is_searched_where_nothing_else_fits(tune, workloads, rules, tmp_path):
    for name in ("first", "second"):
        del rules[name]
    tune(workloads[0], space="all", strategy="random", trials=3)
    assert trials_of_spaces(tmp_path / "t.db", workloads[0]) == {"last": 3}


def test_trials_go_on_in_the_better_space_after_a_stop(tune, workloads, rules, tmp_path):
    options = {"space": "all", "strategy": "random"}
    interrupted = tune(workloads[:2], trials=80, progress=interrupt_at(40, []), **options)
    assert sum(result.trials for result in interrupted) == 40
    again = tune(workloads[:2], trials=80, **options)
    assert sum(result.trials for result in again) == 80
    assert sum(sum(result.counts.values()) for result in again) == 40
    for workload in workloads[:2]:
        spaces = trials_of_spaces(tmp_path / "t.db", workload)
        assert spaces["first"] > 2 * spaces["second"] >= 2


def test_few_trials_go_to_the_defaults_of_every_workload_first(tune, workloads, rules, tmp_path):
    tune(workloads, space="all", strategy="random", trials=4)
    assert [trials_of_spaces(tmp_path / "t.db", w).total() for w in workloads] == [2, 1, 1]
    assert trials_of_spaces(tmp_path / "t.db", workloads[0]) == {"first": 1, "second": 1}


def test_a_negligible_workload_is_measured_once(tune, workloads):
    results = tune(workloads, strategy="random", trials=60, weights=[1e-3, 1.0, 1.0], least_share=0.01)
    assert results[0].trials == 1 and sum(r.trials for r in results) == 60
    assert [result.stopped_by for result in results] == ["negligible", "trials", "trials"]
    with pytest.raises(ts.InputError, match="least_share is a share"):
        tune(workloads, least_share=1.0)


def test_no_workload_is_bad_input(tune):
    with pytest.raises(ts.InputError, match="there is no workload to tune: give at least one"):
        tune([])
