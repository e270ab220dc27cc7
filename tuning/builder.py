"""The builder: compiles candidates in several worker processes, each with a timeout."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait

import cloudpickle

from .. import schedules
from ..schedules.rule import ScheduleRule
from .record import Status
from .tasks import BuildJob, Built, build_candidate
from .worker import Worker, WorkerCrash, WorkerError, WorkerTimeout


class Builder:
    """Workers that compile side by side.

    Parameters
    ----------
    timeout_s : float
        The longest that one candidate may take.
    workers : sequence of Worker
        Who compiles.
    """

    def __init__(self, timeout_s: float, workers: Sequence[Worker]) -> None:
        self.timeout_s = timeout_s
        self._workers = workers

    def build(self, jobs: Sequence[BuildJob]) -> list[Built]:
        """Build candidates in parallel; the results are in the order of the jobs."""
        results: dict[int, Built] = {}
        waiting = deque(enumerate(jobs))
        idle = deque(self._workers)
        busy: dict[Worker, tuple[int, float]] = {}
        while waiting or busy:
            while waiting and idle:
                index, job = waiting.popleft()
                worker = idle.popleft()
                worker.send(build_candidate, job)
                busy[worker] = (index, time.monotonic() + self.timeout_s)
            first_deadline = min(deadline for _, deadline in busy.values())
            ready = wait([w.connection for w in busy], max(0.0, first_deadline - time.monotonic()))
            for worker, (index, deadline) in list(busy.items()):
                if worker.connection in ready or time.monotonic() >= deadline:
                    results[index] = self._result(worker)
                    del busy[worker]
                    idle.append(worker)
        return [results[i] for i in range(len(jobs))]

    def _result(self, worker: Worker) -> Built:
        try:
            built: Built = worker.receive(0.0)
            return built
        except WorkerTimeout:
            return Built(Status.BUILD_TIMEOUT, f"not built within {self.timeout_s:g} s")
        except WorkerCrash as error:
            return Built(Status.BUILD_ERROR, f"the compiler crashed: {error}")
        except WorkerError as error:
            return Built(Status.BUILD_ERROR, str(error))


def portable_rule(rule: ScheduleRule) -> str | bytes:
    """Return a rule in a form that a worker can make it of: its name, or itself pickled with its code."""
    if schedules.schedule_rules().get(rule.name) is rule:
        return rule.name
    # Functions from a script or a file of one's own: their module may not be importable elsewhere.
    functions = [getattr(f, "func", f) for f in (rule.rewrite, rule.open_space)]  # that of a partial
    modules = [sys.modules.get(f.__module__) for f in functions]
    own = {m for m in modules if m and m.__name__ != "__main__" and not m.__name__.startswith("tunesmith.")}
    with ExitStack() as stack:
        for module in own:
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        pickled: bytes = cloudpickle.dumps(rule)
    return pickled
