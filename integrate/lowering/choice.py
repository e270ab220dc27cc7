"""Which schedule a function got, and why. A package carries it to where nothing of tuning is loaded."""

from __future__ import annotations

from dataclasses import dataclass

RECORD, DEFAULT, FALLBACK = "record", "default", "fallback"
"""Where a schedule comes from."""


@dataclass(frozen=True)
class Choice:
    """The schedule that one function of a model got, and why.

    Parameters
    ----------
    function : str
        Its name in the model.
    origin : str
        ``record``; ``default``, the first rule that applies; or ``fallback``, where a better one failed.
    schedule : str
        The rule, or the record's space; ``none`` if every rule failed.
    reason : str
        The record's id and time for people, and what failed before.
    flops : int
        Operations of one call.
    bytes_moved : int
        The least traffic of one call: each argument once.
    dtype : str
        The output's type.
    record : str
        The record's id; empty where it comes from none.
    recorded_s : float or None
        Median seconds of one call, as the record has it.
    """

    function: str
    origin: str
    schedule: str
    reason: str
    flops: int = 0
    bytes_moved: int = 0
    dtype: str = ""
    record: str = ""
    recorded_s: float | None = None
