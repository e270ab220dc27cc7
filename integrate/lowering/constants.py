"""Constants: what depends on a model's weights alone is computed once, at compile time."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax import transform

from ...machine.target import host_target
from .evaluation import evaluated
from .functions import CALL_TIR, dataflow_bindings


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
class FoldConstants:
    """Replace what depends on constants alone by its value, at once.

    TVM's own FoldConstant compiles and runs one operator at a time, which takes ten seconds on
    ResNet-50's weights. What lowering itself makes of weights is computed by NumPy, which compiles nothing;
    the rest in one compilation.
    """

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Fold the constants of ``main``."""
        main = mod["main"]
        folded = _constant_bindings(main)
        wanted = _read_elsewhere(main, folded)
        if not wanted:
            return mod
        values = evaluated(list(folded.values()))
        left = [var for var in wanted if var not in values]
        if left:
            compiled = _compiled(mod, [_known(b, values) for b in folded.values()], left)
            values |= dict(zip(left, compiled, strict=True))
        constants = {var: relax.const(values[var], var.ty.dtype) for var in wanted}
        result = mod.clone()
        result.update_func(mod.get_global_var("main"), _Replacer(folded, constants).visit_expr(main))
        return transform.DeadCodeElimination()(result)


def is_constant(expr: Any, known: Any = ()) -> bool:
    """Tell whether an expression depends on constants and on the known variables alone."""
    if isinstance(expr, relax.Var):
        return expr in known
    if isinstance(expr, relax.Call):
        return _can_be_run(expr.op) and all(is_constant(a, known) for a in expr.args)
    if isinstance(expr, relax.Tuple):
        return all(is_constant(f, known) for f in expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return is_constant(expr.tuple_value, known)
    return isinstance(expr, (tvm.ir.Constant, tvm.ir.GlobalVar, relax.ShapeExpr))


def _can_be_run(op: Any) -> bool:
    """Only operators with a loop nest: foreign functions may do anything."""
    return isinstance(op, tvm.ir.Op) and (op == CALL_TIR or op.get_attr("FLegalize") is not None)


def _constant_bindings(main: Any) -> dict[Any, Any]:
    """Find the intermediate variables that depend on constants alone, with their bindings, in order."""
    found: dict[Any, Any] = {}
    for binding in dataflow_bindings(main):
        inner = isinstance(binding, relax.VarBinding) and isinstance(binding.var, relax.DataflowVar)
        if inner and isinstance(binding.value, (relax.Call, relax.Tuple, relax.TupleGetItem)):
            if is_constant(binding.value, found):
                found[binding.var] = binding
    return found


def _read_elsewhere(main: Any, folded: dict[Any, Any]) -> list[Any]:
    """Find the folded tensors that what remains of the function reads."""
    wanted: dict[Any, None] = {}
    for binding in dataflow_bindings(main):
        if binding.var not in folded:
            free = relax.analysis.free_vars(binding.value)
            wanted.update(dict.fromkeys(v for v in free if v in folded))
    return [v for v in wanted if isinstance(v.ty, relax.TensorType)]


def _known(binding: Any, values: dict[Any, Any]) -> Any:
    """Bind a variable to its value where that is known."""
    value = values.get(binding.var)
    return binding if value is None else relax.VarBinding(binding.var, relax.const(value))


def _compiled(mod: Any, bindings: list[Any], wanted: list[Any]) -> list[Any]:
    """Compile the bindings as one function for this machine, run it, and return the wanted tensors."""
    result = relax.Var("result", relax.TupleType([v.ty for v in wanted]))
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, relax.Tuple(wanted))])
    main = relax.Function([], relax.SeqExpr([block], result), result.ty, is_pure=True)
    others = {var: func for var, func in mod.functions_items() if var.name_hint != "main"}
    module = tvm.IRModule({**others, "main": main.with_attr("global_symbol", "main")})
    with host_target():
        module = tvm.transform.Sequential([transform.LegalizeOps(), transform.DeadCodeElimination()])(module)
        executable = tvm.compile(module, target=host_target())
    return list(relax.VirtualMachine(executable, tvm.cpu())["main"]())


@relax.expr_functor.mutator
class _Replacer(relax.PyExprMutator):
    """Drop the folded bindings and put the values in the place of their variables."""

    def __init__(self, folded: dict[Any, Any], constants: dict[Any, Any]) -> None:
        super().__init__()
        self.folded = folded
        self.constants = constants

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self.constants.get(var, var)

    def visit_var_binding_(self, binding: Any) -> None:
        # Shapes and tuples among the folded are no constants: their bindings stay, and dead code goes later.
        if binding.var not in self.constants:
            super().visit_var_binding_(binding)
