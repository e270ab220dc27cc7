"""Options of ``tunesmith tune``: what is searched, what ends it, how a candidate is timed, what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .options import Duration

F = TypeVar("F", bound=Callable[..., Any])

TIMING = ("number", "repeat", "min_repeat_ms", "trial_budget_ms", "noise", "cold_cache", "cooldown_ms")
"""The options that say how a candidate is timed."""


class Share(click.ParamType[float]):
    """A part of a whole: 0.95 or 95%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it as a number of which 1 is the whole."""
        text = str(value).strip()
        try:
            return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{value!r} is no share such as 0.95 or 95%", param, ctx)


def model_options(command: F) -> F:
    """Add which functions of a model are tuned, and whether the whole is confirmed."""
    return _all(
        command,
        click.option(
            "--tasks",
            metavar="EXPR",
            help="Functions of a model: list prints them; all, 0, 0,2, 3-5, -3, 4- choose.  [default: all]",
        ),
        click.option(
            "--functions",
            metavar="NAMES",
            help="Only functions of a model with such names: 'conv2d*,matmul*'.",
        ),
        click.option(
            "--min-flops",
            type=float,
            metavar="N",
            help="Only functions of a model with so many operations a call: 1e6.",
        ),
        click.option(
            "--no-confirm",
            "confirm",
            flag_value=False,
            default=True,
            help="Do not run the whole model both ways at the end.",
        ),
    )


def search_options(command: F) -> F:
    """Add what is searched and how."""
    return _all(
        command,
        click.option(
            "--space",
            metavar="NAME",
            help="A schedule's name, sketch, or all: every schedule that applies.  "
            "[default: the default schedule; of a model: all]",
        ),
        click.option(
            "--strategy",
            metavar="NAME",
            help="How to choose candidates (see: tunesmith list strategies).  "
            "[default: xgb; sketch: evolutionary]",
        ),
        click.option(
            "--cost-model", metavar="NAME", help="xgb or random, for evolutionary; or a saved model's file."
        ),
        click.option(
            "--no-transfer",
            "transfer",
            flag_value=False,
            default=True,
            help="Do not start from records of other shapes of the operator.",
        ),
        click.option(
            "--seed", default=0, show_default=True, metavar="N", help="Equal seeds try equal candidates."
        ),
    )


def budget_options(command: F) -> F:
    """Add what ends a tuning."""
    return _all(
        command,
        click.option(
            "--trials",
            type=int,
            metavar="N",
            help="Candidates to measure in all, those already in the database included.  "
            "[default: 64 a workload]",
        ),
        click.option(
            "--early-stopping", type=int, metavar="N", help="Stop after N trials without a faster one."
        ),
        click.option(
            "--time-budget", type=Duration(), metavar="TIME", help="Stop after 90s, 10m or 1h30m in all."
        ),
        click.option(
            "--roofline",
            type=Share(),
            metavar="SHARE",
            help="Stop a workload that reaches this share of its roofline: 0.95 or 95%.",
        ),
        click.option(
            "--timeout",
            type=Duration(),
            default=10.0,
            show_default=True,
            metavar="TIME",
            help="The longest that building, checking or timing one candidate may take.",
        ),
    )


def timing_options(command: F) -> F:
    """Add how a candidate is timed; their defaults are those of `Timing`."""
    return _all(
        command,
        click.option(
            "--number",
            default=0,
            show_default=True,
            metavar="N",
            help="Calls averaged in one repetition; 0 takes as many as --min-repeat-ms needs.",
        ),
        click.option(
            "--repeat", default=3, show_default=True, metavar="N", help="Repetitions at least, a value each."
        ),
        click.option(
            "--min-repeat-ms",
            default=10.0,
            show_default=True,
            metavar="MS",
            help="Least duration of one repetition in milliseconds; raises --number.",
        ),
        click.option(
            "--trial-budget-ms",
            default=300.0,
            show_default=True,
            metavar="MS",
            help="Milliseconds of repetitions after which noise is put up with.",
        ),
        click.option(
            "--noise",
            type=Share(),
            default=0.02,
            show_default=True,
            metavar="SHARE",
            help="Error of the median at which no more repetitions are needed.",
        ),
        click.option("--cold-cache", is_flag=True, help="Empty the caches before each call, untimed."),
        click.option(
            "--cooldown-ms",
            default=0.0,
            show_default=True,
            metavar="MS",
            help="Pause before each repetition in milliseconds.",
        ),
        click.option(
            "--give-up-factor",
            default=2.0,
            show_default=True,
            metavar="X",
            help="A candidate X times slower than the best so far is timed once only.",
        ),
    )


def display_options(command: F) -> F:
    """Add what is shown meanwhile."""
    return _all(
        command,
        click.option("--dry-run", is_flag=True, help="Print what would be done and how long it takes."),
        click.option(
            "--progress",
            type=click.Choice(["auto", "lines", "bar", "quiet"]),
            default="auto",
            show_default=True,
            help="A line for each trial, a live bar, or nothing; auto: a bar on a terminal, else lines.",
        ),
        click.option("--quiet", "-q", "progress", flag_value="quiet", help="The same as --progress quiet."),
        click.option("--verbose", "-v", is_flag=True, help="Let through what TVM itself says."),
    )


def _all(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        command = option(command)
    return command
