"""Measure single points of a knob space so that points measured in different minutes compare.

A machine that others use is some percents faster or slower from one minute to the next: more than lies
between good points. So a point is timed in turns with the default of its space, in a fresh process, and its
seconds are those at the speed that the machine had when the default alone was timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from types import TracebackType
from typing import Any

import tvm

from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.target import target_text
from ..measuring.measurement import Timing
from ..measuring.tasks import BuildJob, Built, Ran, remove_build
from ..records.candidate import knob_candidate
from ..records.record import Record, Status
from ..running.device import this_machine
from ..running.pipeline import Trial
from ..running.workbench import Workbench
from ..search import Search
from ..trial import TrialOrigin

MADE_BY = "study strategies"
"""What stands in a record where others have the strategy: times of a tuning do not compare with these."""

# Longer calls differ less from one to the next, and fewer rounds will do.
_ROUNDS, _ROUNDS_OF_LONG, _LONG_S = 11, 5, 0.05
# A point slower than the default by more than this is nobody's goal, and timed once.
_GIVE_UP_FACTOR = 3.0


class Meter:
    """Builds, checks and times points of one workload's space; a context manager.

    Parameters
    ----------
    workload : Workload
        Whose schedules.
    search : Search
        A knob space.
    target : Target
        What is compiled for.
    timing : Timing
        How long a repetition is, and what comes before it.
    default_s : float or None
        Seconds of the default at the speed to which times refer; None: it is measured now.

    Raises
    ------
    InputError
        The default cannot be measured: there is nothing to compare with.
    """

    def __init__(
        self, workload: Workload, search: Search, target: Any, timing: Timing, default_s: float | None = None
    ) -> None:
        self._search, self._timing = search, timing
        self._func_ir, self._target = tvm.ir.save_json(workload.func), target_text(target)
        self._bench = Workbench()
        self._cases = self._bench.cases(workload)
        self._origin = TrialOrigin(workload, self._func_ir, self._target, MADE_BY, 0, timing, this_machine())
        try:
            self._default = self._built_default()
            self._default_s = default_s or self._seconds_of_default()
        except BaseException:
            self._bench.close()
            raise

    def __enter__(self) -> Meter:
        """Return the meter itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker processes."""
        self._bench.close()

    def __call__(self, knobs: Mapping[str, int]) -> Record:
        """Return the record of a new trial of a point; its time depends on no earlier trial of it."""
        job = self._job(knobs)
        (built,) = self._bench.build([job])
        ran = self._bench.check(built, self._cases, _GIVE_UP_FACTOR * self._default_s)
        if ran.verified:
            ran = self._timed(built, ran)
        remove_build(job.library)
        return self._origin.record(Trial(knob_candidate(knobs), self._search.name, job, built, ran))

    def _job(self, knobs: Mapping[str, int] | None) -> BuildJob:
        return self._bench.job(self._func_ir, self._target, self._search.rule, knobs)

    def _timed(self, built: Built, ran: Ran) -> Ran:
        """Time a point in turns with the default; return its seconds at the speed they refer to."""
        rounds = _ROUNDS if self._default_s < _LONG_S else _ROUNDS_OF_LONG
        found = self._bench.compare((self._default, built), self._cases, self._timing, rounds)
        if found is None:
            return Ran(Status.CRASHED, "crashed or hung while it was timed", max_error=ran.max_error)
        seconds = tuple(mine / other * self._default_s for other, mine in zip(*found, strict=True))
        return replace(ran, run_secs=seconds)

    def _built_default(self) -> Built:
        (built,) = self._bench.build([self._job(self._search.default.knobs)])
        ran = self._bench.check(built, self._cases)
        if not ran.verified:
            raise self._not_timed(f"it ended in {ran.status}: {ran.message}")
        return built

    def _seconds_of_default(self) -> float:
        found = self._bench.compare((self._default,), self._cases, self._timing, _ROUNDS)
        if found is None:
            raise self._not_timed("it crashed or hung")
        return median(found[0])

    def _not_timed(self, why: str) -> InputError:
        return InputError(
            f"points of {self._origin.workload.label} are timed in turns with the default of the space "
            f"{self._search.name!r}, but {why}; give another --space"
        )
