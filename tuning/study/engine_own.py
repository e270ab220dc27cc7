"""A program of the engine study: ``tune`` over the sketch space, started as the command does it."""

from __future__ import annotations

from ...machine.process import import_tvm
from ..processes.worker_group import start_workers
from .fresh import Job, answer


def tune_own(job: Job) -> Job:
    """Tune a workload into a database; return why it stopped.

    The job: ``operator``, ``shape``, ``dtype``, ``target``, ``trials``, ``seed``, ``database``.
    """
    # They import TVM while this process does.
    workers = start_workers()
    import_tvm()
    from ...kernels import operator
    from ..records.compilation import SKETCH
    from ..reporting.events import quiet
    from ..tuner import tune

    result = tune(
        operator(job["operator"]).workload(job["shape"], job["dtype"]),
        target=job["target"],
        trials=job["trials"],
        database=job["database"],
        space=SKETCH,
        seed=job["seed"],
        workers=workers,
        progress=quiet,
    )
    return {"stopped_by": result.stopped_by}


if __name__ == "__main__":
    answer(tune_own)
