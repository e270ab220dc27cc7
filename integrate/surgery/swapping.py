"""Put replacements into a module: each call of the function that was there calls the new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from ...kernels.operator import CONSTANT_ARGUMENTS
from ...machine.errors import InputError
from ...machine.target import target_text
from ..lowering.dump import NO_DUMP, Dump
from ..lowering.functions import CALL_TIR, REPLACED_BY, SCHEDULED, as_workload, prim_funcs
from ..model import Model
from .external import CALL_EXTERNAL, External, register
from .replacement import Replacement


@dataclass(frozen=True, eq=False)
class ModelWithReplacements(Model):
    """A model, some functions of which were replaced.

    Parameters
    ----------
    replacements : tuple of Replacement
        One for each of these functions.
    """

    replacements: tuple[Replacement, ...] = ()
    _altered: dict[str, Any] = field(default_factory=dict, repr=False)

    def prepared(self, target: Any, dump: Dump = NO_DUMP) -> Any:
        """Return the module of functions for a target, the replacements among them.

        Raises
        ------
        InputError
            For this target the model has no such function, or it is another one.
        """
        key = target_text(target)
        if key not in self._altered or dump.writes:
            self._altered[key] = put_in(super().prepared(target, dump), self.replacements)
            dump("replaced", self._altered[key])
        return self._altered[key]


def put_in(mod: Any, replacements: Sequence[Replacement]) -> Any:
    """Return a prepared module with replacements in the place of what they were made for.

    Raises
    ------
    InputError
        The module has no such function, or it is another one.
    """
    result, symbols = mod.clone(), {}
    functions = dict(prim_funcs(mod))
    for replacement in replacements:
        _require_there(functions, replacement)
        if isinstance(replacement.content, External):
            symbols[replacement.function] = register(replacement.content, replacement.original)
        else:
            result.update_func(mod.get_global_var(replacement.function), _marked(replacement))
    if symbols:
        var = result.get_global_var("main")
        result.update_func(var, _ExternalCalls(symbols).visit_expr(result["main"]))
        for name in symbols:
            del result[name]
    return result


def _require_there(functions: dict[str, Any], replacement: Replacement) -> None:
    func = functions.get(replacement.function)
    if func is None or as_workload(replacement.function, func).hash != replacement.original.hash:
        raise InputError(
            f"{replacement.function} was replaced as it is for another target: replace it for this one too"
        )


def _marked(replacement: Replacement) -> Any:
    """Return a replacement's PrimFunc as a part of a module, with notes for those who schedule it."""
    func = replacement.content.without_attr("global_symbol").with_attr(REPLACED_BY, replacement.description)
    if replacement.original.weights:
        func = func.with_attr(CONSTANT_ARGUMENTS, list(replacement.original.weights))
    return func.with_attr(SCHEDULED, True) if replacement.scheduled else func


@relax.expr_functor.mutator
class _ExternalCalls(relax.PyExprMutator):
    """Call external functions instead of PrimFuncs."""

    def __init__(self, symbols: dict[str, str]) -> None:
        super().__init__()
        self.symbols = symbols

    def visit_call_(self, call: Any) -> Any:
        if call.op != CALL_TIR or call.args[0].name_hint not in self.symbols:
            return super().visit_call_(call)
        function = relax.ExternFunc(self.symbols[call.args[0].name_hint])
        return relax.Call(CALL_EXTERNAL, [function, call.args[1]], None, call.ty_args)
