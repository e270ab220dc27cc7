"""The report of a compilation: what each function of a model got, and where its time is expected to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...machine.peaks import roofline_seconds
from .choice import Choice

MEASURED, PREDICTED = "measured", "predicted"
"""Where an expected time is from: the record that the schedule comes from, or the roofline."""

ReportRow = dict[str, Any]
"""The fields of a `Choice`, and ``seconds, timing, share``."""


def report(choices: Sequence[Choice]) -> list[ReportRow]:
    """Return a row for each function of a model, those that take longest first.

    ``seconds`` is the expected time of all calls in one inference. It is ``measured`` where the function's
    schedule comes from a record: the record's median. Otherwise it is ``predicted``: the least time in which
    this machine could do it, ``max(flops / peak, bytes / bandwidth)``. ``share`` is its part of the sum.
    """
    seconds = [_expected(choice) for choice in choices]
    total = sum(seconds) or 1.0
    rows = [
        {
            **asdict(choice),
            "seconds": expected,
            "timing": PREDICTED if choice.recorded_s is None else MEASURED,
            "share": expected / total,
        }
        for choice, expected in zip(choices, seconds, strict=True)
    ]
    return sorted(rows, key=lambda row: -float(row["seconds"]))


def _expected(choice: Choice) -> float:
    one_call = choice.recorded_s
    if one_call is None:
        one_call = roofline_seconds(choice.flops, choice.bytes_moved, choice.dtype)
    return one_call * choice.calls
