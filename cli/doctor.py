"""``tunesmith doctor``: whether this machine and this installation are sound."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..machine.errors import InputError
from .options import Command, common_options, rpc_options
from .output import Column, print_rows

if TYPE_CHECKING:
    from ..machine.diagnosis import Check

_TRIALS = 3

_COLUMNS = [
    Column("ok", "", lambda ok: "ok" if ok else "FAIL"),
    Column("name", "check"),
    Column("found", "found"),
    Column("advice", "what to do"),
]


@click.command(cls=Command, examples=["doctor", "doctor --rpc-tracker 192.168.0.2:9190 --rpc-key board"])
@rpc_options
@common_options
def doctor(rpc_tracker: str | None, rpc_key: str | None, as_json: bool) -> int:
    """Check this machine and this installation, measure its limits anew, and run a tiny tuning.

    With a tracker, that it and its servers can be measured on as well: one server of the key, or one of
    every key. Exit status 1 if a check fails.
    """
    if rpc_key is not None and rpc_tracker is None:
        raise InputError("--rpc-key is a key of a tracker: give --rpc-tracker as well")
    # Nothing here imports TVM before the diagnosis has found it sound: a bad one crashes the process.
    from ..machine.diagnosis import diagnose
    from ..machine.process import import_tvm, require_sound_tvm

    try:
        require_sound_tvm()
        import_tvm()
        sound = True
    except InputError:
        sound = False
    if sound and rpc_tracker is not None:
        from ..tuning.remote.tracker import Remote

        # What is no address is refused before anything else is looked at.
        Remote(rpc_tracker, rpc_key or "any")
    checks = diagnose()
    if sound:
        checks.append(_tiny_tuning())
    if sound and rpc_tracker is not None:
        from ..tuning.remote.diagnosis import diagnose_remote

        checks += diagnose_remote(rpc_tracker, rpc_key)
    print_rows([vars(check) for check in checks], _COLUMNS, as_json)
    return 0 if all(check.ok for check in checks) else 1


def _tiny_tuning() -> Check:
    """Tune a small matmul: workers, compiler, verification, timing and database at once."""
    from ..kernels import workload
    from ..machine.diagnosis import Check
    from ..tuning.measuring.measurement import Timing
    from ..tuning.reporting.events import quiet
    from ..tuning.tuner import tune

    try:
        with tempfile.TemporaryDirectory(prefix="tunesmith-doctor-") as folder:
            small = workload("matmul", m=64, n=64, k=64)
            database, timing = Path(folder, "doctor.db"), Timing(min_repeat_ms=1.0)
            result = tune(small, trials=_TRIALS, database=database, timing=timing, progress=quiet)
    except Exception as error:  # whatever fails is what the user wants to read
        reason = " ".join(str(error).split())
        return Check("a tiny tuning", False, f"{type(error).__name__}: {reason}", "see the checks above")
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    seconds = sum(result.seconds.values())
    advice = "" if result.best else "see: tunesmith --debug tune matmul --shape m=64,n=64,k=64 --trials 3"
    return Check("a tiny tuning", result.best is not None, f"{counts} in {seconds:.1f} s", advice)
