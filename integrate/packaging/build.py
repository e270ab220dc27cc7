"""From a model or an operator to a package: every function scheduled, compiled, and its origin noted."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ... import __version__
from ...kernels.operator import Workload
from ...machine.linking import load_code
from ...machine.process import TVM_VERSION
from ...machine.runtime import thread_count
from ...machine.signature import ArgSpec
from ...machine.target import as_target, target_text
from ...tuning.measuring.library import called_once
from ...tuning.records.database import Database
from ..lowering.application import apply_records, require_records
from ..lowering.choice import FALLBACK, Choice, require_one_file
from ..lowering.code import compile_code
from ..lowering.dump import NO_DUMP, Dump
from ..lowering.functions import prim_funcs
from ..lowering.packing import pack_weights
from ..model import Model
from ..running.package import Package
from .manifest import Manifest
from .requirements import signature_if_runnable
from .writing import require_writable


def compile_model(
    model: Model,
    target: Any = "host",
    database: Database | None = None,
    strict: bool = False,
    output: str | Path | None = None,
    dump: str | Path | None = None,
) -> Package:
    """Compile a model with the best verified record for each function, else the default schedule.

    Parameters
    ----------
    model : Model
        From :func:`~tunesmith.integrate.model.load_model`.
    target : str or tvm.target.Target
        What to compile for.
    database : Database, optional
        Where the records are.
    strict : bool
        Fail where a function has no record.
    output : path, optional
        Where to export the package to; checked before the work.
    dump : path, optional
        A folder for the module after each phase, as text: ``01_imported.py``, ...

    Raises
    ------
    InputError
        The target is unknown, or the output or the dump cannot be written.
    MissingRecordsError
        ``strict``, and a function has no record.
    """
    path = None if output is None else require_writable(output)
    target, dumped = as_target(target), Dump(dump)
    scheduled, choices = apply_records(model.prepared(target, dumped), target, database)
    dumped("schedules", scheduled)
    if strict:
        require_records(choices)
    if path is not None:
        require_one_file(model.name, choices)
    packed = pack_weights(scheduled)
    dumped("packing", packed)
    package = build_package(model, packed, target, choices, dumped)
    if path is not None:
        package.export(path)
    return package


def compile_operator(
    workload: Workload,
    target: Any = "host",
    database: Database | None = None,
    strict: bool = False,
    output: str | Path | None = None,
) -> Package:
    """Compile a workload to a package with its best verified record, else the default schedule.

    Parameters
    ----------
    workload : Workload
        What to compute.
    target : str or tvm.target.Target
        What to compile for.
    database : Database, optional
        Where the records are.
    strict : bool
        Fail where there is no record.
    output : path, optional
        Where to export the package to; checked before the work.

    Raises
    ------
    InputError
        The target is unknown or the output cannot be written.
    MissingRecordsError
        ``strict``, and there is no record.
    """
    path = None if output is None else require_writable(output)
    target = as_target(target)
    scheduled, choices = apply_records(called_once(workload.func, workload.name), target, database)
    if strict:
        require_records(choices)
    result = ArgSpec("output_0", workload.output.shape, workload.output.dtype)
    model = Model(workload.name, scheduled, workload.inputs, (result,))
    package = build_package(model, scheduled, target, choices)
    if path is not None:
        package.export(path)
    return package


def unscheduled_package(model: Model, target: Any = "host") -> Package:
    """Compile a model with its plain loop nests: slow, and right for comparison."""
    target = as_target(target)
    mod = model.prepared(target)
    choices = [Choice(name, FALLBACK, "none", "unscheduled on purpose") for name, _ in prim_funcs(mod)]
    return build_package(model, mod, target, choices)


def build_package(
    model: Model, mod: Any, target: Any, choices: list[Choice], dump: Dump = NO_DUMP
) -> Package:
    """Compile a module whose functions are as they should be."""
    code = compile_code(mod, target, dump)
    manifest = Manifest(
        name=model.name,
        inputs=model.inputs,
        outputs=model.outputs,
        target=target_text(target),
        choices=tuple(choices),
        threads=thread_count(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tvm_version=TVM_VERSION,
        tunesmith_version=__version__,
        planned_bytes=code.planned_bytes,
        cpu=signature_if_runnable(target),
    )
    # What cannot run here is linked where it is written, perhaps by another compiler.
    library = load_code(code.executable) if manifest.cpu else code.executable.jit()
    return Package(library, code.weights, manifest, code.executable)
