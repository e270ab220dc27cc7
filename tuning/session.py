"""One workload's tuning: ask, build, run, verify, record, tell; and the comparison at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm

from ..kernels.operator import Workload
from ..machine.facts import machine_fingerprint
from ..machine.peaks import measured_peaks
from ..machine.target import target_text
from ..schedules.rule import ScheduleRule
from .candidate import Candidate
from .cases import prepare_cases
from .confirmation import confirm, trial_seconds
from .database import Database
from .measurement import Timing
from .progress import Progress, Started, TrialEnded, TuneResult, quiet
from .record import Record, Status
from .runner import device_lock
from .search import Search, make_strategy
from .tasks import Built, Ran
from .trial import TrialOrigin
from .workbench import Workbench

# How many of a search's best take part in the comparison at the end.
_FINALISTS = 3


@dataclass(frozen=True)
class Options:
    """What a tuning was asked for; see `tune`."""

    target: Any
    trials: int
    strategy: str
    cost_model: str | None
    seed: int
    early_stopping: int | None
    deadline: float
    timing: Timing
    give_up_factor: float
    progress: Progress


class Session:
    """The tuning of one workload.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    search : Search
        Its space and default.
    database : Database
        Where records go.
    bench : Workbench
        Where candidates are built and run.
    options : Options
        The rest.
    """

    def __init__(
        self, workload: Workload, search: Search, database: Database, bench: Workbench, options: Options
    ) -> None:
        self._workload, self._search, self._database = workload, search, database
        self._bench, self._options = bench, options
        self._target = target_text(options.target)
        self._func_ir = tvm.ir.save_json(workload.func)
        self._start = time.monotonic()
        self._seconds = dict.fromkeys(("search", "build", "run", "confirm"), 0.0)
        self._counts: Counter[Status] = Counter()
        self._records: list[Record] = []
        self._default: Record | None = None
        self._best: Record | None = None
        self._new = 0
        self._without_gain = 0

    def run(self) -> TuneResult:
        """Search until something says stop, then let the best prove itself against the default."""
        try:
            self._prepare()
            stopped_by = self._search_on()
            with self._timed("confirm"):
                self._confirm()
        except KeyboardInterrupt:
            stopped_by = "interrupted"
        return self._result(stopped_by)

    def _prepare(self) -> None:
        """Take up what the database holds, and make the test cases."""
        found = self._database.records(self._workload.hash, self._target)
        self._records = [r for r in found if r.space == self._search.name]
        self._default = next((r for r in found if self._search.is_default(r) and r.usable), None)
        for record in found:
            if self._is_faster(record):
                self._best = record
        points = None if self._search.knobs is None else len(self._search.knobs)
        options = self._options
        options.progress(
            Started(
                self._workload,
                self._search.name,
                options.strategy,
                points,
                options.trials,
                min(len(self._records), options.trials),
            )
        )
        self._cases = prepare_cases(self._workload, f"{self._bench.folder}/{self._workload.hash}")

    def _search_on(self) -> str:
        """Measure the default first, then what the strategy asks for; say what ended it."""
        search, options = self._search, self._options
        with self._timed("search"):
            strategy = make_strategy(
                search, options.strategy, self._workload, options.target, options.seed, options.cost_model
            )
            for record in self._records:
                strategy.tell(search.candidate(record), record)
        if self._default is None and not any(search.is_default(r) for r in self._records):
            self._default = self._trials([search.default], search.default_rule, search.default_rule.name)[0]
            if search.knobs is not None:
                strategy.tell(search.default, self._default)
        while (reason := self._stop_reason()) is None:
            with self._timed("search"):
                candidates = strategy.ask(min(strategy.batch, options.trials - len(self._records)))
            if not candidates:
                return "exhausted"
            records = self._trials(candidates, search.rule, search.name)
            with self._timed("search"):
                for candidate, record in zip(candidates, records, strict=False):
                    strategy.tell(candidate, record)
        return reason

    def _stop_reason(self) -> str | None:
        if len(self._records) >= self._options.trials:
            return "trials"
        if time.monotonic() >= self._options.deadline:
            return "time_budget"
        if self._options.early_stopping is not None and self._without_gain >= self._options.early_stopping:
            return "early_stopping"
        return None

    def _trials(self, candidates: Sequence[Candidate], rule: ScheduleRule | None, space: str) -> list[Record]:
        """Build candidates side by side, then run them one after another; each ends in a record."""
        bench, records = self._bench, list[Record]()
        origin = TrialOrigin(
            self._workload, self._func_ir, self._target, space, self._options.strategy, self._options.seed
        )
        with self._timed("build"):
            jobs = [bench.job(self._func_ir, self._target, rule, c.knobs, c.trace) for c in candidates]
            every_built = bench.build(jobs)
        for candidate, built in zip(candidates, every_built, strict=True):
            if records and self._stop_reason() is not None:
                break
            with self._timed("run"):
                ran = self._run(built)
            record = origin.record(candidate, built, ran)
            self._database.add(record)
            records.append(record)
            self._take(record)
        return records

    def _run(self, built: Built) -> Ran:
        give_up_s = self._options.give_up_factor * trial_seconds(self._best) if self._best else float("inf")
        return self._bench.run(built, self._cases, self._options.timing, give_up_s)

    def _take(self, record: Record) -> None:
        """Count a trial and report it."""
        self._new += 1
        self._without_gain += 1
        if self._is_faster(record):
            self._best, self._without_gain = record, 0
        self._counts[record.status] += 1
        if record.space == self._search.name:
            self._records.append(record)
        else:
            self._default = record
        self._report(record)

    def _report(self, record: Record) -> None:
        options, workload = self._options, self._workload
        elapsed = time.monotonic() - self._start
        left = max(0, options.trials - len(self._records))
        gflops = fraction = None
        if record.median_s is not None and options.progress is not quiet:
            gflops = workload.flops / record.median_s / 1e9
            # After the first trial and never during one: where no peaks are kept yet they are measured now.
            with device_lock():
                peaks = measured_peaks()
            fraction = peaks.seconds(workload.flops, workload.bytes_moved, workload.dtype) / record.median_s
        options.progress(
            TrialEnded(
                number=len(self._records),
                trials=options.trials,
                record=record,
                best_s=trial_seconds(self._best) if self._best else None,
                gflops=gflops,
                roofline_fraction=fraction,
                elapsed_s=elapsed,
                eta_s=elapsed / self._new * left,
            )
        )

    def _is_faster(self, record: Record) -> bool:
        """Tell whether a record is the best so far; those of other machines do not compare."""
        here = record.usable and record.machine_fingerprint == machine_fingerprint()
        return here and (self._best is None or trial_seconds(record) < trial_seconds(self._best))

    def _confirm(self) -> None:
        """Let the best prove itself against the default, unless nothing has changed since it last did."""
        answer = self._database.best(self._workload.hash, self._target)
        if self._new or answer is None or not answer.confirmed_secs:
            fastest = sorted((r for r in self._records if r.usable), key=trial_seconds)[:_FINALISTS]
            known = [r for r in (self._default, answer) if r is not None and r.usable]
            confirm([*known, *fastest], self._database, self._bench, self._cases, self._options.timing)

    def _result(self, stopped_by: str) -> TuneResult:
        seconds = {**self._seconds}
        seconds["other"] = time.monotonic() - self._start - sum(seconds.values())
        result = TuneResult(
            workload=self._workload,
            best=self._database.best(self._workload.hash, self._target),
            default=self._database.get(self._default.id) if self._default else None,
            counts=dict(self._counts),
            trials=len(self._records),
            stopped_by=stopped_by,
            seconds=seconds,
        )
        self._options.progress(result)
        return result

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds[part] += time.monotonic() - start
