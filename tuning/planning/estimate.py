"""Estimates: how long the trials of a workload will take, and what that is known from."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ...kernels.operator import Workload
from ...machine.flush import flush_seconds
from ...machine.peaks import roofline_seconds
from ...machine.process import usable_cpus
from ..measuring.arithmetic import seconds_of_trial
from ..measuring.library import export_kernel
from ..measuring.measurement import Timing
from ..records.record import Record
from ..reporting.pace import recorded_seconds
from ..search import Search

# Fewer trials say nothing about the next ones.
_FEW = 4


@dataclass(frozen=True)
class Estimate:
    """What is expected of a workload's trials.

    Parameters
    ----------
    call_s : float or None
        Seconds of one call; None where nothing is known of the device.
    trial_s : float or None
        Seconds from the end of one trial to the end of the next.
    basis : str
        What that is known from.
    flush_s : float
        Seconds to empty the caches before a timed call; 0 where they stay warm, or another machine does it.
    """

    call_s: float | None
    trial_s: float | None
    basis: str
    flush_s: float = 0.0


class Estimator:
    """What a database tells about the time of trials on one device, and what is assumed where it does not.

    Parameters
    ----------
    records : sequence of Record
        Those of the device.
    target : Target
        What is compiled for.
    local : bool
        Whether candidates run on this machine.
    timing : Timing
        How they are timed.
    timeout_s : float
        The longest that one step of a trial may take.
    may_build : bool
        Whether to build a default schedule where nothing else says how long that takes.
    """

    def __init__(
        self,
        records: Sequence[Record],
        target: Any,
        local: bool,
        timing: Timing,
        timeout_s: float,
        may_build: bool,
    ) -> None:
        self._records = records
        # Building, checking, timing.
        self._lasted = recorded_seconds(self._records, 3 * timeout_s)
        self.target, self.timing = target, timing
        self._local, self._may_build = local, may_build
        self._flush_s = flush_seconds() if timing.cold_cache and local else 0.0
        self._build_s: float | None = None

    def call_s(self, workload: Workload) -> float | None:
        """Return seconds of the fastest call known; else, on this machine, the least that its peaks allow."""
        known = [r.median_s for r in self._records if r.workload_hash == workload.hash and r.usable]
        if known:
            return min(seconds for seconds in known if seconds is not None)
        if not self._local:
            return None
        return roofline_seconds(workload.flops, workload.bytes_moved, workload.dtype)

    def estimate(self, workload: Workload, search: Search) -> Estimate:
        """Estimate from trials of the workload, else of other shapes, else from a build made now."""
        call_s = self.call_s(workload)
        alike = [r for r in self._records if (r.operator, r.space) == (workload.name, search.name)]
        same = [r for r in alike if r.workload_hash == workload.hash]
        for records, whose in ((same, "of this workload"), (alike, "of this operator")):
            lasted = [self._lasted[r.id] for r in records if r.id in self._lasted]
            if len(lasted) >= _FEW:
                return Estimate(call_s, mean(lasted), f"{len(lasted)} trials {whose}", self._flush_s)
        if call_s is None:
            return Estimate(None, None, "unknown: no trials on this device yet")
        if not self._may_build:
            return Estimate(call_s, None, "not estimated", self._flush_s)
        build_s = self._build_s = self._build_s or self._built_in(workload, search)
        trial_s = build_s / usable_cpus() + seconds_of_trial(call_s, self.timing, self._flush_s)
        basis = f"assumed: builds of {build_s:.2g} s on {usable_cpus()} CPUs, calls at the roofline"
        return Estimate(call_s, trial_s, basis, self._flush_s)

    def _built_in(self, workload: Workload, search: Search) -> float:
        """Build the default schedule now and return its seconds."""
        with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
            start = time.perf_counter()
            schedule = search.default_rule.scheduled(workload.func, self.target, search.default.knobs)
            export_kernel(schedule, self.target, str(Path(folder, "default.so")))
            return time.perf_counter() - start
