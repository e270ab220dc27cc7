"""Own buffers along whose axes a vector runs one after the other have one axis.

Of 16 partial results of a row, reduced by fours and by fours again, a vector is no vector along an axis, and
what masks it would take it element by element::

    part = buffer(4, 4);  for v in vectorized(16):  part[v // 4, v % 4] += x[v] if v < 13 else 0
    part = buffer(16);    for v in vectorized(16):  part[v] += x[v] if v < 13 else 0
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from ..expressions import index_variables
from ..restatement import whole
from .streaming import elements_before


def flatten_parts(body: Any) -> Any:
    """Return statements in which each of their buffers that a vector's lanes cross has one axis."""
    flat = _crossed(body)
    if not flat:
        return body
    analyzer = Analyzer()

    def place(buffer: Any, indices: Any) -> list[Any]:
        return [analyzer.simplify(elements_before(buffer, indices))]

    def loaded(load: Any) -> Any:
        new = flat.get(load.source)
        return load if new is None else tirx.BufferLoad(new, place(load.source, load.indices))

    def stored(store: Any) -> Any:
        new = flat.get(store.buffer)
        return (
            store if new is None else tirx.BufferStore(new, store.value, place(store.buffer, store.indices))
        )

    def allocated(allocation: Any) -> Any:
        new = flat.get(allocation.buffer)
        return allocation if new is None else tirx.AllocBuffer(new)

    return structural_map(
        body, [(TensorLoad, loaded), (tirx.BufferStore, stored), (tirx.AllocBuffer, allocated)]
    )


def _crossed(body: Any) -> dict[Any, Any]:
    """Return the buffers that are to have one axis, each with the new one."""
    own: list[Any] = []
    vectors: list[Any] = []
    given: list[Any] = []
    structural_walk(
        body,
        [
            (tirx.AllocBuffer, lambda allocation: own.append(allocation.buffer)),
            (tirx.For, lambda loop: vectors.append(loop) if loop.kind == tirx.ForKind.VECTORIZED else None),
            (tvm.ir.Call, lambda call: given.extend(call.args)),
        ],
    )
    crossed: list[Any] = []

    def look_into(buffer: Any, indices: Any, lane: Any) -> None:
        if sum(lane in index_variables([index]) for index in indices) > 1:
            crossed.append(buffer)

    for loop in vectors:
        lane = loop.loop_var
        structural_walk(
            loop.body,
            [
                (TensorLoad, lambda load, lane=lane: look_into(load.source, load.indices, lane)),
                (tirx.BufferStore, lambda store, lane=lane: look_into(store.buffer, store.indices, lane)),
            ],
        )
    return {
        buffer: tirx.decl_buffer((whole(prod(map(int, buffer.shape))),), str(buffer.dtype), str(buffer.name))
        for buffer in own
        if any(buffer.same_as(each) for each in crossed)
        and not any(buffer.same_as(each) for each in given)
        and not buffer.strides
    }
