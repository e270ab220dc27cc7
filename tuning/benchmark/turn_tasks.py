"""What a worker does in its turn: time what it has ready. Little is imported: its memory may be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..measuring.measurement import seconds_of


@dataclass(frozen=True)
class TurnJob:
    """A turn of what is ready: so many calls, each with its caches emptied before it or not."""

    number: int
    cold_cache: bool = False


# What this worker has ready, and its arguments.
_ready: tuple[Callable[..., Any], Sequence[Any]] | None = None


def make_ready(call: Callable[..., Any], arguments: Sequence[Any] = ()) -> None:
    """Note what is timed from now on."""
    global _ready
    _ready = (call, arguments)


def time_turn(job: TurnJob) -> float:
    """Time what is ready: a call that does not count, then the mean of some calls, in seconds."""
    assert _ready is not None, "nothing was made ready"
    call, arguments = _ready
    # The first call after a pause wakes threads that went to sleep meanwhile.
    call(*arguments)
    flush = None
    if job.cold_cache:
        from ...machine.flush import cache_flush

        flush = cache_flush()
    return seconds_of(call, arguments, job.number, flush)
