"""What an operator is, and what a workload is: an operator with its shape and dtype fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from ..machine.errors import InputError, blamed, unknown_name
from ..machine.signature import ArgSpec
from .libraries import Libraries

Shape = Mapping[str, Any]
"""An operator's dimensions by name: positive integers, and strings for choices such as a layout."""

CONSTANT_ARGUMENTS = "layout_free_buffers"
"""TVM's attribute of a PrimFunc for the arguments that its caller keeps constant: schedules may pack them."""

Arrays = Sequence[np.ndarray]

Ranges = Mapping[str, tuple[float, float]]
"""The least value and the upper bound of an input, by its name."""


@dataclass(frozen=True)
class Dim:
    """One named dimension of an operator.

    Parameters
    ----------
    name : str
        The name used in ``--shape``.
    default : int or str or None
        The value when it is left out; None when it must be given.
    minimum : int
        The least value allowed (0 for padding).
    choices : tuple of str or int
        The values allowed, for a dimension that is a choice and no extent.
    """

    name: str
    default: int | str | None = None
    minimum: int = 1
    choices: tuple[int | str, ...] = ()

    def check(self, value: Any) -> int | str:
        """Return the value if it is allowed here, else raise InputError."""
        if self.choices:
            for choice in self.choices:
                if value == choice:
                    return choice
            allowed = ", ".join(map(str, self.choices))
            raise InputError(f"{self.name} must be one of {allowed}: {self.name}={value!r}")
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < self.minimum:
            raise InputError(
                f"{self.name} must be an integer of at least {self.minimum}: {self.name}={value!r}"
            )
        return int(value)


@dataclass(frozen=True)
class Example:
    """A shape worth running and where it comes from (which model, which layer)."""

    shape: Shape
    source: str


