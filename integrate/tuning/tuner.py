"""Tuning a model: its functions share one budget, and the whole is measured before and after."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...machine.target import as_target
from ...schedules.rule import ScheduleRule
from ...tuning.planning.plan import TuningPlan, plan
from ...tuning.records.database import Database
from ...tuning.reporting.events import TuneResult
from ...tuning.search import ALL as ALL_SPACES
from ...tuning.tuner import tune
from ..extraction import ModelWorkload, extract_workloads
from ..model import Model
from ..packaging.build import compile_model
from ..running.comparison import Comparison, compare
from .selection import ALL, selected

LEAST_SHARE = 0.005
"""A function that takes less than this part of the time costs one trial, unless it is asked for by number."""


@dataclass(frozen=True)
class ModelTuning:
    """What the tuning of a model came to.

    Parameters
    ----------
    tasks : tuple of ModelWorkload
        The functions that were tuned.
    results : tuple of TuneResult
        One for each of them.
    comparison : Comparison or None
        The whole model with default schedules and with the best records, run in turns; None where no record
        is better than a default, or it was not asked for.
    """

    tasks: tuple[ModelWorkload, ...]
    results: tuple[TuneResult, ...]
    comparison: Comparison | None

    @cached_property
    def default_s(self) -> float:
        """Seconds of these functions in one inference with default schedules, by their records."""
        return sum(default for default, _ in self._times)

    @cached_property
    def best_s(self) -> float:
        """The same with the best records."""
        return sum(best for _, best in self._times)

    @property
    def new_trials(self) -> int:
        """Trials that this call made."""
        return sum(sum(result.counts.values()) for result in self.results)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return any(result.stopped_by == "interrupted" for result in self.results)

    @property
    def gained(self) -> bool:
        """Whether a function has a record that is better than its default schedule."""
        return any(result.best and result.best.id != _id(result.default) for result in self.results)

    @property
    def _times(self) -> list[tuple[float, float]]:
        pairs = zip(self.tasks, self.results, strict=True)
        known = [(_calls(task), result.default, result.best) for task, result in pairs]
        return [
            (calls * default.median_s, calls * best.median_s)
            for calls, default, best in known
            if default and best and default.median_s is not None and best.median_s is not None
        ]


def tune_model(
    model: Model,
    *,
    tasks: str = ALL,
    functions: str | None = None,
    min_flops: float = 0.0,
    target: Any = "host",
    database: Database | str | Path = "tunesmith.db",
    space: str | ScheduleRule | None = ALL_SPACES,
    confirm: bool = True,
    **options: Any,
) -> ModelTuning:
    """Tune the functions of a model within one budget, and measure the whole before and after.

    What a function counts for is how often the model calls it, times its time. A record belongs to the
    computation: one that another model's tuning left serves here, and the same call again goes on where the
    last one stopped.

    Parameters
    ----------
    model : Model
        From :func:`~tunesmith.integrate.model.load_model`.
    tasks : str
        Which functions by number, as `extract_workloads` counts them: ``all``, ``0,2``, ``3-5``, ``-3``,
        ``4-``. Of all, those that take less than 0.5 % of the time cost one trial each.
    functions : str, optional
        Patterns of their names: ``conv2d*,matmul*``.
    min_flops : float
        The least operations of one call.
    target : str or tvm.target.Target
        What to compile for; it must run on this machine.
    database : Database or path
        Where records are kept.
    space : str or ScheduleRule or None
        As in `tune`, and by default all schedules that apply to each function.
    confirm : bool
        Whether to compile and run the whole model both ways at the end, where something was gained.
    **options
        Those of `tune`: ``trials``, ``time_budget``, ``strategy``, ``remote``, ``progress``, ...

    Returns
    -------
    ModelTuning
        What was found, and how much faster the model is.

    Raises
    ------
    InputError
        No function fits the filters, or an option is wrong.
    """
    target = as_target(target) if options.get("remote") is None else target
    chosen, options = _prepared(model, tasks, functions, min_flops, target, space, options)
    with ExitStack() as stack:
        opened = database if isinstance(database, Database) else stack.enter_context(Database(database))
        results = tune([each.workload for each in chosen], target=target, database=opened, **options)
        found = ModelTuning(tuple(chosen), tuple(results), None)
        if not (confirm and found.gained and options.get("remote") is None) or found.interrupted:
            return found
        try:
            before = compile_model(model, target)
            comparison = compare(before, compile_model(model, target, opened))
        except KeyboardInterrupt:
            return found
        return ModelTuning(found.tasks, found.results, comparison)


def plan_model(
    model: Model,
    *,
    tasks: str = ALL,
    functions: str | None = None,
    min_flops: float = 0.0,
    target: Any = "host",
    space: str | ScheduleRule | None = ALL_SPACES,
    **options: Any,
) -> TuningPlan:
    """Say what `tune_model` would do with the same arguments, without doing it.

    Parameters
    ----------
    model, tasks, functions, min_flops, target, space
        As in `tune_model`.
    **options
        Those of `plan`.

    Raises
    ------
    InputError
        No function fits the filters, or an option is wrong.
    """
    chosen, options = _prepared(model, tasks, functions, min_flops, target, space, options)
    return plan([each.workload for each in chosen], target=target, **options)


def _prepared(
    model: Model,
    tasks: str,
    functions: str | None,
    min_flops: float,
    target: Any,
    space: str | ScheduleRule | None,
    options: dict[str, Any],
) -> tuple[list[ModelWorkload], dict[str, Any]]:
    """Choose the functions; say how they share the budget."""
    chosen = selected(extract_workloads(model, target), tasks, functions, min_flops)
    # What is named by number is wanted, however little time it takes.
    shares: dict[str, Any] = {"least_share": LEAST_SHARE if tasks.strip() == ALL else 0.0}
    if len(chosen) > 1:
        shares["weights"] = [_calls(each) for each in chosen]
    return chosen, {"space": space, **shares, **options}


def _calls(task: ModelWorkload) -> float:
    """Return how often a function is called; one that nothing calls counts as if it were, once."""
    return float(max(1, task.calls))


def _id(record: Any) -> str | None:
    return None if record is None else str(record.id)
