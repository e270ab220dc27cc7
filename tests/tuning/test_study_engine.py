"""The engine study, tiny. tune_tir itself needs 30 s to start: here it is replaced."""

import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.records.compilation import trace_text
from tunesmith.tuning.study import engine, fresh
from tunesmith.tuning.study.engine_stock import tune_stock
from tunesmith.tuning.study.fresh import run_fresh
from tunesmith.tuning.study.turns import measured_in_turns
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

SMALL = {"m": 64, "n": 64, "k": 64, "transpose": "NN"}


def test_a_program_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"engine_own failed: exit status 1.*KeyError: 'operator'"):
        run_fresh("engine_own", {})


def test_a_program_that_is_interrupted_does_not_go_on(monkeypatch):
    started = []
    popen = subprocess.Popen

    def noted(*words, **options):
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)

    def interrupt(process):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_fresh("endurance_run", {}, watch=interrupt)
    assert started[0].returncode == -9


def test_a_program_answers_and_ends_with_the_study(monkeypatch, tmp_path):
    ends_with = []
    monkeypatch.setattr(fresh, "die_with", ends_with.append)
    monkeypatch.setattr(sys, "argv", ["program", '{"a": 1}', str(tmp_path / "answer"), "7"])
    fresh.answer(lambda job: {"b": job["a"]})
    assert ends_with == [7] and (tmp_path / "answer").read_text() == '{"b": 1}'


def test_ours_runs_between_the_start_and_the_end_of_a_process(monkeypatch):
    target = target_text(host_target())
    real, said = engine.run_fresh, []

    def without_stock(module, job):
        if module == "engine_stock":
            assert job["target"] == target and job["trials"] == 2
            return {"trials": 2, "right": 2, "trace": None}, 30.0
        return real(module, job)

    monkeypatch.setattr(engine, "run_fresh", without_stock)
    own, stock = engine.study_engine([("matmul", SMALL)], trials=2, say=said.append)
    assert [line.split(": ")[1].split(",")[0] for line in said] == ["tunesmith", "tune_tir", "tunesmith"]
    assert own.trials == own.right == 2 and own.seconds > 0.5 and own.best_s > 0
    assert stock.trials_per_minute == 4 and stock.best_s is None and stock.note
    assert own.shape == SMALL and own.met is None


def test_stock_is_called_as_its_users_do_and_its_best_is_a_trace(monkeypatch, small):
    """`tune_tir` is replaced by one that answers at once."""
    trace = Schedule(small.func).trace

    class Record:
        def __init__(self, *seconds):
            self.run_secs, self.trace = seconds, trace

    class Found:
        def get_all_tuning_records(self):
            return [Record(1e10), Record(2.0, 4.0), Record(3.5)]

    given = []

    def tune_tir(*words, **options):
        given.append((words, options))
        return Found()

    monkeypatch.setattr(ms, "tune_tir", tune_tir)
    job = {"func_ir": tvm.ir.save_json(small.func), "target": target_text(host_target()), "trials": 3}
    answer = tune_stock(job)
    assert answer == {"trials": 3, "right": 2, "trace": trace_text(Record())}
    ((module, target, folder, trials), options) = given[0]
    tvm.ir.assert_structural_equal(module["main"], small.func)
    assert target_text(target) == job["target"] and trials == 3 and not options
    assert not Path(folder).exists()


def test_schedules_are_checked_before_they_are_compared(small, tiles):
    target = target_text(host_target())
    trace = trace_text(tiles.scheduled(small.func, host_target()))
    right, broken, missing = measured_in_turns(small, target, [trace, '[[["Nonsense"]], []]', None])
    assert len(right.seconds) > 10 and all(seconds > 0 for seconds in right.seconds)
    assert not broken.seconds and broken.note.startswith("schedule_error: ")
    assert missing.note == "no right schedule was found"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: engine.study_engine([("matmull", SMALL)]), "unknown operator 'matmull'"),
        (lambda: engine.study_engine([("matmul", {"m": 1})]), "missing n, k"),
        (lambda: engine.study_engine(trials=0), "trials must be at least 1: trials=0"),
    ],
)
def test_the_engine_study_refuses_bad_input_before_it_runs(monkeypatch, call, message):
    monkeypatch.setattr(engine, "run_fresh", None)
    with pytest.raises(InputError, match=message):
        call()
