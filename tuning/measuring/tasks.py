"""What workers do: build a candidate; run, check and time it; compare finalists with each other."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import cloudpickle

from ... import schedules
from ...machine.errors import InputError, last_line
from ...machine.target import as_target
from ...schedules.rule import ScheduleRule
from ..records.compilation import replay_trace, trace_text
from ..records.plain_text import read_program
from ..records.record import Status
from .cases import Cases, LoadedCase, loaded_cases
from .library import LoadedKernel, export_kernel, library_hash
from .measurement import Timing, measure, measure_in_turns

# A first run pays for what is done once: one that takes so many times what is allowed needs no second one.
_HOPELESS_TIMES = 2.0
# Nor is its end waited for, where it takes so many times as long as the best so far, and longer than this.
_ENDLESS_TIMES = 50.0
_ENDLESS_S = 0.5
# Where a run is shorter, all checks together take no time worth saving, and it may be another process that
# took most of it: a system gives each of them 4 to 8 ms in turns.
_SHORT_S = 0.02


@dataclass(frozen=True)
class BuildJob:
    """A candidate to build.

    Parameters
    ----------
    func_ir : str
        The unscheduled PrimFunc as TVM's JSON.
    target : str
        The target's JSON text.
    library : str
        Where to put the shared library.
    rule : str or bytes or None
        The schedule rule: its name, or a pickled one that has none here.
    knobs : mapping or None
        The rule's knobs.
    trace : str or None
        A trace to replay instead. Neither rule nor trace: the function is compiled as it is.
    quick : bool
        Whether it is compiled for its trial only, see `generate_code`.
    """

    func_ir: str
    target: str
    library: str
    rule: str | bytes | None = None
    knobs: Mapping[str, int] | None = None
    trace: str | None = None
    quick: bool = False


@dataclass(frozen=True)
class Built:
    """What became of a build: a status other than ok, or a library, its hash and its schedule's trace.

    ``build_s`` are seconds of CPU.
    """

    status: Status
    message: str = ""
    library: str = ""
    trace: str | None = None
    build_s: float | None = None
    binary: str = ""


@dataclass(frozen=True)
class RunJob:
    """A built candidate to check, and then to time.

    Parameters
    ----------
    library : str
        The shared library.
    cases : Cases
        What it runs on.
    timing : Timing
        How it is timed.
    give_up_s : float
        A candidate slower than this is timed once only.
    best_s : float
        Seconds of the best so far: who is far from it needs no exact time.
    """

    library: str
    cases: Cases
    timing: Timing
    give_up_s: float = inf
    best_s: float = inf

    @property
    def deadline_s(self) -> float:
        """Seconds after which the first run of a candidate is not waited for any more."""
        return max(_ENDLESS_S, _ENDLESS_TIMES * self.best_s)


@dataclass(frozen=True)
class Ran:
    """What became of checking and timing a candidate; ``calls`` is how many one repetition averages."""

    status: Status
    message: str = ""
    verified: bool = False
    max_error: float | None = None
    run_secs: tuple[float, ...] = ()
    calls: int = 0


@dataclass(frozen=True)
class CompareJob:
    """Finalists to measure against each other: ``rounds`` rounds, each of them once in every round."""

    libraries: tuple[str, ...]
    cases: Cases
    timing: Timing
    rounds: int


def build_candidate(job: BuildJob) -> Built:
    """Schedule, compile and link one candidate."""
    parts = Path(parts_folder(job.library))
    parts.mkdir(exist_ok=True)
    # Whoever needs temporary files: of a build that is killed, too, they are known.
    tempfile.tempdir = os.environ["TMPDIR"] = str(parts)
    try:
        return _built(job)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def parts_folder(library: str) -> str:
    """Return the folder for temporary files of a library's build."""
    return f"{library}.parts"


def remove_build(library: str) -> None:
    """Remove a library and what belongs to it, or what is left of a build that failed."""
    for file in (library, f"{library}.json"):
        Path(file).unlink(missing_ok=True)
    shutil.rmtree(parts_folder(library), ignore_errors=True)


