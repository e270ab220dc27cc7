"""Where the time of a tuning goes, of one workload in one space: the others' turns lie between its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class TimeSpent:
    """A clock for all the time that a session works, and one for each part of it."""

    def __init__(self) -> None:
        self._whole_s = 0.0
        self._parts = {"search": 0.0, "confirm": 0.0}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the time in here as the session's."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._whole_s += time.monotonic() - start

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count the time in here as that of a part of the work: ``search`` or ``confirm``."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._parts[part] += time.monotonic() - start

    def spent(self, others: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of each part, those of ``others`` between them, and of what is none of them."""
        parts = {"search": self._parts["search"], **others, "confirm": self._parts["confirm"]}
        return {**parts, "other": self._whole_s - sum(parts.values())}
