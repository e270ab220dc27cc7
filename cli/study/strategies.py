"""``tunesmith study strategies``: how many trials a strategy needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..arguments import one_workload
from ..options import TvmCommand, common_options
from ..output import Column, milliseconds, print_notice
from .rows import GOAL, WORKLOAD, YARDSTICK, print_study, say_if_busy, shape_of

_OTHER_SHAPES = ("m=512,n=512,k=512", "m=2048,n=2048,k=2048", "m=128,n=3072,k=768")


@click.command(
    "strategies",
    cls=TvmCommand,
    examples=["study strategies", "study strategies matmul --shape m=256,n=256,k=256 --seeds 5"],
)
@click.argument("operator", metavar="[OP]", default="matmul")
@click.option("--shape", metavar="SHAPE", help=f"The operator's dimensions.  [default: {YARDSTICK}]")
@click.option("--space", metavar="NAME", help="A schedule's name.  [default: the default schedule]")
@click.option(
    "--strategies",
    metavar="NAMES",
    help="Comma-separated; NAME+transfer starts from other shapes.  [default: random,xgb, and xgb+transfer]",
)
@click.option("--seeds", default=10, show_default=True, metavar="N", help="Searches of each strategy.")
@click.option(
    "--share", default=0.97, show_default=True, metavar="X", help="How much of the best throughput to reach."
)
@click.option("--limit", default=256, show_default=True, metavar="N", help="The most trials of a search.")
@click.option(
    "--transfer-from",
    "others",
    multiple=True,
    metavar="SHAPE",
    help="Another shape to start from; may be repeated.  [default: three, where no --shape is given]",
)
@click.option(
    "--collect",
    default=64,
    show_default=True,
    metavar="N",
    help="Trials of random and of xgb for each other shape that has fewer in the database.",
)
@click.option(
    "--db",
    "database_path",
    default="study.db",
    show_default=True,
    metavar="FILE",
    help="Where points are kept: the same command again goes on with them.",
)
@common_options
def study_strategies(
    operator: str,
    shape: str | None,
    strategies: str | None,
    limit: int,
    others: Sequence[str],
    database_path: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Count the trials that strategies need to come near the best point known of a knob space.

    Points are measured live, once, and looked up when they are asked for again.
    """
    from ...tuning.records.database import Database
    from ...tuning.study.strategies import study_strategies as measure

    if operator == "matmul" and shape is None:
        others = others or _OTHER_SHAPES
    workload = one_workload(operator, shape or shape_of(operator, YARDSTICK), None)
    starts = [one_workload(operator, other, None) for other in others]
    names = _names(strategies or ("random,xgb,xgb+transfer" if starts else "random,xgb"))
    say_if_busy()
    with Database(database_path) as database:
        rows = measure(workload, database, names, limit=limit, others=starts, say=print_notice, **options)
    return print_study(rows, _columns(limit), as_json)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _columns(limit: int) -> list[Column]:
    def needed(count: float | None) -> str:
        return f"> {limit}" if count is None else f"{count:g}"

    return [
        *WORKLOAD,
        Column("strategy", "strategy"),
        Column("learned_from", "learned from"),
        Column("seeds", "seeds"),
        Column("reached", "reached"),
        Column("median", "median trials", needed),
        Column("q25", "25 %", needed),
        Column("q75", "75 %", needed),
        Column("best_s", "best ms", milliseconds),
        *GOAL,
    ]
