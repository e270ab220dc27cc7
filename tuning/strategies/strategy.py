"""What every strategy is: it is asked for candidates and told how they did."""

from __future__ import annotations

from typing import Protocol

from ..candidate import Candidate
from ..record import Record


class Strategy(Protocol):
    """How the next candidates are chosen.

    Equal seeds and equal answers lead to equal candidates, and no candidate is proposed twice, be it one
    told about before the first question (from an earlier session). Every candidate proposed is told about
    before the next question.
    """

    @property
    def batch(self) -> int:
        """How many candidates it likes to be asked for at once."""
        ...

    def ask(self, count: int) -> list[Candidate]:
        """Propose up to ``count`` candidates; none means that the space is exhausted."""
        ...

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Learn how a candidate did, also one that this strategy did not propose."""
        ...
