"""Quotients and remainders of positions, in forms that TVM sees through.

Of two axes that are one loop the position along each is a quotient and a remainder. Where a loop is cut they
are of sums, of which TVM makes only the remainder's smaller, and no longer finds that both are one position::

    (f + 3704) // 37 - 100, (f + 4) % 37        # the loop over f begins at 3704
    (f + 4) // 37, (f + 4) % 37                 # lies f + 4 elements in

Quotients that all lanes of a vector share are seen to be shared. Of a weight whose columns are 4 phases of
512, vectors of 16 lie in one phase each::

    for v in vectorized(16):  ... if (p * 128 + q * 16 + v) // 512 < 2 ...      # a choice of each lane
    for v in vectorized(16):  ... if (p * 128 + q * 16) // 512 < 2 ...          # one of all

TVM sees that only where what the lane is added to is one variable times the lanes. Otherwise it reads the
weight element by element.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import Add, FloorDiv, FloorMod, IntImm
from tvm_ffi import structural_map


def _lessened(number: Any) -> Any:
    """Return a quotient of a smaller sum, and what is taken out of it."""
    if (
        not isinstance(number.a, Add)
        or not isinstance(number.b, IntImm)
        or not isinstance(number.a.b, IntImm)
    ):
        return number
    taken, left = divmod(int(number.a.b), int(number.b))
    if not taken:
        return number
    dtype = str(number.ty.dtype)
    return FloorDiv(number.a.a + IntImm(dtype, left), number.b) + IntImm(dtype, taken)


def _lessen(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(FloorDiv, _lessened)]))


lessen_quotients = tirx.transform.prim_func_pass(_lessen, opt_level=0)
"""The pass that takes multiples of the divisor out of quotients of sums."""


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
