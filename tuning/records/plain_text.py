"""Programs and schedules as text: only plain ones are read, wherever the text comes from.

TVM's own reader would load a compiled module that is a node of a program, and end the process where a node is
part of itself or a tree is deeper than its stack; and a schedule's annotation may bring foreign code into a
kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import tvm

from ...machine.errors import InputError

# Kinds of nodes of programs: values, containers, and what loop nests consist of. Modules, functions and
# arrays of data (ffi.Module, ffi.Function, ffi.Tensor) are not among them.
_VALUES = ("None", "bool", "int", "float", "ffi.Array", "ffi.Map", "ffi.String", "ffi.Shape")
_FAMILIES = ("ir.", "prim.", "relax.", "s_tir.", "target.", "tirx.")
# Annotations that would put foreign code into a kernel.
_FOREIGN_CODE = "pragma_import"
# In a graph a whole number is the place of another node, but not in these fields and kinds.
_SPAN = ("line", "column", "end_line", "end_column")
_NUMBERS = ("kind", "iter_type", "data_alignment", "offset_factor", *_SPAN)
_NO_REFERENCES = ("None", "bool", "int", "float", "ffi.String", "ffi.Shape")
# TVM calls itself for each level: with a stack of 8 MiB it crashes somewhere beyond 1500.
_DEEPEST = 500


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
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if isinstance(kind, str) and kind not in _VALUES and not kind.startswith(_FAMILIES):
        raise InputError(f"it holds a {kind}, which is no part of a loop nest")
    if isinstance(value.get("nodes"), list):
        _require_shallow(value["nodes"])


def _require_shallow(nodes: list[Any]) -> None:
    """Refuse a graph in which a node is part of itself, or a tree is deeper than TVM can walk."""
    parts = [_parts(node, len(nodes)) for node in nodes]
    depths: dict[int, int] = {}
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [part for part in parts[node] if part not in depths]
            if missing and len(stack) <= _DEEPEST:
                stack.append(missing[0])
                continue
            # A path that is part of itself has no end.
            depths[node] = 1 + max((depths.get(part, _DEEPEST) for part in parts[node]), default=0)
            if depths[node] > _DEEPEST:
                raise InputError(f"its nodes are more than {_DEEPEST} levels deep, or part of themselves")
            stack.pop()


def _parts(node: Any, count: int) -> list[int]:
    """Return the places of the nodes that a node of a graph refers to."""
    kind, data = (node.get("type"), node.get("data")) if isinstance(node, dict) else (None, None)
    if kind in _NO_REFERENCES or kind == "ir.IntImm":
        return []
    if isinstance(data, dict):
        data = [value for field, value in data.items() if field not in _NUMBERS]
    places = data if isinstance(data, list) else [data]
    return [place for place in places if type(place) is int and 0 <= place < count]


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
