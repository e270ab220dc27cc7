"""What every strategy is: it is asked for candidates and told how they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..records.candidate import Candidate
from ..records.record import Record

AHEAD = 8
"""How many candidates may still be unanswered at the next question: they are built while others are run."""


class Strategy(Protocol):
    """How the next candidates are chosen.

    Equal seeds and equal answers lead to equal candidates, none of them outside the space, and no candidate
    is proposed twice, be it one told about before the first question (from an earlier session). Candidates
    are told about in the order in which they were proposed, but up to `AHEAD` of them may still be unanswered
    at the next question: building runs ahead of measuring.
    """

    @property
    def batch(self) -> int:
        """How many candidates it likes to be asked for at once."""
        ...

    def ask(self, count: int) -> list[Candidate]:
        """Propose up to ``count`` candidates.

        None means that the space is exhausted; while candidates of its own are unanswered, it means that
        the strategy waits for them.
        """
        ...

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Learn how a candidate did, also one that this strategy did not propose."""
        ...


@dataclass(frozen=True)
class Experience:
    """A trial of another workload of the same operator on the same target, to learn from.

    Parameters
    ----------
    shape : mapping
        That workload's dimensions.
    knobs : mapping or None
        The candidate, in a knob space.
    trace : str or None
        The candidate's trace as JSON text.
    workload_hash : str
        Which workload it was: experiences of one workload compare with each other.
    share : float
        Throughput as a share of the best known of that workload, 0 to 1; 0 for a trial that failed.
    workload_ir : str
        That workload's PrimFunc as JSON text: what a trace applies to. Knobs need none.
    record_id : str
        The trial's record.
    """

    shape: Mapping[str, int | str]
    knobs: Mapping[str, int] | None
    trace: str | None
    workload_hash: str
    share: float
    workload_ir: str = ""
    record_id: str = ""


@runtime_checkable
class LearnsFromOthers(Protocol):
    """What a strategy has besides `Strategy` where it can start from trials of other workloads."""

    def learn_from(self, others: Sequence[Experience]) -> None:
        """Take up trials of other workloads; called once, before the first question."""
        ...
