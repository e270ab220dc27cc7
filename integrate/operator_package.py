"""One operator as a package: it runs and travels as a model does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..kernels.operator import Workload
from ..machine.signature import ArgSpec
from ..machine.target import as_target
from ..tuning.measuring.library import called_once
from ..tuning.records.database import Database
from .lowering.application import apply_records, require_records
from .model import Model
from .package import Package, build_package
from .package_file import require_writable


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
