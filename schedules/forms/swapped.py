"""A matrix product whose operands have changed places: the weight's rows are multiplied as they lie.

A weight that lies along the sum, as a linear layer's does, is turned into panels, and each of its elements
is multiplied by as many rows of data as there are. Where these are few, it is less work to turn the data, and
the result back::

    sums[j, i] = sum of weight[j, k] * data[i, k]
    turned[i, j] = sums[j, i]
    y[i, j] = epilogue of turned[i, j]
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import te

from ...machine.errors import InputError
from ..nests.chain import ProductChain, product_chain
from ..nests.contraction import find_contraction
from ..restatement import STEP, of_stages, placeholders, replaced, summed_term

TURNED, OUTPUT = f"{STEP}swapped_turned", f"{STEP}swapped_output"
"""The blocks that turn the result back, and what follows, if anything does; the other is the product."""


@lru_cache(maxsize=16)  # a rule asks, and then the restatement
def find_swapped(func: Any) -> ProductChain | None:
    """Find the product of two matrices that a PrimFunc consists of, with what follows it, or None.

    The weight varies, and lies along the sum. Of integers instructions sum several products, see `quantized`.
    """
    nest = find_contraction(func)
    if nest is None or not nest.plain or not nest.is_turned or nest.batch or nest.rest or nest.prologue:
        return None
    if not nest.dtype.startswith("float"):
        return None
    if (nest.data_rank, len(nest.weight_axes), nest.output_rank, nest.output_column) != (2, 2, 2, 1):
        return None
    return product_chain(func, nest, ProductChain)


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any) -> Any:
    """Let the operands of a product change places.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_swapped` finds a product.

    Raises
    ------
    InputError
        There is no such product: a trace may name a form that is not one of its function.
    """
    found = find_swapped(func)
    if found is None:
        raise InputError("the function is no product by a weight that lies along the sum")
    given = [found.data.source, found.weight.source, *found.beside, found.output]
    return of_stages(func, given, _define(found))


def _define(found: ProductChain) -> list[Any]:
    """Return the TE tensors data, weight, what is read beside the sums, and the output."""
    x, w, *others = placeholders([found.data.source, found.weight.source, *found.beside])
    row, column = found.kept
    rows, columns = found.output.shape
    along = found.block.iter_vars[found.nest.reductions[0]].var
    k = te.reduce_axis((0, found.nest.depth), "k")

    def product(j: Any, i: Any) -> Any:
        new = {row: i, column: j, along: k.var}
        loads = ((found.data, x), (found.weight, w))
        operands = {load: tensor(*(replaced(at, new) for at in load.indices)) for load, tensor in loads}
        return te.sum(replaced(summed_term(found.block), operands), axis=k)

    sums = te.compute((columns, rows), product, name=str(found.block.name_hint))
    turned = te.compute((rows, columns), lambda i, j: sums[j, i], name=TURNED)
    tensors = dict(zip(found.beside, others, strict=True))
    if not found.after:
        return [x, w, turned]
    output = te.compute(
        (rows, columns), lambda i, j: found.finished(turned[i, j], tensors, (i, j)), name=OUTPUT
    )
    return [x, w, *others, output]
