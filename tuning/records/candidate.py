"""A candidate: one point of a space, not yet built."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .record import Record, Status


@dataclass(frozen=True)
class Candidate:
    """What a strategy proposes: knobs, or a trace in a sketch space.

    Parameters
    ----------
    key : str
        The same for the same candidate in every process: what says that it was measured before.
    knobs : mapping or None
        One value for each knob.
    trace : str or None
        The trace as JSON text.
    """

    key: str
    knobs: Mapping[str, int] | None = None
    trace: str | None = None


def knob_candidate(knobs: Mapping[str, int]) -> Candidate:
    """Make the candidate of a point in a knob space."""
    return Candidate(knob_key(knobs), knobs=dict(knobs))


def knob_key(knobs: Mapping[str, int]) -> str:
    """Return the text that names a point, whatever the order of its knobs."""
    return json.dumps(dict(knobs), sort_keys=True)


def throughput(record: Record) -> float:
    """Return calls a second: what a search maximizes; 0 for a trial that failed.

    One that was given up while it was checked has a time to learn from, though it is never applied.
    """
    return 1.0 / record.median_s if record.status is Status.OK and record.median_s else 0.0
