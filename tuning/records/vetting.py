"""What comes from elsewhere is looked at before it counts: programs and schedules in files of others.

Nothing in them is executed. TVM's own reader is not safe to give them to: a graph of nodes that points at
itself crashes it, and a node may be a compiled module, which it would load. So only plain nodes are let
through, and what passes is read in a worker process that may die.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import tvm

from ...kernels.operator import func_hash
from ...machine.errors import InputError
from ...machine.target import as_target, target_text
from ..processes.worker import Task, WorkerCrash, WorkerError, WorkerGroup, WorkerTimeout
from .compilation import last_line, replay_trace

# Kinds of nodes of programs: values, containers, and what loop nests consist of. Modules, functions and
# arrays of data (ffi.Module, ffi.Function, ffi.Tensor) are not among them.
_VALUES = ("None", "bool", "int", "float", "ffi.Array", "ffi.Map", "ffi.String", "ffi.Shape")
_FAMILIES = ("ir.", "prim.", "relax.", "s_tir.", "target.", "tirx.")
# Annotations that would put foreign code into a kernel.
_FOREIGN_CODE = "pragma_import"
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Program:
    """A function that was read: its name, its JSON as records keep it, its hash, and its output's dtype."""

    name: str
    ir: str
    hash: str
    dtype: str


def require_plain(text: str) -> None:
    """Raise InputError where a graph of TVM's in JSON, or a trace, holds what is no plain program.

    Text inside of text is looked at too: traces keep index maps in that way.
    """
    try:
        for value in _inside(json.loads(text, object_pairs_hook=_unambiguous)):
            _require_plain_value(value)
    except json.JSONDecodeError as error:
        raise InputError(f"it is no valid JSON: {error}") from None
    except RecursionError:
        raise InputError("it is nested too deeply") from None


def read_program(ir: str) -> Any:
    """Return the function that a record keeps as JSON; raise InputError where it is no plain program."""
    require_plain(ir)
    return tvm.ir.load_json(ir)


def _require_plain_value(value: Any) -> None:
    if isinstance(value, str) and _FOREIGN_CODE in value:
        raise InputError(f"it would bring foreign code into the kernel ({value[:40]!r})")
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _VALUES and not kind.startswith(_FAMILIES):
        raise InputError(f"it holds a {kind}, which is no part of a loop nest")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object with a key twice: of its values TVM may read another one than is looked at here."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InputError("an object in it has a key twice")
    return found


def _inside(value: Any) -> Iterator[Any]:
    """Yield a JSON value and all within it, what is written as JSON in its texts included."""
    yield value
    if isinstance(value, str) and value.lstrip()[:1] in ('"', "{", "["):
        try:
            yield from _inside(json.loads(value, object_pairs_hook=_unambiguous))
        except json.JSONDecodeError:
            if value.lstrip().startswith("{"):
                raise
    entries = [*value, *value.values()] if isinstance(value, dict) else value
    for entry in entries if isinstance(entries, list) else ():
        yield from _inside(entry)


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