def _built(job: BuildJob) -> Built:
    start = _cpu_seconds()
    func, target = _func(job.func_ir), as_target(job.target)
    try:
        schedule = _schedule(job, func, target)
    except Exception as error:
        return Built(Status.SCHEDULE_ERROR, last_line(error))
    trace = job.trace or (trace_text(schedule) if schedule is not func else None)
    try:
        export_kernel(schedule, target, job.library, job.quick)
    except Exception as error:
        return Built(Status.BUILD_ERROR, last_line(error), trace=trace)
    seconds = _cpu_seconds() - start
    return Built(Status.OK, "", job.library, trace, seconds, library_hash(job.library))


def _cpu_seconds() -> float:
    """Return how long this process and those it started have used a CPU: not while it was held, or waited."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@lru_cache(maxsize=4)
def _func(func_ir: str) -> Any:
    return read_program(func_ir)


def _schedule(job: BuildJob, func: Any, target: Any) -> Any:
    if job.trace is not None:
        return replay_trace(job.trace, func)
    if job.rule is None:
        return func
    rule = _rule(job.rule)
    schedule = rule.scheduled(func, target, job.knobs)
    if schedule is None:
        raise InputError(f"the schedule {rule.name} does not apply")
    return schedule


@lru_cache(maxsize=4)
def _rule(rule: str | bytes) -> ScheduleRule:
    found: ScheduleRule = schedules.rule(rule) if isinstance(rule, str) else cloudpickle.loads(rule)
    return found


def check_candidate(job: RunJob) -> Ran:
    """Run a library on every test case and judge its outputs; one that takes too long is given up early."""
    return check(_kernel(job.library), loaded_cases(job.cases), job, job.deadline_s)


def check(kernel: LoadedKernel, cases: Sequence[LoadedCase], job: RunJob, deadline_s: float = inf) -> Ran:
    """Run a kernel on test cases, wherever both are, and judge its outputs; see `LoadedCase.check`."""
    # With its weight to pack, a call takes longer than it is timed for.
    enough_s = inf if kernel.packs else max(_SHORT_S, job.give_up_s)
    errors = [0.0]
    for case in cases:
        verdict, seconds = case.check(kernel, _HOPELESS_TIMES * enough_s, deadline_s)
        if not verdict.ok:
            return Ran(Status.WRONG_RESULT, verdict.message, max_error=verdict.max_error)
        errors.append(verdict.max_error or 0.0)
        if seconds > enough_s:
            note = "run on one of its test cases only: far slower than the best so far"
            return Ran(Status.OK, note, False, max(errors), (seconds,), 1)
    return Ran(Status.OK, verified=True, max_error=max(errors))


def time_candidate(job: RunJob) -> Ran:
    """Time a library that was right, and look at its output once more: it was called many times."""
    return time_on(_kernel(job.library), loaded_cases(job.cases)[0], job)


def time_on(kernel: LoadedKernel, case: LoadedCase, job: RunJob) -> Ran:
    """Time a kernel on a test case, wherever both are, and judge its output afterwards."""
    function, tensors = kernel.prepared(case.tensors)
    measured = measure(function, tensors, job.timing, job.give_up_s, job.best_s)
    verdict = case.verdict()
    if not verdict.ok:
        message = f"right at first, then not: {verdict.message}"
        return Ran(Status.WRONG_RESULT, message, max_error=verdict.max_error)
    return Ran(Status.OK, measured.note, True, None, measured.run_secs, measured.calls)


@lru_cache(maxsize=1)
def _kernel(library: str) -> LoadedKernel:
    """Load a library; it stays for timing what was checked."""
    return LoadedKernel(library)


def compare_candidates(job: CompareJob) -> list[list[float]]:
    """Time libraries in turns, so that a disturbance meets all of them. Seconds of one call for each."""
    return compare([LoadedKernel(library) for library in job.libraries], loaded_cases(job.cases)[0], job)


def compare(kernels: Sequence[LoadedKernel], case: LoadedCase, job: CompareJob) -> list[list[float]]:
    """Time kernels in turns on a test case, wherever they are."""
    return measure_in_turns([kernel.prepared(case.tensors) for kernel in kernels], job.timing, job.rounds)
