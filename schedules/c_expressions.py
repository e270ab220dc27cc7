"""TVM's scalar expressions in C: operators, intrinsics, numbers, and the names of loops and arrays."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tvm import ir, sym, tirx
from tvm.script import tirx as T

from ..machine.dot_instructions import DOT_INSTRUCTIONS, DotInstruction
from ..machine.errors import InputError
from .c_scalars import MATH_FUNCTIONS, c_type, identifier, number

_VECTOR = re.compile(r"([a-z]+(\d+))x(\d+)")
# The weakest binding first: an operand that binds weaker than its operator gets parentheses.
_OPERATORS: dict[str, tuple[str, int]] = {
    "Or": ("||", 2),
    "And": ("&&", 3),
    "BitwiseOr": ("|", 4),
    "BitwiseXor": ("^", 5),
    "BitwiseAnd": ("&", 6),
    "EQ": ("==", 7),
    "NE": ("!=", 7),
    "LT": ("<", 8),
    "LE": ("<=", 8),
    "GT": (">", 8),
    "GE": (">=", 8),
    "LShift": ("<<", 9),
    "RShift": (">>", 9),
    "Add": ("+", 10),
    "Sub": ("-", 10),
    "Mul": ("*", 11),
    "Div": ("/", 11),
    "Mod": ("%", 11),
    "FloorDiv": ("/", 11),
    "FloorMod": ("%", 11),
}
_CONDITIONAL, _UNARY, _ATOM = 1, 12, 13
# Few know how strongly these bind, and compilers warn.
_CONFUSING = ("||", "|", "^", "&", "<<", ">>")
_ASSOCIATIVE = ("+", "&&", "||")
ALIGNMENT = 64
"""Bytes: where arrays begin that the C itself makes."""

_HELPERS = {
    "floor_div": "static inline int64_t floor_div(int64_t a, int64_t b) {\n"
    "    return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}",
    "floor_mod": "static inline int64_t floor_mod(int64_t a, int64_t b) {\n"
    "    return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);\n}",
    "alloc": "static void *alloc(size_t bytes) {\n"
    f"    void *memory = aligned_alloc({ALIGNMENT}, (bytes + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT});\n"
    "    if (memory == NULL) abort();\n    return memory;\n}",
}


class Expressions:
    """Writes expressions: remembers names, ranges of loops, and which helper functions are called."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.helpers: dict[str, str] = {}
        # TVM's simplifier writes out again what has a name: a transposition would grow to many pages.
        self.bound: dict[str, str] = {}
        self.ranges = sym.Analyzer()

    def name(self, variable: Any) -> str:
        """Give a variable a name that no other one in scope has."""
        base = identifier(str(variable.name))
        name, nth = base, 1
        while name in self.taken:
            name, nth = f"{base}_{nth}", nth + 1
        self.taken.add(name)
        self.names[variable] = name
        return name

    def helper(self, name: str) -> str:
        """Let a helper function be written before the function; return its name."""
        self.helpers[name] = _HELPERS[name]
        return name

    def element(self, buffer: Any, indices: Any) -> str:
        """Write an element of a flat array, or a vector of consecutive ones."""
        (index,) = indices
        if not isinstance(index, tirx.Ramp):
            return f"{self.names[buffer]}[{self.write(index)}]"
        if not isinstance(index.stride, tirx.IntImm) or index.stride.value != 1:
            raise no_words_for(index)
        vector = self.type(f"{buffer.dtype}x{int(index.lanes)}")
        return f"*({vector} *)&{self.names[buffer]}[{self.write(index.base)}]"

    def type(self, dtype: Any) -> str:
        """Return the type of a scalar, or of a vector as GCC and Clang have them."""
        found = _VECTOR.fullmatch(str(dtype))
        if found is None:
            return c_type(dtype)
        name, bits = str(dtype), int(found[2])
        size = bits // 8 * int(found[3])
        attributes = f"vector_size({size}), aligned({bits // 8}), may_alias"
        self.helpers[name] = f"typedef {c_type(found[1])} {name} __attribute__(({attributes}));"
        return name

    def write(self, node: Any, binding: int = 0) -> str:
        """Write an expression, in parentheses where it binds weaker than what is around it."""
        text, strength = self._bound(node)
        if text in self.bound:
            return self.bound[text]
        return f"({text})" if strength < binding else text

    def _bound(self, node: Any) -> tuple[str, int]:
        """Write an expression and say how strongly it binds."""
        kind = type(node).__name__
        if isinstance(node, ir.TensorLoad):
            return self.element(node.source, node.indices), _ATOM
        if isinstance(node, ir.Var):
            return self.names[node], _ATOM
        if isinstance(node, tirx.IntImm | tirx.FloatImm):
            return number(node), _ATOM if node.value >= 0 else _UNARY
        if kind in _OPERATORS:
            return self._operation(node, kind)
        if isinstance(node, tirx.Max | tirx.Min):
            return self._extremum(node, kind.lower()), _ATOM
        if isinstance(node, tirx.Not | tirx.BitwiseNot):
            return f"{'!' if kind == 'Not' else '~'}{self.write(node.a, _UNARY)}", _UNARY
        if isinstance(node, tirx.Broadcast):
            return f"({self.type(node.ty.dtype)}){{}} + {self.write(node.value, 11)}", 10
        if isinstance(node, tirx.Cast) and _VECTOR.fullmatch(str(node.ty.dtype)):
            return f"__builtin_convertvector({self.write(node.value)}, {self.type(node.ty.dtype)})", _ATOM
        if isinstance(node, tirx.Cast):
            return f"({c_type(node.ty.dtype)}){self.write(node.value, _UNARY)}", _UNARY
        if isinstance(node, tirx.Select):
            return self._choice(node.condition, node.true_value, node.false_value), _CONDITIONAL
        if isinstance(node, tirx.Shuffle):
            return self._shuffled(node), _ATOM
        if isinstance(node, ir.Call):
            return self._call(node)
        raise no_words_for(node)

    def _operation(self, node: Any, kind: str) -> tuple[str, int]:
        sign, strength = _OPERATORS[kind]
        if kind in ("FloorDiv", "FloorMod") and not self.ranges.can_prove(tirx.all(node.a >= 0, node.b > 0)):
            helper = self.helper("floor_div" if kind == "FloorDiv" else "floor_mod")
            return f"{helper}({self.write(node.a)}, {self.write(node.b)})", _ATOM
        left, right = strength, strength if sign in _ASSOCIATIVE else strength + 1
        if sign in _CONFUSING:
            left = right = _UNARY
        text = f"{self.write(node.a, left)} {sign} {self.write(node.b, right)}"
        return self._wrapped(text, strength, str(node.ty.dtype))

    def _wrapped(self, text: str, strength: int, dtype: str) -> tuple[str, int]:
        """Let a narrow integer wrap around where it would: C computes with int."""
        narrow = dtype in ("int8", "uint8", "int16", "uint16")
        return (f"({c_type(dtype)})({text})", _UNARY) if narrow else (text, strength)

    def _extremum(self, node: Any, which: str) -> str:
        kind = self.type(node.ty.dtype)
        name, sign = f"{which}_{kind}", "<" if which == "min" else ">"
        body = f"    return a {sign} b ? a : b;"
        if _VECTOR.fullmatch(str(node.ty.dtype)):
            # C has no choice between vectors, but between their bits.
            lanes = f"    __typeof__(a {sign} b) first = a {sign} b;"
            either = "(first & (__typeof__(first))a) | (~first & (__typeof__(first))b)"
            body = f"{lanes}\n    return ({kind})({either});"
        self.helpers[name] = f"static inline {kind} {name}({kind} a, {kind} b) {{\n{body}\n}}"
        return f"{name}({self.write(node.a)}, {self.write(node.b)})"

    def _shuffled(self, node: Any) -> str:
        """Write a shuffle. C shuffles two vectors, so that more are joined before."""
        vectors, lanes = [*map(self.write, node.vectors)], int(node.vectors[0].ty.dtype.lanes)
        if len(vectors) == len(node.indices) == 1:
            return f"{self.write(node.vectors[0], _ATOM)}[{self.write(node.indices[0])}]"
        while len(vectors) > 2:
            pairs, lanes = zip(vectors[::2], vectors[1::2], strict=True), 2 * lanes
            whole = ", ".join(map(str, range(lanes)))
            vectors = [f"__builtin_shufflevector({one}, {other}, {whole})" for one, other in pairs]
        pair = vectors if len(vectors) == 2 else vectors * 2
        return f"__builtin_shufflevector({', '.join([*pair, *map(self.write, node.indices)])})"

    def _choice(self, condition: Any, yes: Any, no: Any) -> str:
        parts = [self.write(each, _CONDITIONAL + 1) for each in (condition, yes, no)]
        if _VECTOR.fullmatch(str(yes.ty.dtype)):
            # What is computed of vectors that alias others aliases none: to C these are two types.
            kind = self.type(yes.ty.dtype)
            parts = [parts[0], *(f"({kind})({part})" for part in parts[1:])]
        return "{} ? {} : {}".format(*parts)

    def _call(self, node: Any) -> tuple[str, int]:
        """Write a call of one of TVM's intrinsics."""
        function = str(node.op.name).rpartition(".")[2] if isinstance(node.op, ir.Op) else ""
        dtype = str(node.ty.dtype)
        if function == "if_then_else":
            return self._choice(*node.args), _CONDITIONAL
        if function == "likely":
            return self._bound(node.args[0])
        if function == "reinterpret":
            kinds = self.type(node.args[0].ty.dtype), self.type(dtype)
            return "((union {{ {} from; {} to; }}){{{}}}).to".format(*kinds, self.write(*node.args)), _ATOM
        if function == "call_llvm_pure_intrin" and node.args[0].value in _dot_instructions():
            return self._dot_products(_dot_instructions()[node.args[0].value], node.args[1:]), _ATOM
        vector = _VECTOR.fullmatch(dtype)
        scalar = vector[1] if vector else dtype
        if scalar not in ("float32", "float64") or function not in ("sigmoid", *MATH_FUNCTIONS):
            raise no_words_for(node)
        if vector and len(node.args) > 1:
            raise no_words_for(node)
        suffix, arguments = "f" if scalar == "float32" else "", [self.write(each) for each in node.args]
        if vector:
            return self._lane_by_lane(function, suffix, dtype, arguments), _ATOM
        return _function(function, suffix, arguments)

    def _lane_by_lane(self, function: str, suffix: str, dtype: str, arguments: list[str]) -> str:
        """Write a call of a function that calls one of C's, of one argument, for each lane of a vector."""
        kind, lanes = self.type(dtype), dtype.rpartition("x")[2]
        text, _ = _function(function, suffix, ["x[i]"])
        name = f"{function}_{kind}"
        loop = f"    for (int i = 0; i < {lanes}; ++i) x[i] = {text};"
        self.helpers[name] = f"static inline {kind} {name}({kind} x) {{\n{loop}\n    return x;\n}}"
        return f"{name}({', '.join(arguments)})"

    def _dot_products(self, instruction: DotInstruction, operands: Any) -> str:
        """Write a call of a function that does what an instruction does, on any CPU."""
        lanes, products, elements = instruction.lanes, instruction.products, instruction.elements
        data, weight = (f"{each}x{elements}" for each in (instruction.data_dtype, instruction.weight_dtype))
        kinds = {"sums": f"int32x{lanes}", "data": data, "weight": weight}
        sums, *_ = (self.type(kind) for kind in kinds.values())
        given = [f"{kind} {name}" for name, kind in kinds.items() if instruction.adds or name != "sums"]
        start = "" if instruction.adds else f"    {sums} sums = {{0}};\n"
        self.helpers[str(instruction)] = (
            # A warning that functions of such vectors are called otherwise by other compilers.
            '#pragma GCC diagnostic ignored "-Wpsabi"\n'
            f"static inline {sums} {instruction}({', '.join(given)}) {{\n{start}"
            f"    for (int i = 0; i < {elements}; ++i) sums[i / {products}] += data[i] * weight[i];\n"
            "    return sums;\n}"
        )
        return f"{instruction}({', '.join(map(self.write, operands))})"


@cache
def _dot_instructions() -> dict[int, DotInstruction]:
    """Return the instructions by LLVM's number."""
    return {T.llvm_lookup_intrinsic_id(each.function): each for each in DOT_INSTRUCTIONS}


def _function(function: str, suffix: str, arguments: list[str]) -> tuple[str, int]:
    """Write a call of a function of numbers, and say how strongly it binds."""
    if function == "sigmoid":
        return f"1.0{suffix} / (1.0{suffix} + exp{suffix}(-({arguments[0]})))", 11
    return f"{function}{suffix}({', '.join(arguments)})", _ATOM


def no_words_for(node: Any, what: str = "") -> InputError:
    """Return the error that names what cannot be written."""
    text = what or " ".join(str(node).split())[:60] or type(node).__name__
    return InputError(f"no C for {type(node).__name__} in this schedule ({text}): use --as tir or --as llvm")
