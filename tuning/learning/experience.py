"""Experience: what the database knows of other workloads of the same operator, for strategies that learn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ...kernels.operator import Workload
from ..records.candidate import throughput
from ..records.database import Database
from ..records.record import Record
from ..strategies.strategy import Experience


def experiences(database: Database, workload: Workload, target: str, space: str) -> list[Experience]:
    """Return the trials of one space on other workloads of the same operator, dtype and target."""
    return as_experiences(
        record
        for record in database.records(target=target, space=space)
        if (record.operator, record.dtype) == (workload.name, workload.dtype)
        and record.workload_hash != workload.hash
    )


def as_experiences(records: Iterable[Record]) -> list[Experience]:
    """Give each trial its throughput as a share of the best of its workload on its machine.

    Workloads with fewer than two right trials are left out: there is nothing to compare.
    """
    trials: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        trials[record.workload_hash, record.machine_fingerprint].append(record)
    found = []
    for (workload_hash, _), group in trials.items():
        if sum(r.usable for r in group) < 2:
            continue
        best = max(map(throughput, group))
        found += [
            Experience(r.shape, r.knobs, r.trace, workload_hash, throughput(r) / best, r.workload_ir)
            for r in group
        ]
    return found
