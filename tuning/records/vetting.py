"""What comes from elsewhere is looked at before it counts: programs and schedules in files of others.

Nothing in them is executed. TVM's own reader is not safe to give them to: a graph of nodes that points at
itself crashes it, and a node may be a compiled module, which it would load. So only plain nodes are let
through, and what passes is read in a worker process that may die.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import tvm

from ...kernels.operator import func_hash
from ...machine.errors import InputError, last_line
from ...machine.target import as_target, target_text
from ..processes.worker import Task, WorkerCrash, WorkerError, WorkerTimeout
from ..processes.worker_group import WorkerGroup
from .compilation import replay_trace
from .plain_text import read_program, require_plain

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Program:
    """A function that was read: its name, its JSON as records keep it, its hash, and its output's dtype."""

    name: str
    ir: str
    hash: str
    dtype: str


class Vetting:
    """A worker process in which foreign programs and schedules are read; it starts when one is needed."""

    def __init__(self) -> None:
        self._group: WorkerGroup | None = None

    def __enter__(self) -> Vetting:
        """Return the vetting itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker."""
        if self._group is not None:
            self._group.close()

    def program(self, graph: str) -> Program:
        """Read a PrimFunc, or a module of one, from TVM's JSON; raise InputError where that fails."""
        require_plain(graph)
        return self._ask(_program, graph)

    def require_replays(self, ir: str, trace: str) -> None:
        """Raise InputError where a trace does not fit a program that was read before."""
        require_plain(trace)
        self._ask(_replay, (ir, trace))

    def target(self, config: dict[str, Any]) -> str:
        """Return the text of a target, completed as tunings do it; raise InputError where it is none."""
        return self._ask(_target, config)

    def _ask(self, task: Task, payload: Any) -> Any:
        if self._group is None:
            self._group = WorkerGroup(1, preload=("tvm", __name__))
        try:
            return self._group.workers[0].call(task, payload, _TIMEOUT_S)
        except WorkerError as error:
            raise InputError(str(error).partition(": ")[2]) from None
        except WorkerCrash as error:
            raise InputError(f"TVM crashes on it ({str(error).partition(';')[0]})") from None
        except WorkerTimeout:
            raise InputError(f"TVM does not get through it within {_TIMEOUT_S:g} s") from None


def _program(graph: str) -> Program:
    """Read a program; in the worker."""
    try:
        found = tvm.ir.load_json(graph)
    except Exception as error:
        raise InputError(f"TVM cannot read it: {last_line(error)}") from error
    name = "main"
    if isinstance(found, tvm.IRModule):
        functions = list(found.functions_items())
        if len(functions) != 1:
            raise InputError(f"it is a module of {len(functions)} functions; expected one")
        name, found = str(functions[0][0].name_hint), functions[0][1]
    if not isinstance(found, tvm.tirx.PrimFunc):
        raise InputError(f"it is a {type(found).__name__}, not a PrimFunc")
    # The name that every workload has: it is part of the hash.
    func = found.with_attr("global_symbol", "main")
    dtypes = [str(p.dtype) for p in func.params if hasattr(p, "dtype")]
    return Program(name, tvm.ir.save_json(func), func_hash(func), dtypes[-1] if dtypes else "")


def _replay(payload: tuple[str, str]) -> None:
    """Replay a trace; in the worker."""
    ir, trace = payload
    replay_trace(trace, _func(ir))


_func = lru_cache(maxsize=4)(read_program)


def _target(config: dict[str, Any]) -> str:
    """Complete a target; in the worker, since TVM ends the process for some."""
    return target_text(as_target(config))
