"""The program of the endurance study: one long tuning in one process, which says how large it is."""

from __future__ import annotations

import sys

import psutil

from ...machine.process import import_tvm
from .fresh import Job, answer

_LINES = 20


def tune_long(job: Job) -> Job:
    """Tune a workload; return this process's memory in bytes: after the first trial, at most, last.

    The job: ``operator``, ``shape``, ``space``, ``strategy``, ``trials``, ``database``.
    """
    import_tvm()
    from ...kernels import operator
    from ..measuring.measurement import Timing
    from ..reporting.events import Event, TrialEnded
    from ..tuner import tune

    here, sizes = psutil.Process(), []

    def note(event: Event) -> None:
        if not isinstance(event, TrialEnded):
            return
        sizes.append(here.memory_info().rss)
        if event.number % max(1, job["trials"] // _LINES) == 0:
            megabytes = sizes[-1] >> 20
            line = f"{event.number} of {event.trials} trials after {event.elapsed_s:.0f} s: {megabytes} MiB"
            print(line, file=sys.stderr, flush=True)

    result = tune(
        operator(job["operator"]).workload(job["shape"]),
        trials=job["trials"],
        database=job["database"],
        space=job["space"],
        strategy=job["strategy"],
        # Nobody asks here which is faster.
        timing=Timing(repeat=1, min_repeat_ms=1.0, budget_s=0.0),
        progress=note,
    )
    end = here.memory_info().rss
    return {
        "rss_start": sizes[0] if sizes else end,
        "rss_max": max([*sizes, end]),
        "rss_end": end,
        "stopped_by": result.stopped_by,
    }


if __name__ == "__main__":
    answer(tune_long)
