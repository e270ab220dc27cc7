"""The engine of rewriting passes: a rule for each operator, which sees what made the arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from .constants import is_constant

Rule = Callable[["Rewriter", Any], Any]
"""Takes the rewriter and an expression; returns what takes its place, or None if nothing does."""

TUPLE_ITEM = "tuple item"
"""Where a rule for the elements of tuples stands in a table of rules."""


@relax.expr_functor.mutator
class Rewriter(relax.PyExprMutator):
    """Visits the calls of a function in order, with their arguments rewritten, and applies the rule of each.

    Parameters
    ----------
    rules : mapping
        By the name of the operator, ``relax.add``, or `TUPLE_ITEM`.
    mod : IRModule
        The module of the function.
    """

    def __init__(self, rules: Mapping[str, Rule], mod: Any) -> None:
        super().__init__(mod)
        self._rules = rules
        self._uses: Counter[Any] = Counter()
        # What is known of variables: a deep model asks for the same ones again and again.
        self._constant: dict[Any, bool] = {}

    def rewrite(self, function: Any) -> Any:
        """Return the function rewritten."""
        self._uses = Counter()
        tvm_ffi.structural_walk(function.body, (relax.Var, self._count))
        return self.visit_expr(function)

    def _count(self, var: Any) -> None:
        self._uses[var] += 1

    def made_by(self, expr: Any, *ops: str) -> Any:
        """Return the call that made a variable if it is one of these operators, else None."""
        value = self._value(expr)
        return value if isinstance(value, relax.Call) and op_name(value) in ops else None

    def only_use(self, expr: Any) -> bool:
        """Tell whether nothing else reads a variable."""
        # Once where it is defined and once where it is read; what rules made is read by what they made.
        return self._uses.get(expr, 0) <= 2

    def constant(self, expr: Any) -> bool:
        """Tell whether an expression depends on constants alone."""
        # A loop: deep models have more operators one after the other than Python's stack has room for.
        pending, seen, found = [expr], set(), True
        while pending and found:
            part = pending.pop()
            if isinstance(part, relax.Var):
                if part in seen or self._constant.get(part):
                    continue
                seen.add(part)
            parts = None if self._constant.get(part) is False else self._parts(part)
            found = parts is not None
            pending.extend(parts or ())
        # What an expression depends on is constant if it is; if it is not, only that much is known.
        self._constant.update(dict.fromkeys(seen if found else seen & {expr}, found))
        return found

    def _parts(self, expr: Any) -> list[Any] | None:
        """Return what an expression is computed from, nothing for a constant; None where it is an input."""
        value = self._value(expr)
        if isinstance(value, relax.Call) and op_name(value):
            return list(value.args)
        if isinstance(value, relax.TupleGetItem):
            return [value.tuple_value]
        if isinstance(value, relax.Tuple):
            return list(value.fields)
        return [] if value is not None and is_constant(value) else None

    def _value(self, expr: Any) -> Any:
        """Return what a variable is bound to; a variable may be another name of one."""
        while isinstance(expr, relax.Var):
            expr = self.lookup_binding(expr)
        return expr

    def call(self, func: Any, name: str, args: list[Any], ty: Any) -> Any:
        """Add a PrimFunc to the module and return a call of it."""
        return relax.call_tir(self.builder_.add_func(func, name), args, out_ty=ty)

    def emit(self, expr: Any) -> Any:
        """Emit an expression as it is and return its variable."""
        return self.builder_.emit(self.builder_.normalize(expr))

    def make(self, expr: Any) -> Any:
        """Emit an expression that a rule made, rewritten as far as rules apply, and return its variable."""
        expr = self.builder_.normalize(expr)
        if isinstance(expr, relax.Var) or not isinstance(expr, (relax.Call, relax.TupleGetItem)):
            return expr
        found = self._applied(expr)
        return found if isinstance(found, relax.Var) else self.builder_.emit(found)

    def _applied(self, expr: Any) -> Any:
        rule = self._rules.get(TUPLE_ITEM if isinstance(expr, relax.TupleGetItem) else op_name(expr))
        found = rule(self, expr) if rule else None
        return expr if found is None else self.builder_.normalize(found)

    def visit_call_(self, call: Any) -> Any:
        """Rewrite the arguments, then apply the rule."""
        return self._applied(self.builder_.normalize(self.visit_expr_post_order(call)))

    def visit_tuple_getitem_(self, item: Any) -> Any:
        """Rewrite the tuple, then apply the rule."""
        return self._applied(self.builder_.normalize(self.visit_expr_post_order(item)))

    def visit_var_binding_(self, binding: Any) -> None:
        """Note that the new variable is read as often as the old one."""
        super().visit_var_binding_(binding)
        self._uses[self.visit_expr(binding.var)] = self._uses[binding.var]


def op_name(call: Any) -> str:
    """Return the name of a call's operator, empty if it calls a function."""
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


def rewritten(rules: Mapping[str, Rule], mod: Any) -> Any:
    """Apply rules to ``main`` and drop what nothing reads any more."""
    rewriter = Rewriter(rules, mod)
    main = rewriter.rewrite(mod["main"])
    # Rules may have added functions; the module that was given stays as it is.
    result = rewriter.builder_.get().clone()
    result.update_func(result.get_global_var("main"), main)
    return relax.transform.DeadCodeElimination()(result)


def extents(expr: Any) -> tuple[int, ...]:
    """Return the static shape of a tensor."""
    return tuple(int(d) for d in expr.ty.shape)


def with_attrs(call: Any, args: list[Any], **changes: Any) -> Any:
    """Return a call of the same operator with other arguments and some other attributes."""
    info = type(call.attrs).__tvm_ffi_type_info__
    attrs = {field.name: getattr(call.attrs, field.name) for field in info.fields} | changes
    return relax.Call(call.op, args, tvm.ir.make_node(info.type_key, **attrs))
