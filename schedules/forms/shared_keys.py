"""Attention of one query a head, as more queries of fewer heads: all heads that read the same keys are one.

With grouped heads each key is read by several, and with one query each no panel of keys is worth it. As
queries of one head they read a key one after the other, while it is in the cache::

    product[h, 0, k] += Q[h, 0, c] * K[h // 4, k, c]                   # 32 heads, 8 of keys

    product[g, i, k] += Q[4 * g + i, 0, c] * K[g, k, c]                # 8 heads, 4 queries

References
----------
Pope et al., "Efficiently Scaling Transformer Inference", 2023, where a step of decoding waits for memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import s_tir
from tvm.tirx import IndexMap

from ...machine.errors import InputError
from ..analysis import block_names
from ..nests.attention import Attention, find_attention


def can_share(nest: Attention) -> bool:
    """Tell whether heads read the same keys, with one query each."""
    return nest.m == 1 and nest.group > 1


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any) -> Any:
    """Let the heads that read the same keys be queries of one.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.

    Raises
    ------
    InputError
        It is no such attention: a trace may name a form that is not one of its function.
    """
    nest = find_attention(func)
    if nest is None or not can_share(nest):
        raise InputError("the function is no attention of one query a head whose keys other heads read")
    sch, group = s_tir.Schedule(func), nest.group

    def order(rank: int) -> IndexMap:
        return IndexMap.from_func(
            lambda head, query, *others: [head // group, query * group + head % group, *others],
            ndim=rank,
            index_dtype="int64",
        )

    for name in block_names(sch):
        block = sch.get_sblock(name)
        axes, written = len(sch.get(block).iter_vars), sch.get(block).writes[0].source
        if name != nest.output:
            sch.transform_layout(block, ("write", 0), order(len(written.shape)))
        sch.transform_block_layout(sch.get_sblock(name), order(axes))
    # What TVM left unsimplified would be taken for other indices.
    return s_tir.transform.StmtSimplify()(sch.mod)["main"]
