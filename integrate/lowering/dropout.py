"""Dropout: what it is at inference, nothing."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import dpl


@relax.transform.function_pass(opt_level=0, name="RemoveDropout")
class RemoveDropout:
    """Replace dropout by its input: ConvertLayout fails on its second output."""

    def transform_function(self, func: Any, _mod: Any, _context: Any) -> Any:
        """Rewrite one Relax function."""
        data = dpl.wildcard()
        pattern = dpl.TupleGetItemPattern(dpl.is_op("relax.nn.dropout")(data), 0)
        return dpl.rewrite_call(pattern, lambda _call, matches: matches[data], func)
