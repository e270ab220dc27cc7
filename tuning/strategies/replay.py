"""The strategies ``replay-trace`` and ``replay-func``: sketches at random, with no model and no parents.

``replay-trace`` makes the designs once and replays their traces with fresh decisions; ``replay-func`` runs
the sketch rules again for each candidate, so that what they choose themselves is chosen afresh as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records.candidate import Candidate
from ..records.record import Record
from .sketch import Sketch, SketchSpace

_BATCH = 4


class Replay:
    """Propose sketches as they come, none twice.

    Parameters
    ----------
    space : SketchSpace
        Where they come from.
    make : callable
        Makes one; None where that one came to nothing.
    """

    batch = _BATCH

    def __init__(self, space: SketchSpace, make: Callable[[], Sketch | None]) -> None:
        self._space, self._make = space, make

    def ask(self, count: int) -> list[Candidate]:
        """Propose the next sketches."""
        proposed: list[Candidate] = []
        while len(proposed) < count and (sketch := self._space.new(self._make)) is not None:
            proposed.append(sketch.candidate())
        return proposed

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Remember that a candidate is known."""
        del record
        self._space.add_known(candidate)


def replay_trace(func: Any, target: Any, seed: int, cost_model: str | None = None) -> Replay:
    """Replay the designs' traces with fresh decisions."""
    del cost_model
    space = SketchSpace(func, target, seed)
    return Replay(space, space.draw)


def replay_func(func: Any, target: Any, seed: int, cost_model: str | None = None) -> Replay:
    """Run the sketch rules again for each candidate."""
    del cost_model
    space = SketchSpace(func, target, seed)
    return Replay(space, space.draw_anew)
