"""A product whose sum is long, as the sum of products of parts of it: a batch of these, and their total.

Where a result is small and its sum long, there are few tiles to share, and the panels that each of them reads
are longer than a cache: all of a weight streams past every tile of rows. A part of the sum has panels that
stay in L2, and threads share the parts::

    product[p, i, j] = sum of data[i, p * K + k] * weight[p * K + k, j]     # k < K, a part
    sums[i, j] = product[0, i, j] + product[1, i, j] + ...
    y[i, j] = epilogue of sums[i, j]

Libraries call it split-K, or a product that is sliced along k.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import te

from ...machine.errors import InputError
from ..nests.chain import ProductChain, product_chain
from ..nests.contraction import find_contraction
from ..restatement import STEP, of_stages, placeholders, replaced, summed_term

DATA, WEIGHT, PARTS = (f"parted_sums_{each}" for each in ("data", "weight", "product"))
OUTPUT = f"{STEP}parted_sums_output"
"""The block that adds up the parts, with what follows."""


@lru_cache(maxsize=16)  # a rule asks, and then the restatement
def find_long_sum(func: Any) -> ProductChain | None:
    """Find the product that a PrimFunc consists of, or the batch of them, with what follows it, or None."""
    nest = find_contraction(func)
    if nest is None or not nest.plain or nest.rest or nest.prologue or len(nest.reductions) > 1:
        return None
    if not nest.dtype.startswith("float"):
        return None
    return product_chain(func, nest, ProductChain)


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, parts: int) -> Any:
    """Sum a product in parts.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_long_sum` finds a product.
    parts : int
        How many there are; they divide the sum.

    Raises
    ------
    InputError
        There is no such product: a trace may name a form that is not one of its function.
    """
    found = find_long_sum(func)
    if found is None or found.nest.depth % parts:
        raise InputError(f"the function is no product whose sum consists of {parts} parts")
    given = [found.data.source, found.weight.source, *found.beside, found.output]
    return of_stages(func, given, _define(found, parts))


def _define(found: ProductChain, parts: int) -> list[Any]:
    """Return the TE tensors data, weight, what is read beside the sums, and the output."""
    x, w, *others = placeholders([found.data.source, found.weight.source, *found.beside])
    along = found.block.iter_vars[found.nest.reductions[0]].var
    depth = found.nest.depth // parts
    k = te.reduce_axis((0, depth), "k")

    def part_of(load: Any, tensor: Any, name: str) -> Any:
        """Return an operand with an axis for the parts, and a shorter one for the sum."""
        at = [index.same_as(along) for index in load.indices]
        shape = [depth if summed else extent for summed, extent in zip(at, tensor.shape, strict=True)]

        def element(p: Any, *indices: Any) -> Any:
            pairs = zip(at, indices, strict=True)
            return tensor(*(p * depth + index if summed else index for summed, index in pairs))

        return te.compute((parts, *shape), element, name=name)

    operands = [
        (load, part_of(load, tensor, name))
        for load, tensor, name in ((found.data, x, DATA), (found.weight, w, WEIGHT))
    ]

    def product(p: Any, *index: Any) -> Any:
        new = {**dict(zip(found.kept, index, strict=True)), along: k.var}
        loads = {load: part(p, *(replaced(at, new) for at in load.indices)) for load, part in operands}
        return te.sum(replaced(summed_term(found.block), loads), axis=k)

    shape = found.block.writes[0].source.shape
    products = te.compute((parts, *shape), product, name=PARTS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        total = products(0, *index)
        for part in range(1, parts):
            total = total + products(part, *index)
        return found.finished(total, tensors, index)

    return [x, w, *others, te.compute(shape, output, name=OUTPUT)]
