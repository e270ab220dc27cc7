"""Experience: what the database knows of workloads like the one that is tuned, for strategies that learn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ...kernels.operator import Workload
from ...schedules.analysis import main_extents
from ..records.candidate import throughput
from ..records.database import Database
from ..records.plain_text import read_program
from ..records.record import Record
from ..strategies.strategy import Experience


def dims_of(workload: Workload) -> Mapping[str, int | str]:
    """Return the dimensions that a workload is compared with others by.

    They are those of its operator; a function of a model belongs to none, and has the extents of its loops.
    """
    return workload.shape or main_extents(workload.func)


def experiences(database: Database, workload: Workload, target: str, space: str) -> list[Experience]:
    """Return the trials of one space on other workloads of the same operator, dtype and target.

    A function of a model is of no operator: it learns from all of its dtype, target and space.
    """
    loops = not workload.shape
    return as_experiences(
        (
            record
            for record in database.records(target=target, space=space)
            if record.dtype == workload.dtype
            and record.workload_hash != workload.hash
            and (loops or record.operator == workload.name)
        ),
        loops,
    )


def as_experiences(records: Iterable[Record], loops: bool = False) -> list[Experience]:
    """Give each trial its throughput as a share of the best of its workload, machine and kind of caches.

    Workloads with fewer than two right trials are left out: there is nothing to compare. So are functions
    that cannot be read where their loops are asked for.

    Parameters
    ----------
    records : iterable of Record
        The trials.
    loops : bool
        Whether the workloads are compared by the extents of their loops, whatever dimensions they have.
    """
    trials: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        trials[record.workload_hash, record.machine_fingerprint, record.cache].append(record)
    found = []
    for (workload_hash, *_), group in trials.items():
        if sum(r.usable for r in group) < 2:
            continue
        dims = _loop_extents(group[0].workload_ir) if loops else group[0].shape
        if dims is None:
            continue
        best = max(map(throughput, group))
        found += [
            Experience(dims, r.knobs, r.trace, workload_hash, throughput(r) / best, r.workload_ir, r.id)
            for r in group
        ]
    return found


@lru_cache(maxsize=1024)
def _loop_extents(workload_ir: str) -> Mapping[str, int] | None:
    """Return the extents of a function given as JSON text; None where it cannot be read."""
    try:
        return main_extents(read_program(workload_ir))
    except (ValueError, TypeError, RuntimeError):  # an InputError is a ValueError
        return None
