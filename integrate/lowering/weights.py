"""Weights beside the code: a package keeps them as arguments of ``main``, not inside the compiled library."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def lift_weights(mod: Any) -> tuple[Any, list[Any]]:
    """Turn the constants of ``main`` into parameters after its inputs.

    Constants inside a library make it slow to link and to load, and TVM reports each of them on stderr.

    Returns
    -------
    IRModule
        The module without constants.
    list of tvm.runtime.Tensor
        The values of the new parameters, each constant once.
    """
    main, lifter = mod["main"], _Lifter()
    body = lifter.visit_expr(main.body)
    params = [*main.params, *lifter.params.values()]
    attrs = {key: value for key, value in (main.attrs or {}).items() if key != "num_input"}
    lifted = relax.Function(params, body, main.ret_ty, main.is_pure).with_attrs(attrs)
    result = mod.clone()
    result.update_func(mod.get_global_var("main"), lifted)
    return result, lifter.values


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):
    """Replace each tensor constant by a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.params: dict[Any, Any] = {}
        self.values: list[Any] = []

    def visit_generic_const_(self, const: Any) -> Any:
        if not isinstance(const.value, tvm.runtime.Tensor):
            return const
        key = (const.value.data_ptr(), str(const.ty))
        if key not in self.params:
            self.params[key] = relax.Var(f"weight_{len(self.params)}", const.ty)
            self.values.append(const.value)
        return self.params[key]
