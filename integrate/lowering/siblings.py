"""Siblings: matrix products and convolutions of one input with weights of their own are computed as one.

``x A + a`` and ``x B + b`` are parts of ``x [A B] + [a b]``: the projections to queries, keys and values in
attention, or the 1x1 convolutions of an inception block. The weights are put side by side at compile time.
The input is read once instead of once each; but a part has to be copied out where its reader could have taken
it as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from .functions import dataflow_bindings
from .rewriting import extents, op_name

Chain = list[tuple[Any, Any]]
"""Variables with the calls that they are bound to, each the only reader of the one before."""

_PRODUCTS = ("relax.matmul", "relax.nn.conv2d")
_ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.silu", "relax.sigmoid", "relax.tanh")
# These copy what they read anyway.
_MOVERS = ("relax.permute_dims", "relax.concat")
_VIEWS = ("relax.reshape", "relax.expand_dims", "relax.squeeze")


@tvm.transform.module_pass(opt_level=0, name="CombineSiblings")
class CombineSiblings:
    """Compute matrix products and convolutions that share an input, with bias and activation, as one.

    Where the parts would have to be copied out and that moves more bytes than are saved, they are left alone.
    """

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        families = list(_families(mod["main"]))
        if not families:
            return mod
        result = mod.clone()
        result.update_func(mod.get_global_var("main"), _Combiner(families).visit_expr(mod["main"]))
        return relax.transform.DeadCodeElimination()(result)


def _families(main: Any) -> Iterator[list[Chain]]:
    """Find the products of one input that are worth combining, each with what follows it alike."""
    readers = _readers(main)
    groups: dict[Any, list[Chain]] = defaultdict(list)
    for binding in dataflow_bindings(main):
        key = _kind(binding)
        if key is not None:
            groups[key].append(_chain(binding.var, binding.value, readers))
    for chains in groups.values():
        length = _common_length(chains)
        alike = [chain[:length] for chain in chains]
        if len(alike) > 1 and _is_worthwhile(alike, readers):
            yield alike


def _readers(main: Any) -> dict[Any, list[tuple[Any, Any]]]:
    """Return the bindings that read each variable."""
    found: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for binding in dataflow_bindings(main):
        for var in relax.analysis.free_vars(binding.value):
            found[var].append((binding.var, binding.value))
    return found


def _kind(binding: Any) -> tuple[Any, ...] | None:
    """Return what products must share to be combined, or None of another binding."""
    call = binding.value
    if not isinstance(call, relax.Call) or op_name(call) not in _PRODUCTS:
        return None
    data, weight = call.args
    if not isinstance(data, relax.Var) or not isinstance(weight, tvm.ir.GenericConst):
        return None
    matrix = op_name(call) == "relax.matmul" and len(extents(weight)) == 2
    image = op_name(call) != "relax.matmul" and (call.attrs.data_layout, call.attrs.groups) == ("NHWC", 1)
    inner = isinstance(binding.var, relax.DataflowVar)
    return (
        (data, op_name(call), str(call.attrs), extents(weight)[:-1]) if inner and (matrix or image) else None
    )


def _chain(var: Any, call: Any, readers: dict[Any, list[tuple[Any, Any]]]) -> Chain:
    """Follow a product to its bias and its activation."""
    found = [(var, call)]
    for fits in (_is_bias, _is_activation):
        following = readers[found[-1][0]]
        if len(following) != 1 or not isinstance(following[0][0], relax.DataflowVar):
            break
        if fits(following[0][1], found[-1][0]):
            found.append(following[0])
    return found


def _is_bias(call: Any, var: Any) -> bool:
    if not isinstance(call, relax.Call) or op_name(call) != "relax.add":
        return False
    other = _bias(call)
    width = extents(var)[-1]
    return other is not None and prod(extents(other)) == width and extents(other)[-1:] == (width,)


def _is_activation(call: Any, _var: Any) -> bool:
    return isinstance(call, relax.Call) and op_name(call) in _ACTIVATIONS


def _bias(call: Any) -> Any:
    return next((arg for arg in call.args if isinstance(arg, tvm.ir.GenericConst)), None)


def _common_length(chains: list[Chain]) -> int:
    names = [[op_name(call) for _, call in chain] for chain in chains]
    return sum(len(set(step)) == 1 for step in zip(*names, strict=False))


def _is_worthwhile(chains: list[Chain], readers: dict[Any, list[tuple[Any, Any]]]) -> bool:
    """Compare what is read less with what is copied out, in elements.

    A product reads its input from a cache while it computes; a copy has nothing else to do: it counts twice.
    On 2 threads of a Zen 5, inception_v2: 1 % slower where both count alike.
    """
    saved = (len(chains) - 1) * prod(extents(chains[0][0][1].args[0]))
    ends = [chain[-1][0] for chain in chains]
    copied = sum(2 * prod(extents(end)) for end in ends if not _is_moved(end, readers))
    return 2 * copied <= saved


def _is_moved(var: Any, readers: dict[Any, list[tuple[Any, Any]]]) -> bool:
    """Tell whether all readers of a tensor copy it anyway."""
    return all(
        isinstance(call, relax.Call)
        and (op_name(call) in _MOVERS or (op_name(call) in _VIEWS and _is_moved(reader, readers)))
        for reader, call in readers[var]
    )


@relax.expr_functor.mutator
class _Combiner(relax.PyExprMutator):
    """Replaces the end of each chain by a part of the combined product."""

    def __init__(self, families: list[list[Chain]]) -> None:
        super().__init__()
        self._family = {chain[-1][0]: family for family in families for chain in family}
        self._combined: dict[int, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        """Replace a binding that is the end of a chain."""
        family = self._family.get(binding.var)
        if family is None:
            super().visit_var_binding_(binding)
            return
        if id(family) not in self._combined:
            self._combined[id(family)] = self._combine(family)
        whole, ends = self._combined[id(family)], [chain[-1][0] for chain in family]
        widths = [extents(end)[-1] for end in ends]
        place = next(i for i, end in enumerate(ends) if end.same_as(binding.var))
        begin, axis = sum(widths[:place]), len(extents(whole)) - 1
        part = op.strided_slice(whole, [axis], [begin], [begin + widths[place]])
        self.set_var_remap(binding.var, self.builder_.emit(part))

    def _combine(self, family: list[Chain]) -> Any:
        """Emit the product with all weights side by side, its bias and its activation."""
        first = family[0][0][1]
        weight = _side_by_side([chain[0][1].args[1] for chain in family])
        whole = self.builder_.emit(
            relax.Call(first.op, [self.visit_expr(first.args[0]), weight], first.attrs)
        )
        for step, (_, call) in enumerate(family[0][1:], 1):
            if op_name(call) == "relax.add":
                bias = _side_by_side([_bias(chain[step][1]) for chain in family])
                whole = self.builder_.emit(op.add(whole, bias))
            else:
                whole = self.builder_.emit(relax.Call(call.op, [whole], call.attrs))
        return whole


def _side_by_side(constants: list[Any]) -> Any:
    arrays = [constant.value.numpy() for constant in constants]
    rank = max(array.ndim for array in arrays)
    return relax.const(np.concatenate([a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays], axis=-1))
