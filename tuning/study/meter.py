"""Measure single points of a knob space the way a trial is measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import tvm

from ...kernels.operator import Workload
from ...machine.target import target_text
from ..confirmation import trial_seconds
from ..measuring.cases import prepare_cases
from ..measuring.measurement import Timing
from ..records.candidate import knob_candidate
from ..records.record import Record
from ..running.device import this_machine
from ..running.pipeline import Conditions, Trial
from ..running.workbench import Workbench
from ..search import Search
from ..trial import TrialOrigin

_GIVE_UP_FACTOR = 2.0


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
        How a trial is timed.
    """

    def __init__(self, workload: Workload, search: Search, target: Any, timing: Timing) -> None:
        self._search, self._timing = search, timing
        self._func_ir, self._target = tvm.ir.save_json(workload.func), target_text(target)
        self._bench = Workbench()
        self._pipeline = self._bench.pipeline()
        self._cases = prepare_cases(workload, f"{self._bench.folder}/{workload.hash}")
        self._origin = TrialOrigin(workload, self._func_ir, self._target, "study", 0, timing, this_machine())
        self._best_s = float("inf")

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
        job = self._bench.job(self._func_ir, self._target, self._search.rule, knobs)
        self._pipeline.submit(Trial(knob_candidate(knobs), self._search.name, job))
        conditions = Conditions(self._cases, self._timing, self._limits, lambda binary: None)
        record = self._origin.record(self._pipeline.next_ended(conditions))
        if record.usable:
            self._best_s = min(self._best_s, trial_seconds(record))
        return record

    def _limits(self) -> tuple[float, float]:
        """Return the seconds above which a point is given up, and those of the best so far."""
        return _GIVE_UP_FACTOR * self._best_s, self._best_s
