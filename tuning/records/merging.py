"""Records of several databases in one."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...machine.errors import InputError
from .compatibility import target_key
from .database import Database
from .record import Record
from .vetting import Vetting


@dataclass(frozen=True)
class Problem:
    """Something that was not taken over: where it stands, and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class Merged:
    """What became of a file's records.

    Parameters
    ----------
    source : str
        The file.
    new, known : int
        Records that were added, and those that were there already.
    problems : tuple of Problem
        What was left out.
    """

    source: str
    new: int
    known: int
    problems: tuple[Problem, ...] = ()


def merge(files: Sequence[str | Path], into: Database) -> list[Merged]:
    """Add the records of other databases to one; those of other machines and targets too.

    A record that is there already, by its id or as one of the same candidate, is not added again.

    Parameters
    ----------
    files : sequence of path
        Databases; an older one is brought to the newest version.
    into : Database
        What they are added to.

    Raises
    ------
    InputError
        A file is no database, or is the one that they are added to. This is found before anything is added.
    """
    sources = [Path(file) for file in files]
    for path in sources:
        Database(path, create=False).close()
        if path.samefile(into.path):
            raise InputError(f"{path} is the database that the others are merged into; leave it out")
    with Vetting() as vetting:
        return [_merged(path, into, vetting) for path in sources]


def _merged(path: Path, into: Database, vetting: Vetting) -> Merged:
    with Database(path, create=False) as source:
        records = source.records()
    problems = _misnamed(records, into, vetting)
    good = [record for record in records if record.workload_hash not in problems]
    new = take_in(into, good)
    reasons = tuple(Problem(f"workload {found}", reason) for found, reason in problems.items())
    return Merged(str(path), new, len(good) - new, reasons)


def _misnamed(records: Sequence[Record], into: Database, vetting: Vetting) -> dict[str, str]:
    """Return the workloads that are not what their hash says, each with the reason; known ones are."""
    known = into.workload_hashes()
    programs = {r.workload_hash: r.workload_ir for r in records if r.workload_hash not in known}
    problems: dict[str, str] = {}
    for workload_hash, ir in programs.items():
        try:
            found = vetting.program(ir).hash
        except InputError as error:
            problems[workload_hash] = str(error)
        else:
            if found != workload_hash:
                problems[workload_hash] = f"its program has the hash {found}"
    return problems


def take_in(database: Database, records: Sequence[Record]) -> int:
    """Add records of another place and return how many were new.

    Confirmed times of different hours are not compared with each other. So one confirmation counts for each
    workload and target: the database's, or theirs where it took in a newer record.
    """
    theirs = _confirmed(records)
    mine = _confirmed(database.records()) if theirs else {}
    # Without their confirmations at first: a kill in between mixes nothing.
    given = [dataclasses.replace(record, confirmed_secs=()) for record in records]
    stored = dict(zip((r.id for r in records), database.add_all(given), strict=True))
    for group, confirmed in theirs.items():
        if _newest(confirmed) > _newest(mine.get(group, ())):
            database.confirm(*group, {stored[r.id].id: r.confirmed_secs for r in confirmed})
    return sum(stored[record.id] is record for record in given)


def _confirmed(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return the confirmed records of each workload and target."""
    found = defaultdict(list)
    for record in records:
        if record.confirmed_secs:
            found[record.workload_hash, target_key(record.target)].append(record)
    return found


def _newest(records: Sequence[Record]) -> str:
    return max((record.created for record in records), default="")
