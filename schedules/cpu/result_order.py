"""A result that is the sums in another order: tiles write it where it belongs, without a pass of its own.

A transposed convolution whose taps do not overlap computes its phases side by side, as columns, and writes
them a stride apart.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir
from tvm.sym import detect_iter_map
from tvm.tirx import IndexMap

from ..analysis import block_of
from ..expressions import index_variables, loads_of


def order_as_sums(sch: s_tir.Schedule, name: str, sums: Any, lanes: int) -> bool:
    """Let a block's loops go over the sums that it reads, where it reads each once, in whole vectors.

    Parameters
    ----------
    sch : Schedule
        A schedule in which nothing was done to the block.
    name : str
        The block's name.
    sums : Buffer
        What it orders otherwise.
    lanes : int
        Elements in a vector.

    Returns
    -------
    bool
        False where nothing was changed.
    """
    block = block_of(sch, name)
    *_, last = axes = list(block.iter_vars)
    loads = [load for load in loads_of(block.body) if load.source.same_as(sums)]
    if len(loads) != 1 or int(last.dom.extent) % lanes or last.var in index_variables(loads[0].indices[:-1]):
        return False
    indices = loads[0].indices
    if not detect_iter_map(indices, {axis.var: axis.dom for axis in axes}, check_level="bijective").indices:
        return False
    order = IndexMap([axis.var for axis in axes], indices, None)
    lengths = order.map_shape([axis.dom.extent for axis in axes])
    if [int(extent) for extent in lengths] != [int(extent) for extent in sums.shape]:
        return False
    sch.transform_block_layout(name, order)
    # It reads each place by what that is made of; a copy of the sums has plain indices, and is no more.
    read = next(i for i, region in enumerate(block.reads) if region.source.same_as(sums))
    sch.compute_inline(sch.reindex(name, ("read", read)))
    return True
