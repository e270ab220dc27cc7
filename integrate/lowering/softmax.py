"""Softmax in a model, as `kernels.softmax` defines it: a division a row instead of one an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels import softmax

_FLOATS = ("float32", "float64")


def _legalized_as(definition: Callable[[Any, int], Any]) -> Callable[[Any, Any], Any]:
    def legalized(builder: Any, call: Any) -> Any:
        """Return a call of the definition; what is half precision here, TVM makes."""
        (x,), axis = call.args, int(call.attrs.axis)
        if str(call.ty.dtype.dtype) not in _FLOATS:
            return call.op.get_attr("FLegalize")(builder, call)
        axis += len(call.ty.shape) if axis < 0 else 0
        return builder.call_te(definition, x, axis, primfunc_name_hint=definition.__name__)

    return legalized


LEGALIZATIONS: dict[str, Any] = {
    "relax.nn.softmax": _legalized_as(softmax.softmax),
    "relax.nn.log_softmax": _legalized_as(softmax.log_softmax),
}
"""What functions are made of operators of which TVM makes others, for its pass ``LegalizeOps``."""
