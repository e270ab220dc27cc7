"""``tunesmith compile``: make a package of an operator or a model."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import existing_database, is_model, model_at, one_workload, require_only, runnable_target
from .options import (
    TvmCommand,
    common_options,
    dtype_option,
    existing_database_option,
    model_input_options,
    shape_option,
    target_option,
)
from .output import Column, milliseconds, percent, print_notice, print_rows

_COLUMNS = [
    Column("function", "function"),
    Column("origin", "origin"),
    Column("schedule", "schedule"),
    Column("calls", "calls"),
    Column("flops", "MFLOP", lambda flops: f"{flops / 1e6:.3g}"),
    Column("seconds", "ms", milliseconds),
    Column("timing", "which is"),
    Column("share", "share", percent),
    Column("workload", "workload", lambda digits: digits[:10]),
    Column("reason", "why"),
]


@click.command(
    "compile",
    cls=TvmCommand,
    examples=[
        "compile model.onnx --output model.tsm --db tunesmith.db",
        "compile matmul --shape m=512,n=512,k=512 --output matmul.tsm",
    ],
)
@click.argument("subject", metavar="OP|MODEL")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write the package.")
@existing_database_option
@click.option("--strict", is_flag=True, help="Fail with exit status 1 where a function has no record.")
@click.option(
    "--dump", metavar="DIR", help="Write the model after each phase of lowering: 01_imported.py, ..."
)
@shape_option
@dtype_option
@model_input_options
@target_option
@common_options
def compile_command(
    subject: str,
    output: str,
    database_path: str | None,
    strict: bool,
    dump: str | None,
    shape: str,
    dtype: str | None,
    input_shapes: str | None,
    input_values: str | None,
    target: str,
    as_json: bool,
) -> int:
    """Compile an operator or a model to one package file that runs anywhere without the database.

    Each function gets its best verified record of the target, else the default schedule. The table says
    which it got and why, and the time of its calls in one inference: measured, where a record has it, else
    predicted, the least that this machine's peaks allow.
    """
    from ..integrate.lowering.application import MissingRecordsError
    from ..integrate.lowering.report import report
    from ..integrate.packaging.build import compile_model, compile_operator
    from ..integrate.packaging.writing import require_writable

    require_writable(output)
    compile_for, database = runnable_target(target), existing_database(database_path)
    try:
        if is_model(subject):
            require_only("a model", shape=shape, dtype=dtype)
            model = model_at(subject, input_shapes, input_values)
            package = compile_model(model, compile_for, database, strict, output, dump)
        else:
            require_only("an operator", input_shapes=input_shapes, input_values=input_values, dump=dump)
            workload = one_workload(subject, shape, dtype)
            package = compile_operator(workload, compile_for, database, strict, output)
    except MissingRecordsError as error:
        print_notice(f"not compiled: {error}")
        return 1
    rows = report(package.choices)
    print_rows(rows, _COLUMNS, as_json)
    print_notice(f"expected: {milliseconds(sum(row['seconds'] for row in rows))} ms an inference")
    print_notice(f"wrote {output} ({Path(output).stat().st_size / 1e6:.1f} MB)")
    return 0
