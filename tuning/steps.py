"""What each step of a schedule buys: the loop nest after it, its time, and the gain over the step before.

Each step is built as a schedule of its own, checked against the reference in a process that starts anew after
one that crashes it, and measured there in turns with the others: a disturbance of the machine meets all of
them, and arrays as large as the workload's exist once, not once a step. Most steps gain nothing
alone: a loop is split so that a later step can put its parts where they serve.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

import tvm

from ..kernels.operator import Workload
from ..machine.process import usable_cpus
from ..machine.target import as_target, target_text
from ..machine.temporary import new_folder
from ..schedules.loop_nest import loop_nest
from ..schedules.steps import changed_lines, schedule_steps
from .benchmark.bench_tasks import KernelJob, LibraryTurn, Prepared, prepare_kernel, time_library
from .measuring.cases import Cases, prepare_cases
from .measuring.measurement import Timing, noise_of
from .measuring.tasks import BuildJob, Built
from .processes.worker import Worker, WorkerCrash, WorkerError, WorkerTimeout
from .processes.worker_group import WorkerGroup
from .records.compilation import trace_text
from .records.record import Status
from .running.builder import Builder, build_all
from .running.runner import device_lock

# The longest that building one step may take, and that checking it may take. Loops that are unrolled and not
# yet vectors take LLVM 2 s where it has a core to itself, several times as long where it has not.
_LIMIT_S = 15.0
# A step is measured in so many rounds; one that is slow in fewer, until it has taken so long.
_ROUNDS = 11
_LONGEST_S = 2.0
_TIMING = Timing(min_repeat_ms=10.0)
_PRELOAD = ("tvm", "tunesmith.tuning.measuring.tasks", "tunesmith.tuning.benchmark.bench_tasks")


@dataclass(frozen=True)
class TimedStep:
    """A step of a schedule and what it is worth.

    Parameters
    ----------
    step : int
        Its number; 0 is the unscheduled function.
    primitive, code, words : str
        The primitive, its call in Python, and what it does; empty for the unscheduled function.
    loop_nest : str
        The loop nest after the step.
    changes : tuple of str
        The lines of it that are new, and those that are gone, with some around them.
    status : str
        ``ok``, or how building, running or checking it failed.
    verified : bool
        It was right on every test case.
    message : str
        What went wrong.
    median_s : float or None
        Seconds of one call.
    noise : float or None
        By which part of itself the median may be off; None of a single time.
    gain, gain_in_all : float or None
        How many times as fast as the step before, and as the unscheduled function.
    """

    step: int
    primitive: str
    code: str
    words: str
    loop_nest: str
    changes: tuple[str, ...]
    status: str = Status.OK
    verified: bool = False
    message: str = ""
    median_s: float | None = None
    noise: float | None = None
    gain: float | None = None
    gain_in_all: float | None = None


def time_steps(
    workload: Workload,
    schedule: Any,
    target: Any = "host",
    say: Callable[[str], None] = lambda line: None,
) -> list[TimedStep]:
    """Time a schedule step by step.

    Parameters
    ----------
    workload : Workload
        What to compute.
    schedule : tvm.s_tir.Schedule
        A schedule of it, with its trace.
    target : Target or str
        What to compile for; it must run on this machine.
    say : callable
        Told in a line what is being done.

    Returns
    -------
    list of TimedStep
        The unscheduled function first; then each step that changes the loops.
    """
    steps = schedule_steps(schedule, workload.func)
    told = [TimedStep(0, "", "", "", loop_nest(workload.func), ())]
    for number, step in enumerate(steps, start=1):
        nest = step.nest
        changes = tuple(changed_lines(told[-1].loop_nest, nest))
        told.append(TimedStep(number, step.primitive, step.code, step.words, nest, changes))
    say(f"{workload.label} {workload.dtype}: building, checking and timing {len(steps)} steps")
    traces = [None, *(trace_text(step.schedule) for step in steps)]
    outcomes, seconds = _measured(workload, traces, target_text(as_target(target)))
    before: list[list[float]] = [[], *seconds]
    return [
        replace(
            step,
            status=outcome.status.value,
            verified=outcome.status is Status.OK,
            message=outcome.message,
            median_s=median(mine) if mine else None,
            noise=noise_of(mine) if len(mine) > 1 else None,
            gain=_gain(last, mine),
            gain_in_all=_gain(seconds[0], mine) if step.step else None,
        )
        for step, outcome, mine, last in zip(told, outcomes, seconds, before, strict=False)
    ]


def _gain(before: Sequence[float], after: Sequence[float]) -> float | None:
    return median(before) / median(after) if before and after else None


@dataclass(frozen=True)
class _Outcome:
    """What became of building and checking a step, and about how long one call takes."""

    status: Status
    message: str = ""
    call_s: float = 0.0

    @property
    def rounds(self) -> int:
        """In how many rounds to time it."""
        if self.status is not Status.OK:
            return 0
        # Each turn makes one more call, which does not count.
        turn_s = (_TIMING.calls(self.call_s) + 1) * self.call_s
        return max(1, min(_ROUNDS, int(_LONGEST_S / turn_s)))


def _measured(
    workload: Workload, traces: Sequence[str | None], target: str
) -> tuple[list[_Outcome], list[list[float]]]:
    """Build, check and time the schedules of these traces; return for each what became of it, and seconds."""
    with ExitStack() as stack:
        folder = new_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        workers = stack.enter_context(WorkerGroup(usable_cpus(), preload=_PRELOAD, growth_bytes=inf)).workers
        ir = tvm.ir.save_json(workload.func)
        jobs = [BuildJob(ir, target, f"{folder}/step{n}.so", trace=t) for n, t in enumerate(traces)]
        built = build_all([Builder(_LIMIT_S, worker) for worker in workers], jobs)
        cases = prepare_cases(workload, f"{folder}/cases")
        with device_lock():
            outcomes = [_checked(workers[0], each, cases) for each in built]
            return outcomes, _timed_in_turns(workers[0], built, outcomes, cases)


def _checked(worker: Worker, built: Built, cases: Cases) -> _Outcome:
    """Run a step on the test cases."""
    if built.status is not Status.OK:
        return _Outcome(built.status, built.message)
    try:
        with worker.alone():
            ready: Prepared = worker.call(prepare_kernel, KernelJob(built.library, cases), _LIMIT_S)
    except WorkerTimeout:
        return _Outcome(Status.RUN_TIMEOUT, f"not checked within {_LIMIT_S:g} s")
    except WorkerCrash as error:
        return _Outcome(Status.CRASHED, str(error))
    except WorkerError as error:
        return _Outcome(Status.RUN_ERROR, str(error))
    return _Outcome(Status.OK if ready.verified else Status.WRONG_RESULT, ready.note, ready.call_s)


def _timed_in_turns(
    worker: Worker, built: Sequence[Built], outcomes: Sequence[_Outcome], cases: Cases
) -> list[list[float]]:
    """Time every step that is right once a round; the slow ones sit out the last rounds."""
    seconds: list[list[float]] = [[] for _ in built]
    with worker.alone():
        for turn in range(_ROUNDS):
            for step, outcome, found in zip(built, outcomes, seconds, strict=True):
                if turn < outcome.rounds:
                    job = LibraryTurn(step.library, cases, _TIMING.calls(outcome.call_s))
                    found.append(worker.call(time_library, job, 10 * _LIMIT_S))
    return seconds
