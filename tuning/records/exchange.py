"""Records on their way to other places and back: JSON lines, and MetaSchedule's two files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ...machine.errors import InputError, unknown_name
from ...machine.target import as_target, target_text
from . import json_lines, meta_files
from .compatibility import target_key
from .database import Database
from .merging import Merged, Problem, take_in
from .record import Record
from .vetting import Program, Vetting

JSON_LINES, META_SCHEDULE = "jsonl", "meta-schedule"
FORMATS = (JSON_LINES, META_SCHEDULE)


def export_records(
    database: Database,
    path: str | Path,
    format: str = JSON_LINES,
    target: Any = None,
    best: bool = False,
    overwrite: bool = False,
) -> int:
    """Write records to a file, or to a folder of MetaSchedule's; return how many.

    Parameters
    ----------
    database : Database
        Whose records.
    path : path
        The file of JSON lines, or the folder for ``database_workload.json`` and
        ``database_tuning_record.json``.
    format : str
        ``jsonl``: every record, with all that is known of it. ``meta-schedule``: the verified records of one
        target, since MetaSchedule's lookups name none.
    target : Target or str or None
        Only records of this target; None: of all of them, and of this machine's for ``meta-schedule``.
    best : bool
        Only the record that is applied to each workload and target.
    overwrite : bool
        Whether to replace what is there.

    Raises
    ------
    InputError
        The format is unknown, or the file is there or cannot be written.
    """
    path = Path(path)
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    files = [path] if format == JSON_LINES else [path / meta_files.WORKLOADS, path / meta_files.RECORDS]
    for file in files:
        if file.exists() and not overwrite:
            raise InputError(f"{file} is there already; give another path, or --overwrite to replace it")
    if target is None and format == META_SCHEDULE:
        target = "host"
    records = database.best_of_each() if best else database.records()
    if target is not None:
        key = target_key(target_text(as_target(target)))
        records = [record for record in records if target_key(record.target) == key]
    if format == JSON_LINES:
        json_lines.write_lines(records, path)
        return len(records)
    return meta_files.write_files(records, path)


def import_records(database: Database, paths: Sequence[str | Path], target: Any = "host") -> list[Merged]:
    """Add the records of files; what is wrong with a line is told, and the line left out.

    Each program's hash is taken again and each schedule is replayed, in a worker process; nothing is built
    or run. Records of MetaSchedule's were never verified here, so nothing applies them until they are.

    Parameters
    ----------
    database : Database
        What they are added to.
    paths : sequence of path
        Files of JSON lines, and folders with MetaSchedule's two files.
    target : Target or str or None
        Records of other targets are left out; None: nothing is left out.

    Raises
    ------
    InputError
        A file cannot be read at all. This is found before anything is added.
    """
    key = None if target is None else target_key(target_text(as_target(target)))
    sources = [(str(path), _lines(Path(path))) for path in paths]
    with Vetting() as vetting:
        merged = []
        for source, lines in sources:
            intake = _Intake(vetting, key)
            records = [_named(record, database) for record in intake.records(lines)]
            new = take_in(database, records)
            merged.append(Merged(source, new, len(records) - new, tuple(intake.problems)))
        return merged


def _named(record: Record, database: Database) -> Record:
    """Give a record of MetaSchedule's the name and shape that its workload has in the database."""
    known = database.records(record.workload_hash) if record.space == meta_files.IMPORTED else []
    return dataclasses.replace(record, operator=known[0].operator, shape=known[0].shape) if known else record


def _lines(path: Path) -> dict[str, list[str]]:
    """Return the lines of a file, or of both files in a folder of MetaSchedule's, by file name."""
    if path.name in (meta_files.WORKLOADS, meta_files.RECORDS):
        path = path.parent
    files = [path / meta_files.WORKLOADS, path / meta_files.RECORDS] if path.is_dir() else [path]
    try:
        # What is no UTF-8 becomes an escape that JSON does not know.
        texts = {file.name: file.read_bytes().decode(errors="backslashreplace") for file in files}
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    return {name: text.removesuffix("\n").split("\n") if text else [] for name, text in texts.items()}


class _Intake:
    """What is read from one source, line by line, and what is wrong with the lines that are left out."""

    def __init__(self, vetting: Vetting, key: str | None) -> None:
        self._vetting, self._key = vetting, key
        self._hashes: dict[str, str] = {}
        self.problems: list[Problem] = []

    def records(self, lines: dict[str, list[str]]) -> list[Record]:
        """Return the records that may be added."""
        read: Callable[[str], Record] = json_lines.record_of_line
        if meta_files.WORKLOADS in lines:
            programs = self._programs(lines.pop(meta_files.WORKLOADS))
            read = partial(meta_files.record_of_line, programs=programs, vetting=self._vetting)
        ((name, texts),) = lines.items()
        found = []
        for number, line in enumerate(texts, 1):
            with self._noted(f"{name}:{number}"):
                record = read(line)
                self._check(record)
                found.append(record)
        return found

    def _programs(self, lines: Sequence[str]) -> list[Program | None]:
        """Read MetaSchedule's workloads; a blank line is none, one that cannot be read keeps its position."""
        programs: list[Program | None] = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                programs.append(None)
            with self._noted(f"{meta_files.WORKLOADS}:{number}"):
                programs[-1] = meta_files.read_workload(line, self._vetting)
        return programs

    def _check(self, record: Record) -> None:
        """Refuse a record of another target, or of a program or schedule that is not what it should be."""
        if self._key not in (None, target_key(record.target)):
            raise InputError(f"it is for another target: {record.target}")
        ir = record.workload_ir
        if ir not in self._hashes:
            self._hashes[ir] = self._vetting.program(ir).hash
        if self._hashes[ir] != record.workload_hash:
            raise InputError(f"its program has the hash {self._hashes[ir]}, not {record.workload_hash}")
        if record.trace is not None:
            self._vetting.require_replays(ir, record.trace)

    @contextmanager
    def _noted(self, where: str) -> Iterator[None]:
        """Note what is wrong, and go on."""
        try:
            yield
        except InputError as error:
            self.problems.append(Problem(where, str(error)))
