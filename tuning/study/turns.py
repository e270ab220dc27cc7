"""Schedules of one workload measured against each other, in turns, in a fresh process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tvm

from ...kernels.operator import Workload
from ..measuring.cases import prepare_cases
from ..measuring.measurement import Timing
from ..records.record import Status
from ..running.workbench import Workbench

_ROUNDS = 31
# Nobody waits for a better one here: a schedule may take its time.
_TIMEOUT_S = 60.0


class Turns(NamedTuple):
    """Seconds of one call, a value a round; where there are none the note says why."""

    seconds: Sequence[float]
    note: str = ""


UNMEASURED = Turns(())


def measured_in_turns(workload: Workload, target: str, traces: Sequence[str | None]) -> list[Turns]:
    """Replay traces, build and check them, and time those that are right, each of them once in every round.

    A trace that is None stands for a schedule that was not found.
    """
    found = [Turns((), "no right schedule was found")] * len(traces)
    func_ir = tvm.ir.save_json(workload.func)
    with Workbench(_TIMEOUT_S) as bench:
        cases = prepare_cases(workload, f"{bench.folder}/{workload.hash}")
        given = [i for i, trace in enumerate(traces) if trace is not None]
        built = bench.build([bench.job(func_ir, target, trace=traces[i]) for i in given])
        ran = [bench.check(each, cases) for each in built]
        right = [n for n, each in enumerate(ran) if each.status is Status.OK]
        compared = bench.compare([built[n] for n in right], cases, Timing(), _ROUNDS) if right else None
    for n, i in enumerate(given):
        if n not in right:
            found[i] = Turns((), f"{ran[n].status}: {ran[n].message}")
        elif compared is None:
            found[i] = Turns((), "one of the schedules crashed in the comparison")
        else:
            found[i] = Turns(compared[right.index(n)])
    return found
