"""What C has for scalars: their types, numbers and functions, and the names that are left to others."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from ..machine.errors import InputError

_TYPES = {
    "bool": "bool",
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
MATH_FUNCTIONS = frozenset(
    "acos asin atan atan2 ceil cos cosh erf exp exp2 fabs floor fmod log log10 log1p log2 nearbyint pow rint "
    "round sin sinh sqrt tan tanh trunc".split()
)
"""Functions of <math.h>; those of float end in f."""
_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int "
    "long register restrict return short signed sizeof static struct switch typedef union unsigned void "
    "volatile while bool true false max min alloc floor_div floor_mod main abort exit free abs div gamma "
    "j0 j1 jn y0 y1 yn remainder".split()
)


def c_type(dtype: Any) -> str:
    """Return C's name of a dtype."""
    found = _TYPES.get(str(dtype))
    if found is None:
        raise InputError(f"standard C has no type for {dtype}: use --as llvm")
    return found


def identifier(text: str) -> str:
    """Return a name that C has no other use for."""
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in text)
    name = f"_{name}" if name[:1].isdigit() else name
    return f"{name}_" if name in _RESERVED or name.removesuffix("f") in MATH_FUNCTIONS else name


def number(node: Any) -> str:
    """Write a number with its type."""
    dtype, value = str(node.ty.dtype), node.value
    if dtype == "bool":
        return "true" if value else "false"
    if not isinstance(node, tirx.FloatImm):
        return str(int(value)) + ("LL" if dtype == "int64" and abs(value) > 2**31 - 1 else "")
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if math.isnan(value):
        return "NAN"
    return f"{float(value)!r}{'f' if dtype == 'float32' else ''}"
