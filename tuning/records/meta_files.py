"""MetaSchedule's two files: the workloads, and the tuning records that point at them by position.

They are read line by line here and never given to TVM's own JSONDatabase, which a blank line crashes and a
line that is cut off stops from loading anything.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from ... import __version__
from ...machine.errors import InputError
from ...machine.files import written_aside
from .compilation import plain_json
from .json_lines import parsed_line
from .meta_database import tuning_record
from .plain_text import read_program
from .record import Record, Status
from .vetting import Program, Vetting

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

IMPORTED = "imported"
"""The space and strategy of records that MetaSchedule made: its files do not say which space it was."""

# MetaSchedule writes 1e10 seconds for a candidate that failed.
_FAILED_S = 1e9
# The base64 text starts with the length of what follows, in 8 bytes.
_LENGTH_BYTES = 8


def write_files(records: Sequence[Record], folder: Path) -> int:
    """Write the verified records whose schedule can be replayed as MetaSchedule's; return how many."""
    workloads: dict[str, tuple[int, Any]] = {}
    lines = []
    for record in (r for r in records if r.usable):
        if record.workload_hash not in workloads:
            mod = tvm.IRModule({"main": read_program(record.workload_ir)})
            workloads[record.workload_hash] = (len(workloads), ms.database.Workload(mod))
        number, workload = workloads[record.workload_hash]
        if tuning_record(record, workload) is not None:
            lines.append([number, _content(record, workload)])
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    # In this order: records without their workloads would be read as those of others.
    with written_aside(folder / WORKLOADS) as file:
        file.writelines(_line(plain_json(workload.as_json())) for _, workload in workloads.values())
    with written_aside(folder / RECORDS) as file:
        file.writelines(map(_line, lines))
    return len(lines)


def _content(record: Record, workload: Any) -> list[Any]:
    """Return a record as MetaSchedule writes it; its own writer knows no index maps."""
    arguments = ms.arg_info.ArgInfo.from_prim_func(workload.mod["main"])
    return [
        json.loads(record.trace or ""),
        list(record.confirmed_secs or record.run_secs),
        json.loads(record.target),
        [plain_json(argument.as_json()) for argument in arguments],
    ]


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def read_workload(line: str, vetting: Vetting) -> Program:
    """Read a workload.

    Raises
    ------
    InputError
        The line is cut off or no workload, or TVM cannot read the program.
    """
    return vetting.program(_graph(line))


def _graph(line: str) -> str:
    """Return the JSON in a workload's line."""
    found = parsed_line(line)
    if not (isinstance(found, list) and len(found) == 2 and isinstance(found[1], str)):
        raise InputError("it is no workload: expected [hash, base64 text]")
    try:
        data = base64.b64decode(found[1], validate=True)
        text = data[_LENGTH_BYTES:].decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InputError(f"its base64 text is damaged: {error}") from None
    if int.from_bytes(data[:_LENGTH_BYTES], "little") != len(data) - _LENGTH_BYTES:
        raise InputError("its base64 text is cut off")
    return text


def record_of_line(line: str, programs: Sequence[Program | None], vetting: Vetting) -> Record:
    """Read a tuning record.

    It was never verified here, so it is stored as ok and not verified: nothing applies it.

    Raises
    ------
    InputError
        The line is blank, cut off or no record, it names a workload that is not there or could not be read,
        or it was a failure where it was made.
    """
    found = parsed_line(line)
    try:
        index, (trace, seconds, config, _) = found
    except (TypeError, ValueError):
        raise InputError("it is no record: expected [workload, [trace, seconds, target, types]]") from None
    program = _program(index, programs)
    run_secs = _seconds(seconds)
    if not isinstance(config, dict):
        raise InputError(f"its target is no JSON object: {str(config)[:40]!r}")
    return _record(program, json.dumps(trace), run_secs, vetting.target(config))


def _program(index: Any, programs: Sequence[Program | None]) -> Program:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(programs):
        raise InputError(f"there is no workload {str(index)[:40]}: {WORKLOADS} has {len(programs)}")
    program = programs[index]
    if program is None:
        raise InputError(f"its workload {index} could not be read")
    return program


def _seconds(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(isinstance(s, int | float) and s > 0 for s in value):
        raise InputError(f"its times are no list of seconds: {str(value)[:40]!r}")
    if not value or max(value) >= _FAILED_S:
        raise InputError("it failed where it was made")
    return tuple(float(s) for s in value)


def _record(program: Program, trace: str, run_secs: tuple[float, ...], target: str) -> Record:
    """Make the record; reading the same line again makes one with the same id."""
    content = json.dumps([program.hash, target, trace, run_secs])
    return Record(
        id=hashlib.blake2b(content.encode(), digest_size=6).hexdigest(),
        created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        operator=program.name,
        shape={},
        dtype=program.dtype,
        workload_hash=program.hash,
        workload_ir=program.ir,
        target=target,
        machine_fingerprint="unknown",
        space=IMPORTED,
        strategy=IMPORTED,
        seed=0,
        knobs=None,
        trace=trace,
        status=Status.OK,
        verified=False,
        max_error=None,
        run_secs=run_secs,
        build_s=None,
        message="from MetaSchedule's files; never verified here",
        tvm_version="unknown",
        tunesmith_version=__version__,
    )
