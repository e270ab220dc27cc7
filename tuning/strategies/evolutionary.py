"""The ``evolutionary`` strategy: MetaSchedule's search over its sketch rules, driven step by step.

MetaSchedule keeps what it is good at (sketch rules, traces, mutators, features, cost model); building,
running, checking and storing are tunesmith's. Its tune context gives candidates and is told the results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

from ...kernels.operator import func_hash
from ...machine.errors import InputError
from ...machine.process import load_tensor_intrinsics
from ..candidate import Candidate
from ..compilation import replay_trace, trace_text
from ..record import Record

_BATCH = 16
# Small enough that asking costs less than building: MetaSchedule's own 512 x 4 takes seconds a batch.
_POPULATION = 64
_GENERATIONS = 1
_LEAST_UNMEASURED = 16
# The model ranks by chance until it has seen this many.
_WARM_UP = 16
# Batches in a row that hold nothing new: after these the space counts as exhausted.
_EMPTY_BATCHES = 5
# The highest seed that MetaSchedule takes.
_SEEDS = 2**31 - 2
# What its cost model takes for the time of a candidate that failed.
_FAILED_S = 1e10

COST_MODELS = ("xgb", "random")
"""What ranks the population: MetaSchedule's XGBoost model on per-store features, or chance (the control)."""


class Evolutionary:
    """Propose traces by MetaSchedule's evolutionary search.

    Parameters
    ----------
    func : PrimFunc
        The unscheduled computation.
    target : Target
        What to compile for.
    seed : int
        Equal seeds and equal measurements propose equal traces.
    cost_model : str
        One of `COST_MODELS`.

    Raises
    ------
    InputError
        MetaSchedule has no sketch for this function.
    """

    batch = _BATCH

    def __init__(self, func: Any, target: Any, seed: int, cost_model: str = "xgb") -> None:
        # Before the context is made: it would import all of them, which takes 14 s.
        load_tensor_intrinsics(target)
        self._func, self._target = func, target
        self._chance = np.random.RandomState(seed % _SEEDS).get_state(legacy=True)
        self._database = ms.database.MemoryDatabase()
        with self._own_chance():
            self._model = (
                _xgb_model() if cost_model == "xgb" else ms.cost_model.RandomModel(seed=seed % _SEEDS)
            )
            self._context = self._new_context(seed)
            self._workload = self._database.commit_workload(self._context.mod)
            designs = self._designs()
            self._context.pre_tuning(_SEEDS, _BATCH, designs, self._database, self._model)
        self._known: dict[str, Any] = {}
        self._told: list[tuple[Any, Any]] = []
        self._batch: list[Any] = []
        self._proposed: dict[str, Any] = {}
        self._waiting: list[Candidate] = []

    def ask(self, count: int) -> list[Candidate]:
        """Propose the next traces that were not measured before."""
        for _ in range(_EMPTY_BATCHES):
            if self._waiting:
                break
            self._next_batch()
        asked, self._waiting = self._waiting[:count], self._waiting[count:]
        return asked

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Let population and cost model learn from a trial, from the next question on."""
        measured = self._proposed.get(candidate.key) or self._replayed(candidate)
        # None: of an earlier session with another TVM. It cannot be proposed again either.
        if measured is not None:
            result = ms.runner.RunnerResult(_seconds(record), None if record.usable else str(record.status))
            self._known[_module_key(measured.sch)] = result
            self._told.append((measured, result))

    def _replayed(self, candidate: Candidate) -> Any:
        """Return the candidate of a trace that this strategy did not propose itself."""
        assert candidate.trace is not None
        try:
            schedule = replay_trace(candidate.trace, self._func)
        except InputError:
            return None
        args_info = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        return ms.MeasureCandidate(schedule, args_info)

    def _next_batch(self) -> None:
        """Learn from what was told, report the last batch, generate the next, keep of it what is new."""
        with self._own_chance():
            self._learn()
            if self._batch:
                results = [self._known[_module_key(c.sch)] for c in self._batch]
                self._context.notify_runner_results(self._batch, results)
            self._batch = list(self._context.generate_measure_candidates() or [])
        self._proposed = {}
        for proposed in self._batch:
            key = _module_key(proposed.sch)
            if key not in self._known:
                self._proposed.setdefault(key, proposed)
        self._waiting = [Candidate(key, trace=trace_text(c.sch)) for key, c in self._proposed.items()]

    def _learn(self) -> None:
        """Put what was told into MetaSchedule's database, where its population starts from, and its model."""
        for measured, result in self._told:
            if result.error_msg is None:
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(
                        measured.sch.trace, self._workload, result.run_secs, self._target, measured.args_info
                    )
                )
        if self._told:
            self._model.update(self._context, *map(list, zip(*self._told, strict=True)))
        self._told = []

    def _new_context(self, seed: int) -> Any:
        silent = logging.getLogger(f"{__name__}.meta_schedule")
        silent.setLevel(logging.CRITICAL)
        search = ms.search_strategy.EvolutionarySearch(
            population_size=_POPULATION,
            genetic_num_iters=_GENERATIONS,
            init_min_unmeasured=_LEAST_UNMEASURED,
        )
        # One thread: with more, equal seeds do not give equal candidates.
        return ms.TuneContext(
            self._func,
            target=self._target,
            space_generator="post-order-apply",
            search_strategy=search,
            rand_state=seed % _SEEDS + 1,
            num_threads=1,
            logger=silent,
        )

    def _designs(self) -> Sequence[Any]:
        try:
            return list(self._context.generate_design_space())
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"the sketch space does not apply to this function: {str(error).strip().splitlines()[-1]}; "
                "choose another space"
            ) from error

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """Give MetaSchedule, which draws from NumPy's global generator, a state of its own there."""
        outside = np.random.get_state()
        np.random.set_state(self._chance)
        try:
            yield
        finally:
            self._chance = np.random.get_state()
            np.random.set_state(outside)


def _xgb_model() -> Any:
    return ms.cost_model.XGBModel(
        config=XGBConfig(nthread=1), num_warmup_samples=_WARM_UP, verbose_eval=0, adaptive_training=True
    )


def _module_key(schedule: Any) -> str:
    """Name a candidate by what it compiles: different traces may lead to the same program."""
    return func_hash(schedule.mod["main"])


def _seconds(record: Record) -> list[Any]:
    seconds = record.run_secs if record.usable else (_FAILED_S,)
    return [tvm.tirx.FloatImm("float32", s) for s in seconds]
