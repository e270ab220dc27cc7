"""``tunesmith study onnx``: the ONNX project's backend test suite, run against tunesmith."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from ...machine.errors import InputError
from ..options import TvmCommand, common_options
from ..output import Column, print_notice, print_rows

_COLUMNS = [Column("outcome", "outcome"), Column("tests", "tests"), Column("meaning", "meaning")]


@click.command(
    "onnx",
    cls=TvmCommand,
    examples=["study onnx", "study onnx --tests softmax", "study onnx --output docs/onnx_support.md"],
)
@click.option("--tests", metavar="REGEX", help="Only tests whose names match.  [default: all, 15 minutes]")
@click.option(
    "--timeout", "timeout_s", default=120.0, show_default=True, metavar="S", help="Seconds for one test."
)
@click.option("--output", metavar="FILE", help="Write the counts and what is not supported as Markdown.")
@common_options
def study_onnx(tests: str | None, timeout_s: float, output: str | None, as_json: bool) -> int:
    """Run the backend test suite of the onnx package, each test in a process that may crash.

    --json prints a row for each test. Exit status 1 if a model was imported and then failed, and it is not
    known what TVM computes otherwise.
    """
    from ...integrate.onnx_report import report
    from ...integrate.onnx_suite import OUTCOMES, run_suite, suite_tests, unexplained
    from ...machine.files import written_aside

    names = _matching(list(suite_tests()), tests)
    rows = []
    for row in run_suite(names, timeout_s, say=print_notice):
        rows.append(row)
        if len(rows) % 100 == 0:
            print_notice(f"{len(rows)} of {len(names)} tests")
    if as_json:
        print_rows([asdict(row) for row in rows], [], as_json=True)
    else:
        counts = Counter(row.outcome for row in rows)
        found = [
            {"outcome": o, "tests": counts[o], "meaning": why} for o, why in OUTCOMES.items() if counts[o]
        ]
        print_rows(found, _COLUMNS, as_json=False)
    if output is not None:
        with written_aside(Path(output)) as file:
            file.write(report(rows))
    return 1 if unexplained(rows) else 0


def _matching(names: list[str], pattern: str | None) -> list[str]:
    if pattern is None:
        return names
    try:
        found = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise InputError(f"--tests is a regular expression: {pattern!r}: {error}") from error
    if not found:
        raise InputError(f"no test of the suite matches --tests {pattern!r}")
    return found
