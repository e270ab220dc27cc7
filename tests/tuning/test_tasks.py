"""What workers do with a candidate that is slow, hangs or asserts something, and how a runner uses one."""

import os
import signal
import time
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace

import pytest
from tunesmith.tuning.measuring.cases import alarm
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.measuring.tasks import Ran, RunJob, check
from tunesmith.tuning.measuring.verdict import Verdict
from tunesmith.tuning.processes.worker import WorkerCrash
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.running.runner import Runner


def job(give_up_s=inf, best_s=inf):
    return RunJob("", None, Timing(), give_up_s, best_s)


class FakeCase:
    """A test case on which every run takes so many seconds and is right."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, []

    def check(self, kernel, hopeless_s, deadline_s):
        self.asked.append((hopeless_s, deadline_s))
        return Verdict(True, 0.25, ""), self.seconds


@pytest.mark.parametrize(
    ("seconds", "give_up_s", "packs", "cases_run"),
    [
        (0.5, inf, False, 3),
        (0.5, 0.5, False, 3),
        (0.51, 0.5, False, 1),
        # Checks of what is this short take no time worth saving, and another process may have run meanwhile.
        (0.002, 0.001, False, 3),
        (0.009, 0.001, False, 3),
        (0.021, 0.001, False, 1),
        # Packing a weight is no part of what is timed.
        (0.51, 0.5, True, 3),
    ],
)
def test_what_is_given_up_anyway_is_run_on_one_case(seconds, give_up_s, packs, cases_run):
    cases = [FakeCase(seconds) for _ in range(3)]
    ran = check(SimpleNamespace(packs=packs), cases, job(give_up_s), 7.0)
    assert [len(case.asked) for case in cases] == [1] * cases_run + [0] * (3 - cases_run)
    assert ran.status is Status.OK and ran.max_error == 0.25 and ran.verified == (cases_run == 3)
    assert ran.run_secs == (() if ran.verified else (seconds,)) and bool(ran.message) != ran.verified
    limit = inf if packs else 2 * max(0.02, give_up_s)
    assert cases[0].asked == [(limit, 7.0)]


@pytest.mark.parametrize(("best_s", "deadline_s"), [(inf, inf), (1.0, 50.0), (1e-6, 0.5)])
def test_the_end_of_a_run_is_not_waited_for_in_vain(best_s, deadline_s):
    assert job(best_s=best_s).deadline_s == deadline_s


def end_of(alarm_s, inside_s, after_s=0.0):
    """Let time pass inside an alarm and after it in another process, and return how that ended."""
    process = os.fork()
    if process == 0:
        with alarm(alarm_s):
            time.sleep(inside_s)
        time.sleep(after_s)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize(("seconds", "ended_by"), [(0.05, -signal.SIGALRM), (inf, 0), (9, 0)])
def test_alarm_ends_the_process(seconds, ended_by):
    assert end_of(seconds, 0.2) == ended_by


def test_alarm_is_over_with_its_block():
    assert end_of(0.2, 0.0, 0.4) == 0


class FakeWorker:
    """A worker that is held except in `alone`, and whose every task ends as the test says."""

    def __init__(self, outcome):
        self.outcome, self.held = outcome, True

    @contextmanager
    def alone(self):
        self.held = False
        try:
            yield
        finally:
            self.held = True

    def call(self, task, payload, timeout_s):
        assert not self.held
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        (Ran(Status.OK), Status.OK, ""),
        (WorkerCrash("SIGSEGV; its last output: oh"), Status.CRASHED, "SIGSEGV; its last output: oh"),
        (WorkerCrash("SIGALRM"), Status.RUN_TIMEOUT, "stopped after 1 s, 50 times the best so far"),
    ],
)
def test_the_worker_is_held_when_its_task_has_ended(outcome, status, message):
    worker = FakeWorker(outcome)
    ran = Runner(1.0, worker).check(job(0.04, 0.02))
    assert (ran.status, ran.message, worker.held) == (status, message, True)
