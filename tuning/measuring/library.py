"""A candidate's shared library: how it is written, and how it is called.

Where a model's weight is constant, a schedule may mark the block that packs it; the model packs it once, at
compile time. A trial does the same: packing is a function of its own, part of what is checked and not of what
is timed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from ...kernels.operator import CONSTANT_ARGUMENTS
from ...machine.arrays import aligned_empty, as_tensor
from ...machine.linking import export_library
from ...schedules.transforms import keep_separable_packing
from ..records.compilation import build

# TVM names the two parts of a function that it splits after the function.
_KERNEL = "kernel"
_PACK, _PACKED = f"{_KERNEL}_weight_prepack", f"{_KERNEL}_prepacked"


def export_kernel(schedule: Any, target: Any, path: str, quick: bool = False) -> None:
    """Compile a schedule, or a PrimFunc as it is, and write its shared library.

    A weight that is packed apart is described in a JSON file beside the library. ``quick``: see
    `generate_code`.
    """
    scheduled = hasattr(schedule, "mod")
    func = schedule.mod["main"] if scheduled else schedule
    parts = _packing_split_off(schedule) if scheduled and func.attrs.get(CONSTANT_ARGUMENTS) else None
    if parts is None:
        export_library(build(func, target, quick), path)
        return
    pack, packed = parts
    weight, buffer = pack.params
    description = {
        "position": [str(p.name) for p in func.params].index(str(weight.name)),
        "shape": [int(extent) for extent in buffer.shape],
        "dtype": str(buffer.dtype),
    }
    functions = {name: f.with_attr("global_symbol", name) for name, f in ((_PACK, pack), (_PACKED, packed))}
    export_library(build(tvm.IRModule(functions), target, quick), path)
    _description_file(path).write_text(json.dumps(description))


def packs_apart(path: str) -> bool:
    """Tell whether a library packs a constant weight in a function of its own."""
    return _description_file(path).exists()


def library_hash(path: str) -> str:
    """Name a library by what it holds: equal candidates compile to equal files."""
    digest = sha256(Path(path).read_bytes())
    if packs_apart(path):
        digest.update(_description_file(path).read_bytes())
    return digest.hexdigest()[:32]


class LoadedKernel:
    """A library's kernel.

    Parameters
    ----------
    path : str
        The shared library that `export_kernel` wrote.
    module : tvm.runtime.Module or None
        The library where it is loaded already, perhaps on another machine.
    """

    def __init__(self, path: str, module: Any = None) -> None:
        self._module = tvm.runtime.load_module(path) if module is None else module
        self._packed = json.loads(_description_file(path).read_text()) if packs_apart(path) else None

    @property
    def packs(self) -> bool:
        """Tell whether a call packs a weight, which a model does once."""
        return self._packed is not None

    def __call__(self, *tensors: Any) -> None:
        """Compute everything, packing included."""
        kernel, arguments = self.prepared(tensors)
        kernel(*arguments)

    def prepared(self, tensors: Sequence[Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
        """Pack the weight; return what a model calls again and again, and on which tensors."""
        if self._packed is None:
            return self._function("main"), tensors
        at = self._packed["position"]
        panels = self._empty(tuple(self._packed["shape"]), self._packed["dtype"])
        self._function(_PACK)(tensors[at], panels)
        return self._function(_PACKED), [*tensors[:at], panels, *tensors[at + 1 :]]

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self._module[name]
        return function

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return as_tensor(aligned_empty(shape, dtype))


def _description_file(path: str) -> Path:
    return Path(f"{path}.json")


def called_once(func: Any, name: str) -> Any:
    """Return a Relax module whose ``main`` calls a PrimFunc once; the function goes in as it is."""
    *inputs, output = [relax.TensorType(list(p.shape), str(p.dtype)) for p in func.params]
    arguments = [relax.Var(str(p.name), ty) for p, ty in zip(func.params, inputs, strict=False)]
    builder = relax.BlockBuilder()
    kernel = builder.add_func(func.without_attr("global_symbol"), name)
    with builder.function("main", arguments):
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(kernel, arguments, out_ty=output))
        builder.emit_func_output(result)
    return builder.get()


def _packing_split_off(schedule: Any) -> tuple[Any, Any] | None:
    """Split the marked packing block off a schedule; None where none can be run before the others."""
    schedule = schedule.copy()
    keep_separable_packing(schedule)
    split = relax.transform.SplitLayoutRewritePreproc()(called_once(schedule.mod["main"], _KERNEL))
    found = {str(var.name_hint): f for var, f in split.functions_items()}
    return (found[_PACK], found[_PACKED]) if _PACK in found else None