@dataclass(frozen=True)
class Operator:
    """A definition, a NumPy reference, the cost, and shapes worth running.

    Parameters
    ----------
    name : str
        The operator's name, as in ``tunesmith bench NAME``.
    dims : tuple of Dim
        The dimensions that fix a workload.
    define : callable
        ``define(dtype=..., **shape)`` returns the TE tensors, inputs first, the output last,
        or a PrimFunc. TE extents may be plain integers: they become int64, as Relax's fusion needs.
    reference : callable
        ``reference(*inputs, **shape)`` computes the output from NumPy inputs, exactly or in float64,
        and rounds once: the specification.
    flops : callable
        ``flops(**shape)`` counts floating-point (or integer) operations; a multiply-add is two.
    examples : tuple of Example
        Shapes worth running.
    dtypes : tuple of str
        Element types that the definition supports.
    script : callable or None
        ``script(dtype=..., **shape)`` returns the TVMScript twin as a PrimFunc.
    check : callable or None
        ``check(**shape)`` raises InputError where dimensions do not fit each other.
    ranges : mapping of str to (float, float)
        Inputs that make sense within bounds only, such as a variance, by name; test data is drawn there.
        Integers of a sum that is rounded to a narrow type are given their full range here.
    vary : callable or None
        ``vary(*inputs)`` changes every second set of test data in place, where kernels may take other steps
        by how large values are.
    libraries : Libraries or None
        How NumPy, PyTorch and ONNX Runtime compute it, to be compared with.
    """

    name: str
    dims: tuple[Dim, ...]
    define: Callable[..., Any]
    reference: Callable[..., np.ndarray]
    flops: Callable[..., int]
    examples: tuple[Example, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    script: Callable[..., Any] | None = None
    check: Callable[..., None] | None = field(default=None)
    ranges: Ranges = field(default_factory=dict)
    vary: Callable[..., None] | None = None
    libraries: Libraries | None = None

    def complete(self, shape: Shape) -> dict[str, int | str]:
        """Fill in defaults and check every dimension.

        Raises
        ------
        InputError
            A dimension is unknown, missing, or out of its range, or two do not fit each other.
        """
        known = {d.name: d for d in self.dims}
        for name in shape:
            if name not in known:
                raise unknown_name(f"dimension of {self.name}", name, known)
        missing = [d.name for d in self.dims if d.default is None and d.name not in shape]
        if missing:
            raise InputError(
                f"{self.name} needs {', '.join(d.name for d in self.dims if d.default is None)}: "
                f"missing {', '.join(missing)}"
            )
        full = {d.name: d.check(shape.get(d.name, d.default)) for d in self.dims}
        if self.check is not None:
            self.check(**full)
        return full

    def workload(self, shape: Shape, dtype: str | None = None) -> Workload:
        """Fix shape and dtype; without one, the first that the operator supports.

        Raises
        ------
        InputError
            The shape or the dtype is not one this operator supports.
        """
        full = self.complete(shape)
        dtype = self.dtypes[0] if dtype is None else dtype
        if dtype not in self.dtypes:
            raise InputError(f"{self.name} supports dtype {', '.join(self.dtypes)}: dtype={dtype!r}")
        with blamed(f"the definition of {self.name}", self.define):
            func = as_prim_func(self.define(dtype=dtype, **full))
        with blamed(f"the count of operations of {self.name}", self.flops):
            flops = self.flops(**full)
        return Workload(
            name=self.name,
            shape=full,
            dtype=dtype,
            func=func,
            flops=flops,
            reference=partial(self.reference, **full),
            ranges=self.ranges,
            vary=self.vary,
            libraries=self.libraries,
        )


def as_prim_func(definition: Any) -> Any:
    """Turn TE tensors (inputs first, output last) or a PrimFunc into a PrimFunc named ``main``."""
    if isinstance(definition, tvm.tirx.PrimFunc):
        return definition.with_attr("global_symbol", "main")
    # Without the override TE mixes int32 and int64, and printing and parsing changes the hash.
    return tvm.te.create_prim_func(list(definition), index_dtype_override="int64")


def _arg_spec(parameter: Any) -> ArgSpec:
    """Read name, shape and dtype off a PrimFunc's parameter."""
    extents = getattr(parameter, "shape", None)
    if extents is None or not all(isinstance(e, tvm.tirx.IntImm) for e in extents):
        found = "a scalar" if extents is None else f"of shape ({', '.join(map(str, extents))})"
        raise InputError(
            f"a workload's arguments must be tensors of fixed shape: {parameter.name} is {found}; "
            "bind its symbolic dimensions first"
        )
    return ArgSpec(str(parameter.name), tuple(int(e) for e in extents), str(parameter.dtype))


def func_hash(func: Any) -> str:
    """Return the structural hash of a PrimFunc as 16 hexadecimal digits."""
    return f"{tvm_ffi.structural_hash(func) & 0xFFFFFFFFFFFFFFFF:016x}"


@dataclass(frozen=True, eq=False)
class Workload:
    """An operator with its shape and dtype fixed: one PrimFunc and what is needed to judge it.

    Parameters
    ----------
    name : str
        The operator's name, or that of the function taken out of a model.
    shape : mapping
        All dimensions by name; empty for a function taken out of a model.
    dtype : str
        The element type; for a function taken out of a model its output's.
    func : PrimFunc
        The unscheduled computation, its symbol ``main``, outputs last.
    flops : int
        Operations of one call.
    reference : callable or None
        ``reference(*inputs)`` is the expected output, rounded once from float64. None for a function
        taken out of a model: there the unscheduled PrimFunc is the reference.
    weights : tuple of int
        Positions of arguments that are constant between calls of the model it came from.
    ranges : mapping of str to (float, float)
        Bounds of inputs by name, where not [-1, 1): see `Operator`.
    vary : callable or None
        Changes the inputs of every second set of test data: see `Operator`.
    libraries : Libraries or None
        How other libraries compute it, where its operator says so.
    """

    name: str
    shape: Shape
    dtype: str
    func: Any
    flops: int
    reference: Callable[..., np.ndarray] | None = None
    weights: tuple[int, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    vary: Callable[..., None] | None = None
    libraries: Libraries | None = None

    @cached_property
    def args(self) -> tuple[ArgSpec, ...]:
        """The arguments in call order, outputs last."""
        return tuple(_arg_spec(parameter) for parameter in self.func.params)

    @property
    def inputs(self) -> tuple[ArgSpec, ...]:
        """The arguments that are read."""
        return self.args[:-1]

    @property
    def output(self) -> ArgSpec:
        """The argument that is written."""
        return self.args[-1]

    @property
    def bytes_moved(self) -> int:
        """The least traffic of one call in bytes: each argument once."""
        return sum(a.nbytes for a in self.args)

    @cached_property
    def hash(self) -> str:
        """Structural hash of the PrimFunc: equal computations have equal hashes, whatever their names."""
        return func_hash(self.func)

    @property
    def label(self) -> str:
        """One line for people: the name and the shape."""
        dims = ",".join(f"{k}={v}" for k, v in self.shape.items())
        return f"{self.name} {dims}" if dims else self.name
