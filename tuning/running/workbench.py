"""The workbench of one tuning: its folder, builder and runner, which end with it, however it ends."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType

from ...kernels.operator import Workload
from ...machine.interrupts import uninterrupted
from ...machine.temporary import new_folder
from ...schedules.rule import ScheduleRule
from ..measuring.cases import Cases, prepare_cases
from ..measuring.measurement import Timing
from ..measuring.tasks import BuildJob, Built, CompareJob, Ran, RunJob
from ..processes.worker_group import WorkerGroup, start_workers
from ..records.record import Status
from ..remote.runner import RemoteRunner
from ..remote.tracker import Remote
from .builder import Builder, build_all, portable_rule
from .device import Device, this_machine
from .pipeline import AnyRunner, Pipeline
from .runner import Runner


class Workbench:
    """Worker processes and a temporary folder.

    Parameters
    ----------
    timeout_s : float
        The longest that building one candidate may take, and that running it may take.
    builders : int or None
        How many processes compile; the CPUs usable by default.
    group : WorkerGroup or None
        Workers that were started before, see `start_workers`; they end with the workbench.
    remote : Remote or None
        Where to run candidates; on this machine by default.

    Raises
    ------
    InputError
        No server of the remote could be had.
    """

    def __init__(
        self,
        timeout_s: float = 10.0,
        builders: int | None = None,
        group: WorkerGroup | None = None,
        remote: Remote | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.folder = new_folder()
        self._libraries = 0
        self._cases: dict[str, Cases] = {}
        try:
            runners = 1 if remote is None else remote.servers().total
            self._group = group or start_workers(builders, runners)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        workers = self._group.workers
        self._runners: list[AnyRunner] = [
            Runner(timeout_s, worker) if remote is None else RemoteRunner(timeout_s, worker, remote)
            for worker in workers[:runners]
        ]
        self._builders = [Builder(timeout_s, worker) for worker in workers[runners:]]

    def __enter__(self) -> Workbench:
        """Return the workbench itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers and remove the folder."""
        self.close()

    def close(self) -> None:
        """End the workers and remove the folder."""
        with uninterrupted():
            self._group.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @cached_property
    def device(self) -> Device:
        """The machine that candidates run on.

        Raises
        ------
        InputError
            It is remote, and no server could be had, or none that works.
        """
        runner = self._runners[0]
        if isinstance(runner, Runner):
            return this_machine()
        machine = runner.machine(self.folder)
        return Device(machine.fingerprint, machine.threads, machine.target(), runner.device)

    def job(
        self,
        workload_ir: str,
        target: str,
        rule: ScheduleRule | None = None,
        knobs: Mapping[str, int] | None = None,
        trace: str | None = None,
        quick: bool = False,
    ) -> BuildJob:
        """Describe a candidate to build; its library gets a name that no other has."""
        self._libraries += 1
        library = str(Path(self.folder) / f"candidate{self._libraries}.so")
        portable = None if rule is None else portable_rule(rule)
        return BuildJob(workload_ir, target, library, portable, knobs, trace, quick)

    def cases(self, workload: Workload) -> Cases:
        """Return a workload's test cases: made once, because who has read them expects them not to change."""
        if workload.hash not in self._cases:
            self._cases[workload.hash] = prepare_cases(workload, f"{self.folder}/{workload.hash}")
        return self._cases[workload.hash]

    def pipeline(self) -> Pipeline:
        """Return a pipeline of these workers."""
        return Pipeline(self._builders, self._runners)

    def build(self, jobs: Sequence[BuildJob]) -> list[Built]:
        """Build candidates in parallel."""
        return build_all(self._builders, jobs)

    def check(self, built: Built, cases: Cases, give_up_s: float = inf) -> Ran:
        """Run and check one candidate that was built; one slower than ``give_up_s`` is not verified."""
        if built.status is not Status.OK:
            return Ran(built.status, built.message)
        job = RunJob(built.library, cases, Timing(), give_up_s)
        runner = self._runners[0]
        if isinstance(runner, Runner):
            return runner.check(job)
        runner.start_check(job)
        while (ran := runner.result()) is None:
            wait([runner.connection], runner.timeout_s)
        return ran

    def compare(
        self, built: Sequence[Built], cases: Cases, timing: Timing, rounds: int
    ) -> list[list[float]] | None:
        """Measure candidates in turns in a fresh process; None where one of them takes it down."""
        # A worker that is starting would disturb the measurement.
        self._group.wait_until_ready()
        return self._runners[0].compare(CompareJob(tuple(b.library for b in built), cases, timing, rounds))
