"""The result of the ONNX backend test suite as a page: counts, and what is not supported, by operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from tabulate import tabulate

from ..machine.process import TVM_VERSION
from .onnx_suite import BAD, OUTCOMES, PASSED, SuiteRow, explanation

_LONGEST_REASON = 160
_MADE = """Made by `tunesmith study onnx --output docs/onnx_support.md`: the backend test suite of onnx {onnx}
with TVM {tvm}. Each test is a model that is imported, compiled, run, and compared with the onnx project's own
results. Inputs that shapes depend on (axes, sizes, pads) are bound to their values, as they are in exported
models."""


def report(rows: Sequence[SuiteRow]) -> str:
    """Write a page in Markdown.

    Parameters
    ----------
    rows : sequence of SuiteRow
        From :func:`~tunesmith.integrate.onnx_suite.run_suite`.
    """
    passed = sum(row.outcome == PASSED for row in rows)
    parts = [
        "# ONNX: what is supported",
        _MADE.format(onnx=version("onnx"), tvm=TVM_VERSION),
        f"**{passed} of {len(rows)} tests pass.**",
        _table(("outcome", "tests", "meaning"), _counts(rows)),
        "## By kind of test",
        _table(("kind", "passed", "tests"), _kinds(rows)),
        "## Operators that pass all of their tests",
        ", ".join(_complete(rows)),
        "## What does not pass",
        "The reason is that of the first such test.",
        _table(("operator", "passed", "outcome", "tests", "reason"), _failures(rows)),
        "## Imported, and then not as expected",
        _table(("test", "outcome", "why"), _bad(rows)) if _bad(rows) else "None.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(heading: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return tabulate(cells, list(heading), tablefmt="pipe", disable_numparse=True)


def _counts(rows: Sequence[SuiteRow]) -> list[tuple[str, int, str]]:
    counts = Counter(row.outcome for row in rows)
    return [(outcome, counts[outcome], meaning) for outcome, meaning in OUTCOMES.items() if counts[outcome]]


def _kinds(rows: Sequence[SuiteRow]) -> list[tuple[str, int, int]]:
    total, passed = (
        Counter(row.category for row in rows if p in (None, row.outcome)) for p in (None, PASSED)
    )
    return [(kind, passed[kind], total[kind]) for kind in total]


def _complete(rows: Sequence[SuiteRow]) -> list[str]:
    nodes = [row for row in rows if row.category == "NodeModel"]
    failed = {row.operator for row in nodes if row.outcome != PASSED}
    return sorted({row.operator for row in nodes} - failed, key=str.lower)


def _failures(rows: Sequence[SuiteRow]) -> list[tuple[str, int, str, int, str]]:
    groups: dict[tuple[str, str], list[SuiteRow]] = {}
    for row in rows:
        if row.outcome != PASSED and row.outcome not in BAD:
            groups.setdefault((row.operator, row.outcome), []).append(row)
    passed = Counter(row.operator for row in rows if row.outcome == PASSED)
    return [
        (operator, passed[operator], outcome, len(found), found[0].reason[:_LONGEST_REASON])
        for (operator, outcome), found in sorted(groups.items(), key=lambda group: group[0][0].lower())
    ]


def _bad(rows: Sequence[SuiteRow]) -> list[tuple[str, str, str]]:
    return [
        (row.test, row.outcome, explanation(row) or row.reason[:_LONGEST_REASON])
        for row in rows
        if row.outcome in BAD
    ]
