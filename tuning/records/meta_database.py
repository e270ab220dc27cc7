"""Records as a MetaSchedule database, for TVM's own entry points.

``with database.as_meta_schedule(target):`` makes ``relax.transform.MetaScheduleApplyDatabase`` and
``meta_schedule.tir_integration.compile_tir`` use the verified records of that target. MetaSchedule's
queries name no target that would count, so each of these databases is of one target.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from ...kernels.operator import func_hash
from ...machine.errors import InputError
from ...machine.target import as_target, target_text
from ...schedules.algorithms import has_algorithm
from .compilation import replay_trace
from .database import Database
from .plain_text import read_program
from .record import Record


@derived_object
class MetaScheduleDatabase(ms.database.PyDatabase):
    """The verified records of one target; what is committed to it is kept in memory only.

    Parameters
    ----------
    database : Database
        The records; it must stay open.
    target : Target or str
        Whose records.
    """

    def __init__(self, database: Database, target: Any) -> None:
        super().__init__()
        self._database = database
        self._target = as_target(target)
        self._workloads: dict[str, Any] = {}
        self._committed: list[Any] = []

    def has_workload(self, mod: Any) -> bool:
        """Tell whether there is a usable record of a module."""
        key = _key(mod)
        return key in self._workloads or self._database.best(key, target_text(self._target)) is not None

    def commit_workload(self, mod: Any) -> Any:
        """Return MetaSchedule's workload of a module."""
        return self._workloads.setdefault(_key(mod), ms.database.Workload(mod))

    def commit_tuning_record(self, record: Any) -> None:
        """Keep a record of MetaSchedule's own for as long as this object lives: it was not verified."""
        self._committed.append(record)

    def get_top_k(self, workload: Any, top_k: int) -> list[Any]:
        """Return the best records of a workload, best first."""
        found = self._database.records(_key(workload.mod), target_text(self._target))
        ranked = sorted((r for r in found if r.usable), key=lambda r: r.rank)[:top_k]
        return [r for r in (tuning_record(r, workload) for r in ranked) if r is not None]

    def get_all_tuning_records(self) -> list[Any]:
        """Return the usable records of every workload of the target."""
        usable = [r for r in self._database.records(target=target_text(self._target)) if r.usable]
        found = [tuning_record(r, self._workload(r)) for r in usable]
        return [r for r in found if r is not None] + self._committed

    def __len__(self) -> int:
        """Count the usable records."""
        return len(self.get_all_tuning_records())

    def _workload(self, record: Record) -> Any:
        func = read_program(record.workload_ir)
        return self.commit_workload(tvm.IRModule({"main": func}))


def tuning_record(record: Record, workload: Any) -> Any:
    """Return a record in MetaSchedule's form; None where its trace does not fit, or it has none.

    Nor has a schedule that begins with another algorithm: MetaSchedule replays it on the function as it is.
    """
    if record.trace is None or has_algorithm(record.trace):
        return None
    func = workload.mod["main"]
    try:
        schedule = replay_trace(record.trace, func)
    except InputError:
        return None
    seconds = [tvm.tirx.FloatImm("float64", s) for s in record.confirmed_secs or record.run_secs]
    args_info = ms.arg_info.ArgInfo.from_prim_func(func)
    return ms.database.TuningRecord(schedule.trace, workload, seconds, as_target(record.target), args_info)


def _key(mod: Any) -> str:
    """Return the hash that tunesmith looks a module's only function up by, whatever the function's name."""
    return func_hash(mod["main"].with_attr("global_symbol", "main"))
