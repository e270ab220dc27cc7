"""Making a database smaller: what nobody will ask for again is removed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta, timezone

from ...machine.errors import InputError
from .compatibility import target_key
from .database import Database
from .record import Record


def prune(
    database: Database,
    keep: int = 1,
    statuses: Collection[str] = (),
    operator: str | None = None,
    older_than_days: float | None = None,
    records: Collection[str] = (),
    dry_run: bool = False,
) -> list[Record]:
    """Remove records, except the best of each workload and target.

    The best ``keep`` verified records of each workload and target stay, and so do all confirmed ones, unless
    they are named. A candidate that was removed may be tried again by a later tuning.

    Parameters
    ----------
    database : Database
        What is pruned.
    keep : int
        How many verified records of each workload and target stay, by `Record.rank`.
    statuses : collection of str
        Remove trials that ended so; empty: however they ended.
    operator : str or None
        Remove records of this operator or model function only.
    older_than_days : float or None
        Remove records of trials that ended so many days ago or earlier.
    records : collection of str
        Remove the records of these ids, or beginnings of ids, and no others.
    dry_run : bool
        Only return what would be removed.

    Returns
    -------
    list of Record
        What was removed.

    Raises
    ------
    InputError
        ``keep`` is less than 1, or an id names no record, or more than one.
    """
    if keep < 1:
        raise InputError(f"keep must be at least 1: keep={keep}")
    if records:
        removed = list({found.id: found for found in map(database.get, records)}.values())
    else:
        limit = None if older_than_days is None else _days_ago(older_than_days)
        everything = database.records()
        kept = _kept(everything, keep)
        removed = [
            record
            for record in everything
            if record.id not in kept
            and (not statuses or str(record.status) in statuses)
            and operator in (None, record.operator)
            and (limit is None or record.created <= limit)
        ]
    if removed and not dry_run:
        database.remove([record.id for record in removed])
    return removed


def _kept(records: list[Record], keep: int) -> set[str]:
    """Return the ids of the best of each workload and target, and of all that are confirmed."""
    groups = defaultdict(list)
    for record in records:
        if record.usable:
            groups[record.workload_hash, target_key(record.target)].append(record)
    best = {r.id for group in groups.values() for r in sorted(group, key=lambda r: r.rank)[:keep]}
    return best | {record.id for record in records if record.confirmed_secs}


def _days_ago(days: float) -> str:
    """Return a time as records have it: such texts are in the order of the times."""
    return (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="milliseconds")
