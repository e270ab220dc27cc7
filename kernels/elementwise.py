r"""Chains of operations element by element, in one pass: activations, and what stands before them.

======================  =========================================================================
``exp``                 :math:`e^x`
``tanh``                :math:`\tanh x`
``sigmoid``             :math:`1 / (1 + e^{-x})`
``silu``                :math:`x / (1 + e^{-x})`, also called swish
``gelu_tanh``           :math:`x (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3))) / 2`
``bias_gelu``           :math:`v (1 + \mathrm{erf}(v / \sqrt 2)) / 2` with :math:`v = x + b`
``swiglu``              :math:`a b / (1 + e^{-a})`
``hard_swish``          :math:`x \min(\max(x + 3, 0), 6) / 6`
``scale_shift_clip``    :math:`\min(\max(x s + t, 0), 6)`: a folded batch norm and ReLU6
======================  =========================================================================

x, a, b and the result are (m, n), the bias b, the scale s and the shift t are (n); a tensor of more
dimensions is flattened into these two, the innermost last. float16 and bfloat16 are computed in float32
and rounded once. Memory bandwidth is the limit where exponentials are computed in vectors, else they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import te

from . import elementwise_libraries as twins
from .activations import (
    gelu,
    gelu_exactly,
    gelu_tanh,
    gelu_tanh_exactly,
    sigmoid_exactly,
    silu,
    silu_exactly,
)
from .arithmetic import DTYPES, exact, rounded, sum_dtype
from .elementwise_shapes import EXAMPLES
from .libraries import Libraries
from .operator import Dim, Operator, Ranges

# A function of int8 needs the scales of what goes in and comes out: a model's business.
_DTYPES = tuple(dtype for dtype in DTYPES if dtype != "int8")


def elementwise(
    name: str,
    formula: Callable[..., Any],
    exactly: Callable[..., np.ndarray],
    operations: int,
    libraries: Libraries,
    inputs: Mapping[str, str] | None = None,
    ranges: Ranges = MappingProxyType({}),
) -> Operator:
    """Make an operator that computes each element from those of its inputs at the same place.

    Parameters
    ----------
    name : str
        The operator's name, which is also its block's.
    formula : callable
        Returns the TE expression of the inputs' expressions, in the type that is computed in.
    exactly : callable
        The same of float64 arrays, which are broadcast.
    operations : int
        What is counted an element; an exponential counts one.
    libraries : Libraries
        How others compute it.
    inputs : mapping of str to str
        The inputs' dimensions by their names; one that is (m, n) where left out.
    ranges : mapping of str to (float, float)
        What test data is drawn from where [-1, 1) would miss a branch.
    """
    dimensions = inputs or {"x": "mn"}

    def define(m: int, n: int, dtype: str) -> list[Any]:
        wide, extents = sum_dtype(dtype), {"mn": (m, n), "n": (n,)}
        tensors = {which: te.placeholder(extents[d], dtype, name=which) for which, d in dimensions.items()}

        def at(i: Any, j: Any) -> Any:
            values = (t[i, j] if len(t.shape) == 2 else t[j] for t in tensors.values())
            return formula(*(value.astype(wide) for value in values)).astype(dtype)

        return [*tensors.values(), te.compute((m, n), at, name=name)]

    def reference(*arrays: np.ndarray, **_: Any) -> np.ndarray:
        return rounded(exactly(*map(exact, arrays)), str(arrays[0].dtype))

    return Operator(
        name=name,
        dims=(Dim("m"), Dim("n")),
        define=define,
        reference=reference,
        flops=lambda m, n: operations * m * n,
        dtypes=_DTYPES,
        ranges=ranges,
        libraries=libraries,
        examples=EXAMPLES[name],
    )


def _between(low: float, value: Any, high: float) -> Any:
    """Clip a TE expression."""
    return te.min(te.max(value, low), high)


EXP = elementwise("exp", te.exp, np.exp, 1, twins.EXP)
TANH = elementwise("tanh", te.tanh, np.tanh, 1, twins.TANH)
SIGMOID = elementwise("sigmoid", te.sigmoid, sigmoid_exactly, 4, twins.SIGMOID)
SILU = elementwise("silu", silu, silu_exactly, 5, twins.SILU)
GELU_TANH = elementwise("gelu_tanh", gelu_tanh, gelu_tanh_exactly, 10, twins.GELU_TANH)
BIAS_GELU = elementwise(
    "bias_gelu",
    lambda x, bias: gelu(x + bias),
    lambda x, bias: gelu_exactly(x + bias),
    6,
    twins.BIAS_GELU,
    {"x": "mn", "bias": "n"},
)
SWIGLU = elementwise(
    "swiglu",
    lambda a, b: silu(a) * b,
    lambda a, b: silu_exactly(a) * b,
    6,
    twins.SWIGLU,
    {"a": "mn", "b": "mn"},
)
HARD_SWISH = elementwise(
    "hard_swish",
    lambda x: x * _between(0, x + 3, 6) * (1 / 6),
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
    5,
    twins.HARD_SWISH,
    ranges={"x": (-6, 6)},
)
SCALE_SHIFT_CLIP = elementwise(
    "scale_shift_clip",
    lambda x, scale, shift: _between(0, x * scale + shift, 6),
    lambda x, scale, shift: np.clip(x * scale + shift, 0, 6),
    4,
    twins.SCALE_SHIFT_CLIP,
    {"x": "mn", "scale": "n", "shift": "n"},
    {"x": (-16, 16)},
)

ELEMENTWISE = (EXP, TANH, SIGMOID, SILU, GELU_TANH, BIAS_GELU, SWIGLU, HARD_SWISH, SCALE_SHIFT_CLIP)
"""All of them."""
