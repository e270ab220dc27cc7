"""How a user would compute an operator without tunesmith: what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[[], Any]
"""Computes once, on inputs that it holds, and returns the result in the library's own form."""

Calls = Call | Mapping[str, Call] | None
"""A call, or several by what tells them apart (memory formats, say), or None where the library has none."""


@dataclass(frozen=True)
class Libraries:
    """An operator in other libraries' words; each is None where a library does not have it.

    Parameters
    ----------
    numpy : callable or None
        ``numpy(*arrays, **shape)`` returns `Calls` on these arrays. Memory for the result is made here,
        before the clock starts, where the library can write into it.
    torch : callable or None
        ``torch(torch, *tensors, **shape)`` is given the module, and returns `Calls` on these tensors.
    onnx : callable or None
        ``onnx(node, *names, **shape)`` returns the nodes of a graph from these inputs to ``"y"``;
        ``node`` is ``onnx.helper.make_node``. A second value, a mapping of names to arrays, adds constants.
    weights : tuple of int
        Inputs that a model would hold as constants: ONNX Runtime may pack them when it loads the model.
    adapt : callable or None
        ``adapt(*arrays, **shape)`` gives the inputs the layout that PyTorch and ONNX want, uncounted.
    restore : callable or None
        ``restore(array, **shape)`` gives their result the operator's layout, uncounted.
    """

    numpy: Callable[..., Calls] | None = None
    torch: Callable[..., Calls] | None = None
    onnx: Callable[..., Any] | None = None
    weights: tuple[int, ...] = ()
    adapt: Callable[..., Sequence[np.ndarray]] | None = None
    restore: Callable[..., np.ndarray] | None = None
