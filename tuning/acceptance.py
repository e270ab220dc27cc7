"""Imported records on trial: built, run and verified here, so that they may be applied."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from math import inf

from ..kernels import OPERATORS
from ..kernels.operator import Workload
from ..machine.target import host_target, target_text
from .measuring.cases import prepare_cases
from .measuring.measurement import Timing
from .records.candidate import Candidate
from .records.compatibility import target_key
from .records.compilation import SKETCH
from .records.database import Database
from .records.meta_files import IMPORTED
from .records.plain_text import read_program
from .records.record import Record
from .running.pipeline import Conditions, Trial
from .running.workbench import Workbench
from .trial import TrialOrigin


def verify_imported(database: Database, timing: Timing | None = None, timeout: float = 10.0) -> list[Record]:
    """Try what was imported from MetaSchedule and never verified, as a tuning tries its candidates.

    This builds and runs what came in. Each record is replaced by that of its trial here, of the sketch space:
    the right ones are applied, and a later tuning starts from them.

    Parameters
    ----------
    database : Database
        Where the records are; those of other targets than this machine's stay as they are.
    timing : Timing or None
        How they are timed.
    timeout : float
        Seconds that building one may take, and that running it may take.

    Returns
    -------
    list of Record
        The new records, in the order in which the trials ended.
    """
    here = target_key(target_text(host_target()))
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in database.records(target=here, space=IMPORTED):
        if not record.verified:
            groups[record.workload_hash].append(record)
    if not groups:
        return []
    tried: list[Record] = []
    with Workbench(timeout) as bench:
        for group in groups.values():
            tried += _tried(group, database, bench, timing or Timing())
    database.remove(record.id for group in groups.values() for record in group)
    return tried


def _tried(group: Sequence[Record], database: Database, bench: Workbench, timing: Timing) -> list[Record]:
    """Try the records of one workload."""
    first, workload = group[0], _workload(group[0])
    origin = TrialOrigin(workload, first.workload_ir, first.target, IMPORTED, 0, timing, bench.device)
    cases = prepare_cases(workload, f"{bench.folder}/{workload.hash}")
    conditions = Conditions(cases, timing, lambda: (inf, inf), lambda binary: None)
    pipeline = bench.pipeline()
    for record in group:
        candidate = Candidate(record.trace or "", trace=record.trace)
        job = bench.job(record.workload_ir, record.target, trace=record.trace, quick=True)
        pipeline.submit(Trial(candidate, SKETCH, job))
    # Without a key: a strategy replays the trace and finds it out.
    return [
        database.add(dataclasses.replace(origin.record(pipeline.next_ended(conditions)), key=None))
        for _ in group
    ]


def _workload(record: Record) -> Workload:
    """Return a record's workload: with the operator's reference where it is one, else it is its own."""
    if record.operator in OPERATORS and record.shape:
        workload = OPERATORS[record.operator].workload(record.shape, record.dtype)
        if workload.hash == record.workload_hash:
            return workload
    func = read_program(record.workload_ir)
    return Workload(record.operator, dict(record.shape), record.dtype, func, flops=0)
