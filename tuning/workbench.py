"""The workbench of one tuning: its folder, builder and runner, which end with it, however it ends."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .builder import Builder
from .cases import Cases, new_folder
from .measurement import Timing
from .runner import Runner
from .tasks import BuildJob, Built, CompareJob, Ran, RunJob


class Workbench:
    """Worker processes and a temporary folder.

    Parameters
    ----------
    timeout_s : float
        The longest that building one candidate may take, and that running it may take.
    builders : int or None
        How many processes compile; the CPUs usable by default.
    """

    def __init__(self, timeout_s: float = 10.0, builders: int | None = None) -> None:
        self.timeout_s = timeout_s
        self.folder = new_folder()
        self._libraries = 0
        try:
            # The runner comes first: the first candidate is the default schedule, built in no time.
            self._runner = Runner(timeout_s)
            self._builder = Builder(timeout_s, builders)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Workbench:
        """Return the workbench itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers and remove the folder."""
        self.close()

    def close(self) -> None:
        """End the workers and remove the folder."""
        for part in ("_runner", "_builder"):
            if hasattr(self, part):
                getattr(self, part).close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_library(self) -> str:
        """Return a path for a library that no other has."""
        self._libraries += 1
        return str(Path(self.folder) / f"candidate{self._libraries}.so")

    def build(self, jobs: Sequence[BuildJob]) -> list[Built]:
        """Build candidates in parallel."""
        return self._builder.build(jobs)

    def run(self, built: Built, cases: Cases, timing: Timing, give_up_s: float = float("inf")) -> Ran:
        """Run, check and time one candidate that was built, and remove its library.

        No worker is starting meanwhile: that would disturb the measurement.
        """
        self._builder.wait_until_ready()
        ran = self._runner.run(RunJob(built.library, cases, timing, give_up_s))
        Path(built.library).unlink(missing_ok=True)
        return ran

    def compare(
        self, built: Sequence[Built], cases: Cases, timing: Timing, rounds: int
    ) -> list[list[float]] | None:
        """Measure candidates in turns in a fresh process; None where one of them takes it down."""
        self._builder.wait_until_ready()
        return self._runner.compare(CompareJob(tuple(b.library for b in built), cases, timing, rounds))
