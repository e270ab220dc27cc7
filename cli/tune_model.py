"""What ``tunesmith tune`` does with a model: list its functions, plan, tune them and confirm the whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .arguments import existing_database, model_at
from .output import print_notice
from .tune_tables import print_model_results, print_plan, print_tasks, warn

NOT_PLANNED = ("transfer", "workers", "progress", "confirm")
"""Options of a tuning that its plan does not depend on."""


def list_tasks(
    path: str,
    inputs: Mapping[str, str | None],
    only: Mapping[str, Any],
    database_path: str,
    target: Any,
    as_json: bool,
) -> None:
    """Print the functions of a model that can be tuned, and what the database knows of them."""
    from ..integrate.extraction import extract_workloads
    from ..integrate.tuning.listing import task_standings
    from ..integrate.tuning.selection import selected

    found = extract_workloads(model_at(path, **inputs), target)
    chosen = {each.task for each in selected(found, **{**only, "tasks": "all"})}
    database = existing_database(database_path) if Path(database_path).exists() else None
    standings = task_standings(found, database, target)
    print_tasks([each for each in standings if each.found.task in chosen], as_json)


def plan_functions(
    path: str,
    inputs: Mapping[str, str | None],
    only: Mapping[str, Any],
    database_path: str,
    options: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Print what a tuning would do."""
    from ..integrate.tuning.tuner import plan_model

    model = model_at(path, **inputs)
    print_plan(plan_model(model, database=database_path, **only, **_given(options)), as_json)


def tune_functions(
    path: str,
    inputs: Mapping[str, str | None],
    only: Mapping[str, Any],
    database_path: str,
    options: Mapping[str, Any],
    as_json: bool,
) -> int:
    """Open the database before the model is read; warn; tune; print; return the exit status."""
    from ..integrate.tuning.tuner import plan_model, tune_model
    from ..tuning.records.database import Database

    given = _given(options)
    with Database(database_path) as database:
        database.require_writable()
        model = model_at(path, **inputs)
        planned = {name: value for name, value in given.items() if name not in NOT_PLANNED}
        warn(plan_model(model, estimate=False, database=database, **only, **planned))
        found = tune_model(model, database=database, **only, **given)
    print_model_results(found, model.name, as_json)
    if found.interrupted:
        print_notice("interrupted: what was measured is in the database; the same command goes on")
    elif not found.new_trials:
        print_notice("nothing new was measured: see what ended each function, and raise --trials to go on")
    same = found.comparison is None or found.comparison.ok
    return 0 if same and all(result.best for result in found.results) else 1


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the space where none is asked for: a model's functions are searched in all that apply."""
    return {name: value for name, value in options.items() if (name, value) != ("space", None)}
