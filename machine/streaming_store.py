"""A store of a vector past the caches: LLVM's non-temporal stores (``vmovntps``, ``stnp``).

TVM has no way to ask for one: a vector is written by a function in LLVM IR, which LLVM inlines. Such stores
of a thread become visible to others by its next locked instruction, which TVM's threads execute when they
finish their part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from .element import element_bytes

IMPORT_LLVM = "pragma_import_llvm"
"""TVM's attribute of a block or statement that calls functions of this LLVM IR."""

_LLVM_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "int32": "i32", "int8": "i8", "uint8": "i8",
}  # fmt: skip

_NAME = "tunesmith_stream_{lanes}_{dtype}"

STREAMING_NAMES = re.compile(_NAME.format(lanes=r"(2|4|8|16|32|64)", dtype=f"({'|'.join(_LLVM_TYPES)})"))
"""The names of such functions: of so many lanes, and of a type."""

_FUNCTION = """
define void @{name}(ptr %place, <{lanes} x {type}> %vector) alwaysinline {{
  store <{lanes} x {type}> %vector, ptr %place, align {bytes}, !nontemporal !0
  ret void
}}
!0 = !{{i32 1}}
"""


def streams(dtype: str) -> bool:
    """Tell whether vectors of a type can be written past the caches."""
    return dtype in _LLVM_TYPES


def streaming_name(lanes: int, dtype: str) -> str:
    """Return the name of the function that stores such a vector."""
    return _NAME.format(lanes=lanes, dtype=dtype)


def streaming_store(lanes: int, dtype: str) -> tuple[Callable[[Any, Any, Any], Any], str]:
    """Return what makes the call that stores a vector in a buffer, and the LLVM IR it needs.

    The call is made of the buffer, the elements before the vector, a multiple of its own, and the vector.
    """
    name = streaming_name(lanes, dtype)
    size = lanes * element_bytes(dtype)
    code = _FUNCTION.format(name=name, lanes=lanes, type=_LLVM_TYPES[dtype], bytes=size)

    def stored(buffer: Any, offset: Any, vector: Any) -> Any:
        return tirx.call_extern("void", name, buffer.access_ptr("w", offset=offset), vector)

    return stored, code


def stored_by(call: Any) -> tuple[Any, Any, Any] | None:
    """Return the buffer, the elements before the vector, and the vector of a call of `streaming_store`'s.

    None where it is another call, or none.
    """
    if not isinstance(call, tvm.ir.Call) or getattr(call.op, "name", "") != "tirx.call_extern":
        return None
    name, *operands = call.args
    if not isinstance(name, tvm.ir.StringImm) or not STREAMING_NAMES.fullmatch(name.value):
        return None
    place, vector = operands
    _, data, offset, *_ = place.args
    return data.args[0], offset, vector
