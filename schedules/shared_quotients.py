"""Quotients that all lanes of a vector share are seen to be shared.

Of a weight whose columns are 4 phases of 512, vectors of 16 lie in one phase each::

    for v in vectorized(16):  ... if (p * 128 + q * 16 + v) // 512 < 2 ...      # a choice of each lane
    for v in vectorized(16):  ... if (p * 128 + q * 16) // 512 < 2 ...          # one of all

TVM sees that only where what the lane is added to is one variable times the lanes. Otherwise it reads the
weight element by element.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import FloorDiv, FloorMod, IntImm
from tvm_ffi import structural_map


def share_quotients(loop: Any) -> Any:
    """Return a vectorized loop whose lane is taken out of quotients, and of the numbers of remainders."""
    lane, lanes, analyzer = loop.loop_var, int(loop.extent), Analyzer()

    def first_of(number: Any, divisor: Any) -> Any:
        """Return a number without the lane in it, where that and the divisor are multiples of the lanes."""
        if not isinstance(divisor, IntImm) or int(divisor) % lanes:
            return None
        parts = detect_linear_equation(number, [lane])
        if not parts or not isinstance(parts[0], IntImm) or int(parts[0]) != 1:
            return None
        found = analyzer.modular_set(parts[1])
        return parts[1] if int(found.coeff) % lanes == int(found.base) % lanes == 0 else None

    def quotient(number: Any) -> Any:
        first = first_of(number.a, number.b)
        return number if first is None else FloorDiv(first, number.b)

    def remainder(number: Any) -> Any:
        first = first_of(number.a, number.b)
        return number if first is None else FloorMod(first, number.b) + lane

    body = structural_map(loop.body, [(FloorDiv, quotient), (FloorMod, remainder)])
    if body.same_as(loop.body):
        return loop
    return tirx.For(lane, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)
