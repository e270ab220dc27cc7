"""``tunesmith db model``: what a cost model learns from the records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, percent, print_rows

if TYPE_CHECKING:
    from ...tuning.learning.model_report import ModelReport
    from ...tuning.records.record import Record

_SHOWN_FEATURES = 10


def _correlation(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


_COLUMNS = [
    Column("operator", "operator"),
    Column("space", "space"),
    Column("trials", "trials"),
    Column("workloads", "workloads"),
    Column("rank_correlation", "rank correlation", _correlation),
    Column("transfer_correlation", "of other shapes", _correlation),
    Column("random_correlation", "chance", _correlation),
    Column("recall", "best found among as many", lambda found: _recall(found)),
]
_FEATURE_COLUMNS = [Column("feature", "feature"), Column("share", "importance", percent)]
_PREDICTION_COLUMNS = [
    Column("record_id", "record"),
    Column("shape", "shape"),
    Column("knobs", "knobs"),
    Column("measured", "measured", percent),
    Column("predicted", "predicted", _correlation),
]


@click.command(
    "model",
    cls=TvmCommand,
    examples=["db model --operator matmul", "db model --save matmul.json", "db model --space sketch"],
)
@click.option("--operator", metavar="NAME", help="Only this operator or model function.")
@click.option("--space", metavar="NAME", help="Only this space.")
@click.option("--loss", type=click.Choice(["regression", "rank"]), default="regression", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal reports.")
@click.option("--predictions", is_flag=True, help="List every trial, predicted against measured.")
@click.option(
    "--save",
    metavar="FILE",
    help="Save the model, trained on all trials of the one space chosen: .json of knobs, .npz of sketches.",
)
@database_option
@common_options
def cost_model(
    operator: str | None,
    space: str | None,
    loss: str,
    seed: int,
    predictions: bool,
    save: str | None,
    database_path: str,
    as_json: bool,
) -> int:
    """Report how well a cost model predicts the trials of each space, and what it looks at.

    Every trial is predicted by a model that has not seen it. Rank correlation: 1 is the right order, 0 is
    chance. Exit status 1 if there are no trials.
    """
    from ...machine.errors import InputError
    from ...tuning.learning.model_report import report
    from ...tuning.records.database import Database

    with Database(database_path, create=False) as database:
        spaces = _spaces(database.records(space=space), operator)
    if save is not None:
        _save(spaces, loss, seed, Path(save))
    reports = []
    for records in spaces:
        try:
            reports.append(report(records, loss, seed))
        except InputError as error:
            if len(spaces) == 1:
                raise
            click.echo(f"{records[0].operator}, {records[0].space}: left out: {error}", err=True)
    if as_json:
        print_rows([asdict(r) for r in reports], _COLUMNS, as_json)
        return 0 if reports else 1
    print_rows([vars(r) for r in reports], _COLUMNS, as_json)
    for found in reports:
        _print_details(found, predictions)
    return 0 if reports else 1


def _spaces(records: list[Record], operator: str | None) -> list[list[Record]]:
    """Sort the trials by operator, target and space; those whose candidate is not known are left out."""
    found: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        known = record.knobs is not None or record.trace is not None
        if known and operator in (None, record.operator):
            found[record.operator, record.target, record.space].append(record)
    return list(found.values())


def _save(spaces: list[list[Record]], loss: str, seed: int, path: Path) -> None:
    from ...machine.errors import InputError
    from ...tuning.learning.learner import learner_for

    if len(spaces) != 1:
        raise InputError(
            f"--save takes the trials of one operator, target and space: there are {len(spaces)}; "
            "choose with --operator and --space"
        )
    learner_for(spaces[0], loss, seed).save(path)


def _recall(found: dict[int, float]) -> str:
    return ", ".join(f"{share:.0%} of {k}" for k, share in found.items())


def _print_details(found: ModelReport, predictions: bool) -> None:
    click.echo(f"\n{found.operator}, {found.space}: what the model looks at")
    features = [{"feature": name, "share": share} for name, share in found.importance.items()]
    print_rows(features[:_SHOWN_FEATURES], _FEATURE_COLUMNS, False)
    if predictions:
        click.echo(f"\n{found.operator}, {found.space}: measured, as a share of the best, and predicted")
        print_rows([vars(p) for p in found.predictions], _PREDICTION_COLUMNS, False)
