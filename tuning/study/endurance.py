"""The endurance study: thousands of trials in one process, how large it grows, and what it leaves behind."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ...kernels import operator
from ...machine.errors import InputError
from ...machine.target import host_target, target_text
from ..records.database import Database
from ..search import search_for, strategy_name
from .fresh import run_fresh, study_folder

TRIALS = 3000
GOAL_BYTES = 1 << 30
"""The memory that the main process is promised to stay below."""

# Every process of the run has this variable: the way to find those that are left.
_MARK = "TUNESMITH_STUDY"
# Workers are killed as the main process ends, and the system takes a moment.
_GRACE_S = 2.0


@dataclass(frozen=True)
class EnduranceRow:
    """What a long tuning needed and left.

    Parameters
    ----------
    operator, shape, space, strategy : str, mapping, str, str
        What was searched, and how.
    trials, records : int
        Trials asked for, and records of this space in the database afterwards.
    stopped_by : str
        Why it ended.
    seconds : float
        From the start of the process to its end.
    rss_start_bytes, rss_max_bytes, rss_end_bytes : int
        Resident memory of the main process: after its first trial, at most, and at its end.
    worker_max_bytes : int
        The most that one of its worker processes held.
    processes_left, files_left : tuple of str
        What was there after its end that was not there before.
    """

    operator: str
    shape: Mapping[str, Any]
    space: str
    strategy: str
    trials: int
    records: int
    stopped_by: str
    seconds: float
    rss_start_bytes: int
    rss_max_bytes: int
    rss_end_bytes: int
    worker_max_bytes: int
    processes_left: tuple[str, ...]
    files_left: tuple[str, ...]

    @property
    def goal(self) -> str:
        """What is promised."""
        return "a main process under 1 GiB, every trial in the database, no process and no file left"

    @property
    def met(self) -> bool:
        """Whether that was shown."""
        small = self.rss_max_bytes < GOAL_BYTES
        return small and self.records == self.trials and not self.processes_left and not self.files_left


class Watch:
    """The largest resident memory seen of a process and of one of its descendants, in bytes."""

    def __init__(self) -> None:
        self.main = self.worker = 0

    def __call__(self, process: int) -> None:
        """Look at a process and those it started."""
        with suppress(psutil.NoSuchProcess):
            main = psutil.Process(process)
            self.main = max(self.main, main.memory_info().rss)
            for worker in main.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    self.worker = max(self.worker, worker.memory_info().rss)


def study_endurance(
    name: str = "matmul",
    shape: Mapping[str, Any] | None = None,
    trials: int = TRIALS,
    space: str | None = None,
    say: Callable[[str], object] = print,
) -> EnduranceRow:
    """Tune for thousands of trials in one fresh process and see what that needs and leaves.

    Parameters
    ----------
    name : str
        The operator: its name, or ``FILE.py:NAME``.
    shape : mapping, optional
        Its shape; that of a matmul of 256 by default.
    trials : int
        How many.
    space : str or None
        As in `tune`. Knobs are searched by ``random``, which costs least, sketches by ``evolutionary``.
    say : callable
        Told in a line what begins.

    Raises
    ------
    InputError
        There is no such operator, shape or space, or it has fewer points than trials.
    """
    if trials < 1:
        raise InputError(f"trials must be at least 1: trials={trials}")
    workload = operator(name).workload(shape or {"m": 256, "n": 256, "k": 256})
    search = search_for(workload, host_target(), space)
    if search.knobs is not None and len(search.knobs) < trials:
        raise InputError(
            f"the space {search.name!r} of {workload.label} has {len(search.knobs)} points: "
            f"trials={trials}; give a larger shape or fewer trials"
        )
    strategy = strategy_name(search, None if search.knobs is None else "random", None)
    say(f"{workload.label}: {trials} trials of {strategy} in the space {search.name}")
    watch, mark = Watch(), uuid.uuid4().hex
    with study_folder() as folder:
        (folder / "tmp").mkdir()
        path = folder / "endurance.db"
        given = {"operator": name, "shape": dict(workload.shape), "space": space, "strategy": strategy}
        found, seconds = run_fresh(
            "endurance_run",
            {**given, "trials": trials, "database": str(path)},
            environment={"TMPDIR": str(folder / "tmp"), _MARK: mark},
            watch=watch,
        )
        with Database(path, create=False) as database:
            records = database.records(workload.hash, target_text(host_target()), search.name)
        return EnduranceRow(
            operator=workload.name,
            shape=dict(workload.shape),
            space=search.name,
            strategy=strategy,
            trials=trials,
            records=len(records),
            stopped_by=found["stopped_by"],
            seconds=seconds,
            rss_start_bytes=found["rss_start"],
            rss_max_bytes=max(found["rss_max"], watch.main),
            rss_end_bytes=found["rss_end"],
            worker_max_bytes=watch.worker,
            processes_left=processes_with(mark),
            files_left=files_left(folder / "tmp"),
        )


def processes_with(mark: str, grace_s: float = _GRACE_S) -> tuple[str, ...]:
    """Name the processes of a marked run that still exist a moment after its end."""
    end = time.monotonic() + grace_s
    while (found := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _marked(mark: str) -> tuple[str, ...]:
    found = []
    for process in psutil.process_iter():
        # Those of other users do not show their environment, and are not ours.
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return tuple(found)


def files_left(folder: Path) -> tuple[str, ...]:
    """List what a run left in its folder for temporary files, but for the lock that measurements share."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.suffix != ".lock"))
