"""What is in a model: inputs, outputs, parameters, and the functions that it is lowered to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm
from tabulate import tabulate

from ..machine.signature import ArgSpec
from ..machine.target import as_target
from .extraction import extract_workloads
from .lowering.functions import as_workload, is_workload, prim_func_calls, prim_funcs
from .model import Model


@dataclass(frozen=True)
class FunctionSummary:
    """One function of a lowered model.

    Parameters
    ----------
    function : str
        Its name in the model.
    task : int or None
        The workload's number in ``tune --tasks``; functions that compute nothing have none.
    calls : int
        How often one inference calls it.
    arguments, weights, result : str
        Shapes: what it reads, those of them that are constants, and what it writes.
    flops : int
        Operations of one call.
    share : float
        The part of the model's operations that all its calls have, 0 to 1.
    """

    function: str
    task: int | None
    calls: int
    arguments: str
    weights: str
    result: str
    flops: int
    share: float


@dataclass(frozen=True)
class ModelSummary:
    """A model in numbers; ``str`` makes tables of it.

    Parameters
    ----------
    name : str
        The model's name.
    inputs, outputs : tuple of ArgSpec
        What a caller gives and gets.
    parameters, parameter_bytes : int
        Elements and size of the weights.
    flops : int
        Operations of one inference.
    functions : tuple of FunctionSummary
        Those with most operations first.
    """

    name: str
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    parameters: int
    parameter_bytes: int
    flops: int
    functions: tuple[FunctionSummary, ...]

    @property
    def totals(self) -> str:
        """Return parameters, operations and functions on one line."""
        calls = sum(f.calls for f in self.functions)
        return (
            f"{self.parameters:,} parameters ({self.parameter_bytes / 1e6:.1f} MB), "
            f"{self.flops / 1e9:.3g} GFLOP an inference, {len(self.functions)} functions in {calls} calls"
        )

    def __str__(self) -> str:
        """Write the summary as tables."""
        specs = [("input", s) for s in self.inputs] + [("output", s) for s in self.outputs]
        ends = [(kind, spec.name, spec.dtype, _extents(spec.shape)) for kind, spec in specs]
        rows = [(f.function, f.calls, f.arguments, f.result, f"{f.share:.1%}") for f in self.functions]
        heading = ("function", "calls", "reads", "writes", "share")
        tables = [tabulate(ends, tablefmt="plain"), tabulate(rows, heading)]
        return "\n\n".join([f"{self.name}: {self.totals}", *tables])


def summarize(model: Model, target: Any = "host") -> ModelSummary:
    """Say what is in a model; it is lowered for that, but not compiled.

    Parameters
    ----------
    model : Model
        The model.
    target : str or tvm.target.Target
        What it is lowered for.
    """
    target = as_target(target)
    mod = model.prepared(target)
    tasks = {name: i for i, w in enumerate(extract_workloads(model, target)) for name in w.functions}
    calls = Counter(name for name, _ in prim_func_calls(mod))
    workloads = {name: as_workload(name, func) for name, func in prim_funcs(mod) if is_workload(func)}
    total = sum(w.flops * calls[name] for name, w in workloads.items())
    rows = [
        _row(name, func, tasks.get(name), calls[name], workloads.get(name), total)
        for name, func in prim_funcs(mod)
    ]
    parameters = model.parameters
    return ModelSummary(
        name=model.name,
        inputs=model.inputs,
        outputs=model.outputs,
        parameters=parameters.elements,
        parameter_bytes=parameters.bytes,
        flops=total,
        functions=tuple(sorted(rows, key=lambda row: (-row.share, row.function))),
    )


def _row(name: str, func: Any, task: int | None, calls: int, workload: Any, total: int) -> FunctionSummary:
    shapes = [_extents(getattr(param, "shape", ())) for param in func.params]
    weights = workload.weights if workload else ()
    flops = workload.flops if workload else 0
    return FunctionSummary(
        function=name,
        task=task,
        calls=calls,
        arguments=" ".join(shapes[:-1]),
        weights=" ".join(shapes[i] for i in weights),
        result=shapes[-1],
        flops=flops,
        share=flops * calls / (total or 1),
    )


def _extents(shape: Any) -> str:
    """Write a shape; a symbolic extent by its name."""
    known = (str(int(d)) if isinstance(d, (int, tvm.tirx.IntImm)) else str(d) for d in shape)
    return f"[{','.join(known)}]"
