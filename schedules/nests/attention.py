"""Attention in an unscheduled PrimFunc: its blocks by what they compute, and what a causal mask leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import s_tir, tirx
from tvm.tirx import LE, Add, FloatImm, IntImm, IterVar, Select
from tvm_ffi import structural_equal, structural_walk

from ..analysis import (
    block_names,
    block_of,
    chooses_along,
    is_reduction,
    output_blocks,
    schedule_to_read,
    static_extents,
)
from ..expressions import index_variables, is_choice
from .products import product_operands

PADDED_KEYS = "attention_padded_keys"
"""The block that lengthens the keys, in the form of `forms.attention`."""

PADDED_VALUES = "attention_padded_values"
"""The block that widens the values, in the same form."""

LONGEST = ("attention_longest_query", "attention_longest_key")
"""The blocks that find the largest squares of lengths, in the form of `attention_bound`."""

LITTLE, PARTS, TOTAL = "attention_little", "attention_parts", "attention_total"
"""The blocks that tell whether scores are little, and that sum their powers of two, in the same form."""

_OF_FORMS = {PADDED_KEYS, PADDED_VALUES, *LONGEST, LITTLE, PARTS, TOTAL}

# A score below is that of a masked key, whatever number stands for one: beside any other its weight is 0.
_HIDDEN = -1e20


@dataclass(frozen=True)
class Attention:
    """The blocks of scaled dot-product attention, by what they compute.

    Parameters
    ----------
    product, score, row_max, weight, row_sum, mixed, output : str
        Blocks of these quantities, as in `kernels.attention`.
    inverse : str or None
        The block of a row's factor, where there is one.
    heads, m, n, d, columns : int
        Heads, queries, keys, and the extents of a key and of a value.
    group : int
        Heads in a row that read the same keys and values.
    dtype : str
        The type that is summed in.
    packed_dtype : str
        The type of the keys.
    ahead : int or None
        With a causal mask, query i sees the keys up to i + ahead; None without.
    chosen : bool
        Whether a score is chosen by its query's position, as a causal mask does.
    """

    product: str
    score: str
    row_max: str
    weight: str
    row_sum: str
    inverse: str | None
    mixed: str
    output: str
    heads: int
    m: int
    n: int
    d: int
    columns: int
    group: int
    dtype: str
    packed_dtype: str
    ahead: int | None
    chosen: bool


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_attention(func: Any) -> Attention | None:
    """Find attention in an unscheduled PrimFunc: two products, between them a softmax that divides last."""
    sch = schedule_to_read(func)
    names = [name for name in block_names(sch) if name not in _OF_FORMS]
    if not names or len(set(names)) != len(names) or len(output_blocks(sch)) != 1:
        return None
    if any(static_extents(sch, name) is None for name in names):
        return None
    reductions = [n for n in names if is_reduction(sch, n)]
    products = [n for n in reductions if product_operands(block_of(sch, n)) is not None]
    if len(reductions) != 4 or len(products) != 2:
        return None

    def readers(name: str) -> list[str]:
        found = (str(sch.get(r).name_hint) for r in sch.get_consumers(sch.get_sblock(name)))
        return [name for name in found if name not in _OF_FORMS]

    def only(found: list[str]) -> str:
        return found[0] if len(found) == 1 else ""

    first = products[0]
    score = only(readers(first))
    row_max = only([r for r in readers(score) if r in reductions]) if score else ""
    weight = only(readers(row_max)) if row_max else ""
    row_sum = only([r for r in readers(weight) if r not in products and r in reductions]) if weight else ""
    mixed = only([r for r in readers(weight) if r in products]) if weight else ""
    if not row_sum or not mixed or mixed == first:
        return None
    (output,) = output_blocks(sch)
    inverse = only(readers(row_sum))
    known = {first, score, row_max, weight, row_sum, mixed, output, inverse, *readers(mixed)}
    shapes = static_extents(sch, first), static_extents(sch, mixed)
    if known != set(names) or shapes[0] is None or shapes[1] is None or len(shapes[0]) != 4 != len(shapes[1]):
        return None
    (heads, m, n, d), columns = shapes[0], shapes[1][2]
    block = block_of(sch, first)
    kinds = [v.iter_type == IterVar.CommReduce for v in block.iter_vars]
    operands = product_operands(block)
    if kinds != [False, False, False, True] or operands is None:
        return None
    return Attention(
        product=first,
        score=score,
        row_max=row_max,
        weight=weight,
        row_sum=row_sum,
        inverse=inverse if inverse != output else None,
        mixed=mixed,
        output=output,
        heads=heads,
        m=m,
        n=n,
        d=d,
        columns=columns,
        group=_heads_of_group(heads, block, block_of(sch, mixed)),
        dtype=str(block.writes[0].source.dtype),
        packed_dtype=str(operands[1].source.dtype),
        ahead=_keys_ahead(block_of(sch, score)),
        chosen=_is_chosen(sch, score),
    )


def _heads_of_group(heads: int, *products: Any) -> int:
    """Return how many heads in a row read the same second operands: as many as its first axis is shorter."""
    groups: set[int] = set()
    for product in products:
        operands, head = product_operands(product), product.iter_vars[0].var
        if operands is None:
            return 1
        first, there = operands[1].indices[0], int(operands[1].source.shape[0])
        group = heads // there if heads % there == 0 else 1
        groups.add(group if structural_equal(first, tirx.floordiv(head, group)) else 1)
    return groups.pop() if len(groups) == 1 else 1


def _keys_ahead(score: Any) -> int | None:
    """Return how many keys after its own position a query sees, None where the score is not masked so."""
    value: Any = getattr(score.body, "value", None)
    if is_choice(value):
        value = value.args[2]
    if not isinstance(value, Select) or not isinstance(value.condition, LE) or len(score.iter_vars) != 3:
        return None
    (_, query, key), seen, hidden = (v.var for v in score.iter_vars), value.condition, value.false_value
    last, ahead = (seen.b.a, seen.b.b) if isinstance(seen.b, Add) else (seen.b, 0)
    masked = (
        isinstance(hidden, FloatImm)
        and float(hidden) <= _HIDDEN
        and isinstance(ahead, (int, IntImm))
        and int(ahead) >= 0
    )
    return int(ahead) if masked and seen.a.same_as(key) and last.same_as(query) else None


def _is_chosen(sch: s_tir.Schedule, score: str) -> bool:
    """Tell whether a score is chosen between values by a condition on its query's position."""
    block, conditions = block_of(sch, score), []
    structural_walk(block.body, [(Select, lambda each: conditions.append(each.condition))])
    return block.iter_vars[1].var in index_variables(conditions) or 1 in chooses_along(sch, score)
