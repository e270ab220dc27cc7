"""The pipeline: candidates are built ahead in some workers, and run in others.

What runs on this machine uses every CPU, be it to be checked or to be timed. So for the time it takes,
builders are held where they are (SIGSTOP), this process waits, and a lock keeps the measurements of other
processes away: a check that shares the CPUs with compilers takes twenty times as long. What runs on other
machines runs while builders go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait

from ..measuring.cases import Cases
from ..measuring.measurement import Timing
from ..measuring.tasks import BuildJob, Built, Ran, RunJob, remove_build
from ..records.candidate import Candidate
from ..records.record import Record, Status
from ..remote.runner import RemoteRunner
from .builder import Builder
from .runner import Runner, device_lock

AnyRunner = Runner | RemoteRunner


@dataclass
class Trial:
    """A candidate on its way through the pipeline.

    Parameters
    ----------
    candidate : Candidate
        What is tried.
    space : str
        Whose candidate it is.
    job : BuildJob
        How it is built.
    built, ran : Built or None, Ran or None
        What became of it so far.
    same_as : Record or None
        An earlier trial with the same binary: this one was not run.
    goes_first : bool
        Whether no other one is run before it.
    """

    candidate: Candidate
    space: str
    job: BuildJob
    built: Built | None = None
    ran: Ran | None = None
    same_as: Record | None = None
    goes_first: bool = False


@dataclass(frozen=True)
class Conditions:
    """What running a session's candidates depends on.

    Parameters
    ----------
    cases : Cases
        What they run on.
    timing : Timing
        How they are timed.
    limits : callable
        Returns the seconds above which a candidate is given up, and those of the best so far.
    known : callable
        Returns the record of an earlier trial with a given binary, or None.
    """

    cases: Cases
    timing: Timing
    limits: Callable[[], tuple[float, float]]
    known: Callable[[str], Record | None]


class Pipeline:
    """Builders and runners, and the trials between them.

    Parameters
    ----------
    builders : sequence of Builder
        Who compiles.
    runners : sequence of Runner or RemoteRunner
        Who checks and times, one device each.
    """

    def __init__(self, builders: Sequence[Builder], runners: Sequence[AnyRunner]) -> None:
        self._waiting: deque[Trial] = deque()
        self._idle = deque(builders)
        self._building: dict[Builder, Trial] = {}
        self._built: deque[Trial] = deque()
        self._runners = tuple(runners)
        self._running: dict[RemoteRunner, Trial] = {}
        self._ended: deque[Trial] = deque()
        self.seconds = dict.fromkeys(("build", "verify", "run"), 0.0)

    def __len__(self) -> int:
        """Count the trials that have not been handed back."""
        on_their_way = (self._waiting, self._building, self._built, self._running, self._ended)
        return sum(map(len, on_their_way))

    def submit(self, trial: Trial) -> None:
        """Take a candidate in; it is built as soon as a builder is free."""
        self._waiting.append(trial)
        self._start_builds()

    def next_ended(self, conditions: Conditions) -> Trial:
        """Wait until a trial has ended and hand it back; there must be one on its way."""
        while not self._ended:
            self._start_builds()
            self._start_runs(conditions)
            if not self._ended:
                self._wait()
                self._take_builds()
                self._take_runs()
        return self._ended.popleft()

    def discard(self) -> None:
        """Drop every trial on its way; workers that are busy with one start afresh."""
        for worker in self._busy:
            worker.restart()
        self._idle.extend(self._building)
        for trials in (self._waiting, self._building, self._built, self._running, self._ended):
            trials.clear()

    @property
    def _busy(self) -> list[Builder | RemoteRunner]:
        return [*self._building, *self._running]

    def _start_builds(self) -> None:
        while self._waiting and self._idle:
            trial, builder = self._waiting.popleft(), self._idle.popleft()
            builder.start(trial.job)
            self._building[builder] = trial

    def _start_runs(self, conditions: Conditions) -> None:
        """Give what is built to runners that are free; what was measured before needs none."""
        if any(trial.goes_first for trial in (*self._waiting, *self._building.values())):
            return
        for runner in self._runners:
            # What has ended is recorded first: the next one may be the same binary.
            while self._built and runner not in self._running and not self._ended:
                trial = self._built.popleft()
                assert trial.built is not None
                trial.same_as = conditions.known(trial.built.binary)
                if trial.same_as is not None:
                    self._end(trial, _ran_as(trial.same_as))
                    continue
                job = _run_job(trial, conditions)
                if isinstance(runner, Runner):
                    self._end(trial, self._ran_alone(runner, job))
                else:
                    runner.start_check(job)
                    self._running[runner] = trial

    def _wait(self) -> None:
        """Wait for a builder or a remote runner."""
        left = min(worker.deadline for worker in self._busy) - time.monotonic()
        with self._counted("run" if self._running else "build"):
            wait([worker.connection for worker in self._busy], max(0.0, left))

    def _take_builds(self) -> None:
        for builder, trial in list(self._building.items()):
            built = builder.result()
            if built is None:
                continue
            del self._building[builder]
            self._idle.append(builder)
            trial.built = built
            if built.status is Status.OK:
                self._built.appendleft(trial) if trial.goes_first else self._built.append(trial)
            else:
                self._end(trial, Ran(built.status, built.message))

    def _take_runs(self) -> None:
        for runner, trial in list(self._running.items()):
            ran = runner.result()
            if ran is not None:
                del self._running[runner]
                self._end(trial, ran)

    def _ran_alone(self, runner: Runner, job: RunJob) -> Ran:
        """Check a candidate on this machine, and time it if it is right, while all builders are held."""
        builders = list(self._building)
        ended = False
        try:
            for builder in builders:
                builder.hold()
            with device_lock():
                with self._counted("verify"):
                    ran = runner.check(job)
                if ran.verified and not ran.run_secs:
                    with self._counted("run"):
                        ran = runner.time(job, ran)
            ended = True
            return ran
        finally:
            for builder in builders:
                builder.let_go()
            if not ended:
                # Interrupted: what the worker is at concerns nobody any more.
                runner.restart()

    @contextmanager
    def _counted(self, part: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[part] += time.monotonic() - start

    def _end(self, trial: Trial, ran: Ran) -> None:
        trial.ran = ran
        remove_build(trial.job.library)
        self._ended.append(trial)


def _run_job(trial: Trial, conditions: Conditions) -> RunJob:
    assert trial.built is not None
    return RunJob(trial.built.library, conditions.cases, conditions.timing, *conditions.limits())


def _ran_as(record: Record) -> Ran:
    """Return the outcome of an earlier trial with the same binary."""
    return Ran(
        record.status,
        f"the same binary as record {record.id}, which was measured",
        record.verified,
        record.max_error,
        record.run_secs,
        record.calls,
    )
