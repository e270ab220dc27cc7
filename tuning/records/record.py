"""A record: what a trial leaves behind, whatever its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import median


class Status(str, Enum):
    """Every way a trial can end."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    SCHEDULE_ERROR = "schedule_error"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    CRASHED = "crashed"

    def __str__(self) -> str:
        """Return the word stored in databases and shown to people."""
        return self.value


@dataclass(frozen=True)
class Record:
    """One trial: what was tried, on which machine, and how it ended.

    Parameters
    ----------
    id : str
        Unique among all databases.
    created : str
        When the trial ended, ISO 8601, UTC.
    operator, shape, dtype : str, mapping, str
        The workload as a person names it.
    workload_hash, workload_ir : str, str
        The workload as the computer knows it: structural hash, and the PrimFunc as TVM's JSON.
    target, machine_fingerprint : str, str
        What it was compiled for, and where it was measured.
    space, strategy, seed : str, str, int
        Where the candidate came from.
    knobs : mapping or None
        The candidate, in a knob space.
    trace : str or None
        The schedule's trace as JSON; None where no schedule came about.
    status : Status
        How the trial ended.
    verified : bool
        Whether its output was compared with the reference and found right.
    max_error : float or None
        The largest error found, in units of the tolerance's scale; None where nothing could be compared.
    run_secs : tuple of float
        Seconds of one call, one value a repetition.
    confirmed_secs : tuple of float
        The same from the comparison at the end of a tuning: in a fresh process, interleaved with the
        default schedule. Empty where the record took no part in the latest one.
    build_s : float or None
        Seconds of CPU to schedule, compile and link.
    message : str
        What went wrong, or what is worth knowing.
    key : str or None
        The candidate's key, see `Candidate`: no two records of one workload, target, space, machine, device
        and kind of caches have the same. None where it is not known; then nothing is compared.
    binary : str
        Hash of the compiled library; empty where it is not known.
    same_as : str
        Id of the record of an equal binary, whose ``run_secs`` these are; empty where this one was measured.
    device : str
        Where it ran or was to run: ``local``, or ``rpc:KEY`` for a device of a tracker.
    threads : int
        Threads it ran on; 0 where that is not known.
    calls : int
        Calls that each of ``run_secs`` is the mean of; 0 where that is not known.
    cache : str
        ``warm``, or ``cold`` where the caches were emptied before each repetition.
    """

    id: str
    created: str
    operator: str
    shape: Mapping[str, int | str]
    dtype: str
    workload_hash: str
    workload_ir: str
    target: str
    machine_fingerprint: str
    space: str
    strategy: str
    seed: int
    knobs: Mapping[str, int] | None
    trace: str | None
    status: Status
    verified: bool
    max_error: float | None
    run_secs: tuple[float, ...]
    build_s: float | None
    message: str
    tvm_version: str
    tunesmith_version: str
    confirmed_secs: tuple[float, ...] = ()
    key: str | None = None
    binary: str = ""
    same_as: str = ""
    device: str = "local"
    threads: int = 0
    calls: int = 0
    cache: str = "warm"

    @property
    def usable(self) -> bool:
        """Whether the record may be applied: it ran, and its output was right."""
        return self.status is Status.OK and self.verified and bool(self.run_secs)

    @property
    def median_s(self) -> float | None:
        """Median seconds of one call: of the confirmation where there was one, else of the trial."""
        seconds = self.confirmed_secs or self.run_secs
        return median(seconds) if seconds else None

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, best first: confirmed records come before others, then the faster ones."""
        return (not self.confirmed_secs, float("inf") if self.median_s is None else self.median_s)
