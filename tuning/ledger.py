"""The ledger of a tuning: which candidates of a workload are known, and which of them is the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .confirmation import trial_seconds
from .records.candidate import Candidate
from .records.database import Database
from .records.record import Record, Status
from .search import Search


class Ledger:
    """The records of one workload and target, those of earlier sessions and of other processes included.

    Parameters
    ----------
    search : Search
        The space that is searched.
    database : Database
        Where records are kept.
    workload_hash, target : str
        Whose records.
    fingerprint : str
        The machine that is measured on; times of others do not compare.
    cache : str
        ``warm`` or ``cold``, as candidates are timed; records of the other kind are none of this tuning.
    """

    def __init__(
        self,
        search: Search,
        database: Database,
        workload_hash: str,
        target: str,
        fingerprint: str,
        cache: str,
    ) -> None:
        self._search, self._database, self._fingerprint = search, database, fingerprint
        self._cache = cache
        self._of = (workload_hash, target)
        self._seen = 0
        self._ids: set[str] = set()
        self._by_key: dict[str, Record] = {}
        self._by_binary: dict[str, Record] = {}
        self.records: list[Record] = []
        self.default: Record | None = None
        self.best: Record | None = None
        self.counts: Counter[Status] = Counter()
        self.without_gain = 0
        self.best_after: list[float] = []
        self.take_up()

    def take_up(self) -> list[Record]:
        """Take up what has been added to the database since the last time; return those of this space."""
        found, self._seen = self._database.newer(*self._of, self._seen)
        new = [r for r in found if r.id not in self._ids and r.cache == self._cache]
        for record in new:
            self._enter(record)
        return [record for record in new if record.space == self._search.name]

    def add(self, record: Record) -> Record:
        """Put a new trial into the database and count it; return what the database holds of it now."""
        record = self._database.add(record)
        # Another process may have been faster, and its record taken up already.
        faster = record.id not in self._ids and self._enter(record)
        self.without_gain = 0 if faster else self.without_gain + 1
        self.counts[record.status] += 1
        return record

    @property
    def best_s(self) -> float:
        """Seconds of the fastest right trial so far; infinite before there is one."""
        return trial_seconds(self.best) if self.best else float("inf")

    @property
    def tried_default(self) -> bool:
        """Whether the default schedule needs no further trial: it was right, or is known to fail."""
        return self.default is not None or any(map(self._search.is_default, self.records))

    def of_candidate(self, candidate: Candidate) -> Record | None:
        """Return the record of a candidate of this space, where it was tried."""
        return self._by_key.get(candidate.key)

    def of_binary(self, binary: str) -> Record | None:
        """Return a record of this machine with a given binary."""
        return self._by_binary.get(binary)

    def fastest(self, count: int) -> Sequence[Record]:
        """Return the fastest right trials of this space on this machine; one for each binary."""
        here = (r for r in self.records if r.machine_fingerprint == self._fingerprint)
        return sorted((r for r in here if r.usable and not r.same_as), key=trial_seconds)[:count]

    def _enter(self, record: Record) -> bool:
        """Enter a record and tell whether it is the best so far."""
        search, here = self._search, record.machine_fingerprint == self._fingerprint
        self._ids.add(record.id)
        if record.space == search.name:
            self.records.append(record)
            self._by_key[search.candidate(record).key] = record
        if search.is_default(record) and record.usable:
            self.default = record
        if here and record.binary and record.run_secs:
            self._by_binary.setdefault(record.binary, record)
        right = here and record.usable
        if record.space == search.name or search.is_default(record):
            before = self.best_after[-1] if self.best_after else float("inf")
            self.best_after.append(min(before, trial_seconds(record)) if right else before)
        faster = right and trial_seconds(record) < self.best_s
        if faster:
            self.best = record
        return faster
