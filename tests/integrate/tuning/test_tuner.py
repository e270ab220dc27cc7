import signal

import pytest
import tunesmith as ts
from tunesmith.integrate.tuning import tuner
from tunesmith.machine.target import host_target
from tunesmith.tuning.planning.plan import TuningPlan
from tunesmith.tuning.reporting.events import GainSoFar, TrialEnded, TuneResult, quiet

from ..conftest import record_of, stack, write_onnx

BRIEF = {
    "timing": ts.Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.01),
    "strategy": "random",
    "progress": quiet,
}


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """A model of one function that is called three times, and a database in which it was tuned."""
    folder = tmp_path_factory.mktemp("layers")
    model = ts.load_model(stack(folder / "three.onnx", 3))
    return folder, ts.tune_model(model, database=folder / "t.db", trials=3, confirm=False, **BRIEF)


def test_the_functions_of_a_model_are_tuned(layers):
    folder, found = layers
    assert [task.calls for task in found.tasks] == [3] and found.new_trials == 3
    (result,) = found.results
    assert found.default_s == pytest.approx(3 * result.default.median_s)
    assert found.best_s == pytest.approx(3 * result.best.median_s) and not found.interrupted
    with ts.Database(folder / "t.db") as database:
        assert len(database.records()) == 3


def test_records_of_one_model_serve_another(layers, tmp_path):
    folder, first = layers
    other = ts.load_model(stack(tmp_path / "two.onnx", 2))
    found = ts.tune_model(other, database=folder / "t.db", trials=3, confirm=False, **BRIEF)
    assert found.new_trials == 0 and found.results[0].best.id == first.results[0].best.id
    with ts.Database(folder / "t.db") as database:
        (choice,) = [c for c in ts.compile_model(other, database=database).choices if c.flops]
    assert choice.origin == "record" and choice.record == first.results[0].best.id


def test_an_interrupted_tuning_goes_on_where_it_stopped(net, tmp_path):
    events = []

    def interrupt_at_fourth(event):
        events.append(event)
        if isinstance(event, TrialEnded) and event.number == 4:
            signal.raise_signal(signal.SIGINT)

    options = {**BRIEF, "database": tmp_path / "t.db", "trials": 9, "functions": "conv2d*"}
    first = ts.tune_model(net, **{**options, "progress": interrupt_at_fourth})
    assert first.interrupted and first.new_trials == 4 and first.comparison is None
    # Three functions have their default then: what all come to is told, each by its calls.
    gains = [event for event in events if isinstance(event, GainSoFar)]
    defaults = [result.default.median_s for result in first.results]
    assert gains[0].default_s == pytest.approx(sum(defaults)) and gains[0].best_s <= gains[0].default_s
    second = ts.tune_model(net, confirm=False, **options)
    assert second.new_trials == 5 and not second.interrupted
    with ts.Database(tmp_path / "t.db") as database:
        records = database.records()
    assert len({(r.workload_hash, r.space, r.key) for r in records}) == len(records) == 9
    third = ts.tune_model(net, confirm=False, **options)
    assert third.new_trials == 0


@pytest.fixture
def asked(monkeypatch):
    """Note what is asked of the search, which does nothing."""
    noted = {}
    monkeypatch.setattr(tuner, "tune", lambda workloads, **options: noted.update(options) or [])
    return noted


def test_calls_are_weights_and_all_spaces_are_searched(net, asked, tmp_path):
    ts.tune_model(net, database=tmp_path / "t.db")
    calls = [each.calls for each in ts.extract_workloads(net)]
    assert (asked["weights"], asked["space"]) == (calls, "all")
    assert asked["least_share"] == tuner.LEAST_SHARE


def test_what_is_asked_for_by_number_is_tuned_however_little_time_it_takes(net, asked, tmp_path):
    ts.tune_model(net, tasks="3-4", database=tmp_path / "t.db", space="general")
    assert (asked["least_share"], len(asked["weights"]), asked["space"]) == (0.0, 2, "general")


def test_the_plan_is_that_of_the_same_arguments(net):
    planned = ts.plan_model(net, functions="conv2d*", trials=30, estimate=False)
    assert isinstance(planned, TuningPlan) and planned.trials == 30
    assert {each.workload.name for each in planned.workloads} == {
        each.workload.name for each in ts.extract_workloads(net)[:3]
    }
    assert planned.warnings == ()
    assert ts.plan_model(net, tasks="0", estimate=False).warnings == ()


@pytest.fixture
def gained(net, monkeypatch, tmp_path):
    """Tune a model in whose database a function has a better record than its default."""
    workload = ts.extract_workloads(net)[0].workload
    rule = ts.schedule_rules()["conv2d"]
    points = rule.space(workload.func, host_target()).points
    default = record_of(workload)
    better = record_of(workload, id="better", knobs=points[-1], run_secs=(5e-4,))
    database = ts.Database(tmp_path / "t.db")
    database.add_all([default, better])
    result = TuneResult(workload, better, default, {}, 2, "trials", {})
    monkeypatch.setattr(tuner, "tune", lambda workloads, **options: [result])
    yield database
    database.close()


def test_the_gain_is_confirmed_on_the_whole_model(net, gained, monkeypatch):
    compared = []
    monkeypatch.setattr(tuner, "compare", lambda *pair: compared.append(pair) or ts.compare(*pair, rounds=3))
    found = ts.tune_model(net, tasks="0", database=gained)
    assert found.gained and found.default_s == 2 * found.best_s
    assert found.comparison.ok and found.comparison.speedup > 0
    records = [[choice.record for choice in package.choices if choice.record] for package in compared[0]]
    assert records == [[], ["better"]]


def test_a_confirmation_is_left_out_where_it_is_not_wanted(net, gained):
    assert ts.tune_model(net, tasks="0", database=gained, confirm=False).comparison is None


def test_an_interrupt_of_the_confirmation_keeps_what_was_found(net, gained, monkeypatch):
    monkeypatch.setattr(tuner, "compare", lambda *_: signal.raise_signal(signal.SIGINT))
    found = ts.tune_model(net, tasks="0", database=gained)
    assert found.comparison is None and found.gained


def test_a_model_without_tunable_functions_is_refused(tmp_path):
    from onnx import helper

    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    path = write_onnx(tmp_path / "t.onnx", [node], {"x": [3, 4]}, {"y": [4, 3]})
    with pytest.raises(ts.InputError, match="no function that can be tuned"):
        ts.tune_model(ts.load_model(path), database=tmp_path / "t.db")
