"""``tunesmith study models``: whole models against ONNX Runtime."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..arguments import existing_database
from ..options import TvmCommand, common_options, existing_database_option
from ..output import Column, megabytes, milliseconds, percent, print_notice, print_rows
from .rows import GOAL, say_if_busy

_COLUMNS = [
    Column("model", "model"),
    Column("median_s", "ms", milliseconds),
    Column("library_s", "ONNX Runtime ms", milliseconds),
    Column("ratio", "ratio", percent),
    Column("low", "from", percent),
    Column("high", "to", percent),
    Column("first_s", "first output ms", milliseconds),
    Column("library_first_s", "ONNX Runtime's", milliseconds),
    Column("peak_bytes", "peak MB", megabytes),
    Column("library_peak_bytes", "ONNX Runtime's", megabytes),
    Column("compile_s", "compiled s", lambda seconds: f"{seconds:.1f}"),
    Column("max_error", "error", lambda error: f"{error:.0e}"),
    Column("equal", "equal"),
    GOAL[1],
]


@click.command(
    "models",
    cls=TvmCommand,
    examples=["study models", "study models light_squeezenet bert.onnx --db tunesmith.db"],
)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@existing_database_option
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=15,
    show_default=True,
    metavar="N",
    help="How often each is timed.",
)
@common_options
def study_models(models: tuple[str, ...], database_path: str | None, rounds: int, as_json: bool) -> int:
    """Compile models and run them in turns with ONNX Runtime, each in a process of its own.

    MODEL is an ONNX file or a sample of the onnx package (light_resnet50, ...); three samples if none is
    named. Defaults only, unless --db names a database.
    """
    from ...integrate.running.model_study import MODELS, mean_ratio, model_path, study_model

    for model in models:
        model_path(model)
    database = existing_database(database_path) if database_path else None
    say_if_busy()
    rows = [study_model(model, database, rounds=rounds, say=print_notice) for model in models or MODELS]
    print_rows([asdict(row) for row in rows], _COLUMNS, as_json)
    print_notice(f"geometric mean of the ratios: {mean_ratio(rows):.2f}")
    for row in rows:
        if not row.met:
            print_notice(f"not shown on {row.model}: {row.goal}")
    return 0 if all(row.met for row in rows) else 1
