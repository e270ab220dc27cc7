"""One workload's tuning in one space: ask, build, check, time, record, tell.

Candidates are asked for ahead, so that builders always have work; what the strategy is told, and when it is
asked, depends on the order of its own candidates alone: equal seeds and equal times give equal searches.
"""

from __future__ import annotations

import time
from collections import deque
from functools import cached_property

import tvm

from ..kernels.operator import Workload
from ..machine.interrupts import raise_kept_interrupt
from ..machine.peaks import measured_peaks
from ..machine.target import target_text
from .budget import Standing
from .learning.experience import experiences
from .ledger import Ledger
from .measuring.cases import Cases
from .options import Options
from .records.candidate import Candidate
from .records.database import Database
from .records.record import Record
from .reporting.events import Learned, Started, TrialEnded, quiet
from .running.pipeline import Conditions, Pipeline, Trial
from .running.runner import device_lock
from .running.workbench import Workbench
from .search import Search, make_strategy
from .strategies.strategy import AHEAD, LearnsFromOthers
from .time_spent import TimeSpent
from .trial import TrialOrigin

# A workload of whose trials not one was right after so many is given up: its time is others' time.
DEAD_END_TRIALS = 32


class Session:
    """The tuning of one workload in one space, a number of trials at a time.

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
    alternative : bool
        Whether the workload's default schedule belongs to another space, which has a session of its own.
    """

    def __init__(
        self,
        workload: Workload,
        search: Search,
        database: Database,
        bench: Workbench,
        options: Options,
        alternative: bool = False,
    ) -> None:
        self.workload, self._alternative = workload, alternative
        self._search, self.bench, self.options = search, bench, options
        self.database = database
        self.target = target_text(options.target)
        self.time_spent = TimeSpent()
        self._flight: deque[Trial] = deque()
        self._ended: dict[int, Record] = {}
        self._exhausted = False
        self.begun, self._has_learned, self._goal = False, False, 0
        self._pipeline: Pipeline = bench.pipeline()
        self.stopped_by: str | None = None
        self.ledger = Ledger(
            search,
            database,
            workload.hash,
            self.target,
            options.device.fingerprint,
            options.timing.cache,
        )

    @property
    def trials(self) -> int:
        """Trials of this space, those of earlier sessions included."""
        return len(self.ledger.records)

    @cached_property
    def roofline_s(self) -> float:
        """The least seconds that the machine's peaks allow; 0 for another machine: they are not known."""
        if not self.options.device.local:
            return 0.0
        # Where no peaks are kept yet they are measured now: between two trials, never during one.
        with device_lock():
            peaks = measured_peaks()
        return peaks.seconds(self.workload.flops, self.workload.bytes_moved, self.workload.dtype)

    def standing(self, weight: float) -> Standing:
        """Say how far it has come, for the budget."""
        ledger = self.ledger
        self._learn_what_others_measured()
        return Standing(
            weight,
            self.trials,
            ledger.best_after,
            self.roofline_s if ledger.best_after else 0.0,
            ledger.best_s,
            self._alternative,
            self.stopped_by is not None,
        )

    def _begin(self) -> None:
        """Have the default built, and meanwhile make the strategy."""
        search, options, workload = self._search, self.options, self.workload
        func_ir = tvm.ir.save_json(workload.func)
        self._origin = TrialOrigin(
            workload, func_ir, self.target, options.strategy, options.seed, options.timing, options.device
        )
        if not self.ledger.tried_default:
            self._submit(search.default, default=True)
        with self.time_spent.on("search"):
            self._strategy = make_strategy(
                search, options.strategy, workload, options.target, options.seed, options.cost_model
            )
            for record in self.ledger.records:
                self._strategy.tell(search.candidate(record), record)
        self.announce()

    @cached_property
    def _conditions(self) -> Conditions:
        # First asked for when the first candidates are being built: the test cases are made meanwhile.
        return Conditions(self.cases, self.options.timing, self._limits, self.ledger.of_binary)

    @cached_property
    def cases(self) -> Cases:
        """The inputs that candidates are checked and timed on."""
        return self.bench.cases(self.workload)

    def announce(self) -> None:
        """Say that the tuning of the workload in this space begins."""
        options, knobs = self.options, self._search.knobs
        options.progress(
            Started(
                self.workload,
                self._search.name,
                options.strategy,
                None if knobs is None else len(knobs),
                options.pace.wanted,
                min(self.trials, options.pace.wanted),
                options.number,
                options.of,
            )
        )

    def advance(self, trials: int, until: float) -> None:
        """Try up to so many candidates more, and no further one from a point in time on.

        ``stopped_by`` says when no further turn makes sense.
        """
        with self.time_spent.at_work():
            self._try(trials, until)

    def _try(self, trials: int, until: float) -> None:
        self._goal = self.trials + trials
        if not self.begun:
            self._begin()
            self.begun = True
        self._ask_ahead()
        while self._flight and self._goes_on(until):
            raise_kept_interrupt()
            trial = self._pipeline.next_ended(self._conditions)
            self._ended[id(trial)] = record = self.ledger.add(self._origin.record(trial))
            self._report(record)
            while self._flight and id(self._flight[0]) in self._ended:
                self._tell(self._flight.popleft())
                self._ask_ahead()
        if self._flight:
            self._pipeline.discard()
            self._flight.clear()
        self.stopped_by = self._stop_reason() or ("exhausted" if self._exhausted else None)

    def _goes_on(self, until: float) -> bool:
        """Tell whether to wait for what is on its way: for the default always, so that there is an answer."""
        if self._flight[0].candidate is self._search.default:
            return True
        return self._stop_reason() is None and time.monotonic() < until

    def _ask_ahead(self) -> None:
        """Ask for candidates while few are on their way; always after one answer, never after several."""
        chunk = min(self._strategy.batch, AHEAD // 2)
        while not self._exhausted and len(self._flight) <= AHEAD - chunk:
            # Not how many have ended: that depends on how fast each of them was.
            told = self.trials - len(self._ended)
            wanted = min(chunk, self._goal - told - len(self._flight))
            if wanted <= 0:
                return
            with self.time_spent.on("search"):
                self._learn_from_others()
                self._learn_what_others_measured()
                candidates = self._strategy.ask(wanted)
            if not candidates:
                # While some are unanswered, the strategy may be waiting for them.
                self._exhausted = not self._flight
                return
            for candidate in candidates:
                self._submit(candidate)

    def _submit(self, candidate: Candidate, default: bool = False) -> None:
        search = self._search
        known = self.ledger.of_candidate(candidate)
        if known is not None and not default:
            self._strategy.tell(candidate, known)
            return
        if not default and any(trial.candidate.key == candidate.key for trial in self._flight):
            return
        rule, space = (
            (search.default_rule, search.default_rule.name) if default else (search.rule, search.name)
        )
        job = self.bench.job(
            self._origin.workload_ir, self.target, rule, candidate.knobs, candidate.trace, quick=True
        )
        trial = Trial(candidate, space, job, goes_first=default)
        self._flight.append(trial)
        self._pipeline.submit(trial)

    def _learn_from_others(self) -> None:
        """Start from the records of other workloads, once: when the first candidate is asked for.

        Until then the workloads that are tuned together have had turns, and have records to learn from.
        """
        if self._has_learned:
            return
        self._has_learned = True
        if self.options.transfer and isinstance(self._strategy, LearnsFromOthers):
            others = experiences(self.database, self.workload, self.target, self._search.name)
            if others:
                self._strategy.learn_from(others)
                self.options.progress(Learned(self.workload, len(others)))

    def _learn_what_others_measured(self) -> None:
        """Take up records that others have added meanwhile: their candidates need no trial here."""
        for record in self.ledger.take_up():
            if self.begun:
                self._strategy.tell(self._search.candidate(record), record)

    def _tell(self, trial: Trial) -> None:
        record = self._ended.pop(id(trial))
        if trial.space == self._search.name:
            with self.time_spent.on("search"):
                self._strategy.tell(trial.candidate, record)

    def _stop_reason(self) -> str | None:
        options, ledger = self.options, self.ledger
        if time.monotonic() >= options.deadline:
            return "time_budget"
        if options.early_stopping is not None and ledger.without_gain >= options.early_stopping:
            return "early_stopping"
        if options.roofline is not None and self.roofline_s / ledger.best_s >= options.roofline:
            return "roofline"
        if ledger.best is None and self.trials >= DEAD_END_TRIALS:
            return "dead_end"
        return None

    def _limits(self) -> tuple[float, float]:
        """Return the seconds above which a candidate is given up, and those of the best so far."""
        return self.options.give_up_factor * self.ledger.best_s, self.ledger.best_s

    def _report(self, record: Record) -> None:
        options, workload = self.options, self.workload
        options.pace.trial_ended(time.monotonic())
        gflops = fraction = None
        if record.median_s is not None and options.progress is not quiet:
            gflops = workload.flops / record.median_s / 1e9
            fraction = self.roofline_s / record.median_s or None
        options.progress(
            TrialEnded(
                number=options.pace.done(),
                trials=options.pace.wanted,
                record=record,
                best_s=self.ledger.best_s if self.ledger.best else None,
                gflops=gflops,
                roofline_fraction=fraction,
                elapsed_s=options.pace.elapsed_s,
                eta_s=options.pace.eta_s,
            )
        )

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time of this session went."""
        return self.time_spent.spent(self._pipeline.seconds)
