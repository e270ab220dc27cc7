"""``tunesmith compare``: two ways to run a model, side by side."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from .model_inputs import inputs_option, read_arrays
from .options import TvmCommand, common_options
from .output import Column, megabytes, milliseconds, print_notice, print_rows

if TYPE_CHECKING:
    from ..integrate.running.comparison import Comparison

_COLUMNS = [
    Column("name", "what"),
    Column("median_s", "median ms", milliseconds),
    Column("first_s", "first inference ms", milliseconds),
    Column("peak_bytes", "peak MB", megabytes),
]


@click.command(
    cls=TvmCommand,
    imports="tvm_ffi",
    examples=["compare old.tsm new.tsm --at-least 1.1", "compare model.onnx model.tsm --inputs x.npz"],
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@inputs_option
@click.option("--rounds", default=15, show_default=True, metavar="N", help="How often each is timed.")
@click.option(
    "--number",
    default=0,
    metavar="N",
    help="Inferences averaged in one round; 0 takes as many as last 20 ms.  [default: 0]",
)
@click.option(
    "--tolerance",
    default=1e-4,
    show_default=True,
    metavar="T",
    help="How far outputs may differ, as a part of each value and the output's root mean square.",
)
@click.option(
    "--at-least",
    type=click.FloatRange(min=0),
    metavar="R",
    help="End with status 1 where B is not at least R times as fast as A.",
)
@common_options
def compare(
    before: str,
    after: str,
    inputs_path: str | None,
    rounds: int,
    number: int,
    tolerance: float,
    at_least: float | None,
    as_json: bool,
) -> int:
    """Compare A and B in turns, each in a process of its own: packages, or an ONNX file for ONNX Runtime.

    Ends with status 1 where their outputs differ.
    """
    from ..integrate.running.comparison import compare as compared

    inputs = read_arrays(inputs_path) if inputs_path else None
    found = compared(before, after, inputs, rounds=rounds, number=number, tolerance=tolerance)
    slow = at_least is not None and found.speedup < at_least
    if as_json:
        print_rows([_row(found)], [], as_json=True)
    else:
        _print_table(found)
    if slow:
        print_notice(f"B is not at least {at_least:g} times as fast")
    return int(slow or not found.ok)


def _print_table(found: Comparison) -> None:
    sides = [{**vars(side), "median_s": side.median_s} for side in (found.before, found.after)]
    print_rows(sides, _COLUMNS, as_json=False)
    low, high = found.interval
    click.echo(f"\nB is {found.speedup:.3f} times as fast as A, with 95 % confidence {low:.3f} to {high:.3f}")
    for check in found.outputs:
        error = "" if check.max_error is None else f", relative error {check.max_error:.1e}"
        verdict = f"equal{error}" if check.ok else f"DIFFERENT: {check.message}"
        click.echo(f"{check.output}: {verdict}")


def _row(found: Comparison) -> dict[str, Any]:
    low, high = found.interval
    # JSON has no infinity.
    row: dict[str, Any] = {"speedup": found.speedup, "speedup_low": low}
    row |= {"speedup_high": high if isfinite(high) else None, "ok": found.ok}
    for name, side in (("before", found.before), ("after", found.after)):
        row[name] = {**vars(side), "median_s": side.median_s}
    return row | {"outputs": [vars(check) for check in found.outputs]}
