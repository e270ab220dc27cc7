"""What workers do: build a candidate; run, check and time it; compare finalists with each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cloudpickle
import tvm

from .. import schedules
from ..machine.errors import InputError
from ..machine.target import as_target
from ..schedules.rule import ScheduleRule
from .cases import Cases, loaded_cases
from .compilation import last_line, replay_trace, trace_text
from .library import LoadedKernel, export_kernel
from .measurement import Timing, measure, seconds_of, warm_seconds
from .record import Status

# A first estimate shorter than this is taken again before a candidate is given up: it was a cold run.
_COLD_RUN_S = 0.05


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
    """

    func_ir: str
    target: str
    library: str
    rule: str | bytes | None = None
    knobs: Mapping[str, int] | None = None
    trace: str | None = None


@dataclass(frozen=True)
class Built:
    """What became of a build: a status other than ok, or a library and the trace of its schedule."""

    status: Status
    message: str = ""
    library: str = ""
    trace: str | None = None
    build_s: float | None = None


@dataclass(frozen=True)
class RunJob:
    """A built candidate to run, check and time; slower than ``give_up_s`` it is timed once only."""

    library: str
    cases: Cases
    timing: Timing
    give_up_s: float = float("inf")


@dataclass(frozen=True)
class Ran:
    """What became of a run."""

    status: Status
    message: str = ""
    verified: bool = False
    max_error: float | None = None
    run_secs: tuple[float, ...] = ()


@dataclass(frozen=True)
class CompareJob:
    """Finalists to measure against each other: ``rounds`` rounds, each of them once in every round."""

    libraries: tuple[str, ...]
    cases: Cases
    timing: Timing
    rounds: int


def build_candidate(job: BuildJob) -> Built:
    """Schedule, compile and link one candidate."""
    start = time.perf_counter()
    func, target = _func(job.func_ir), as_target(job.target)
    try:
        schedule = _schedule(job, func, target)
    except Exception as error:
        return Built(Status.SCHEDULE_ERROR, last_line(error))
    trace = trace_text(schedule) if schedule is not func else None
    try:
        export_kernel(schedule, target, job.library)
    except Exception as error:
        return Built(Status.BUILD_ERROR, last_line(error), trace=trace)
    return Built(Status.OK, library=job.library, trace=trace, build_s=time.perf_counter() - start)


@lru_cache(maxsize=4)
def _func(func_ir: str) -> Any:
    return tvm.ir.load_json(func_ir)


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


def run_candidate(job: RunJob) -> Ran:
    """Run a library on every test case, judge the outputs, and time it if they are right."""
    kernel = LoadedKernel(job.library)
    cases = loaded_cases(job.cases)
    errors: list[float] = []
    seconds: list[float] = []
    for case in cases:
        case.clear_output()
        seconds.append(seconds_of(kernel, case.tensors))
        verdict = case.verdict()
        if not verdict.ok:
            return Ran(Status.WRONG_RESULT, verdict.message, max_error=verdict.max_error)
        errors.append(verdict.max_error or 0.0)
    run_secs, message = _timed(*kernel.prepared(cases[0].tensors), job, min(seconds))
    return Ran(Status.OK, message, True, max(errors), tuple(run_secs))


def _timed(
    kernel: Callable[..., Any], tensors: Sequence[Any], job: RunJob, estimate: float
) -> tuple[list[float], str]:
    if estimate < _COLD_RUN_S:
        estimate = min(estimate, warm_seconds(kernel, tensors))
    if estimate > job.give_up_s:
        return [estimate], "timed once: far slower than the best so far"
    return measure(kernel, tensors, job.timing, estimate), ""


def compare_candidates(job: CompareJob) -> list[list[float]]:
    """Time libraries in turns, so that a disturbance meets all of them. Seconds of one call for each."""
    tensors = loaded_cases(job.cases)[0].tensors
    calls = [LoadedKernel(library).prepared(tensors) for library in job.libraries]
    numbers = [job.timing.calls(warm_seconds(*call)) for call in calls]
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(job.rounds):
        for found, call, number in zip(seconds, calls, numbers, strict=True):
            found.append(seconds_of(*call, number))
    return seconds
