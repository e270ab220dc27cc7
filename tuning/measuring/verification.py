"""Verification: what kernels are run on, what they must compute, and how exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, prod, sqrt
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_walk

from ...kernels.operator import Ranges, Workload
from ...machine.errors import InputError, blamed
from ...machine.signature import ArgSpec
from ...schedules.analysis import root_block, schedule_to_read

# Tolerance in rounding errors: see `tolerance`.
_ROUNDINGS = 8
# Integers that are summed in their own type stay this small.
_SMALL_INTEGER = 8
# What outputs hold before a kernel runs: NaN where the type has it, and for every second set of inputs (the
# expected output may hold NaN itself) and for integers a value that no test data leads to.
_SENTINEL = -112.0


def inputs_for(
    args: Sequence[ArgSpec],
    seed: int,
    output_dtype: str | None = None,
    index_limits: Mapping[str, int] = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
) -> list[np.ndarray]:
    """Draw random inputs of the right kind for each dtype.

    Floating-point values are uniform in [-1, 1): both signs, so that wrong signs and lost terms show,
    and sums of products stay near the square root of their length, far from any overflow. Integers
    whose sums have a type of at least four times their width use their full range, since saturating
    instructions are wrong only there; others stay within ±8.

    Parameters
    ----------
    args : sequence of ArgSpec
        The arguments that are read.
    seed : int
        Equal seeds draw equal inputs.
    output_dtype : str or None
        The type the results are summed in.
    index_limits : mapping of str to int
        Arguments that are positions in others, and how many positions there are: see `index_limits`.
    ranges : mapping of str to (float, float)
        Bounds of arguments that are not drawn as above.
    """
    rng = np.random.default_rng(seed)
    sum_bits = 0 if output_dtype is None else 8 * np.dtype(output_dtype).itemsize
    return [_draw(rng, arg, sum_bits, index_limits.get(arg.name), ranges.get(arg.name)) for arg in args]


def inputs_of(workload: Workload, seed: int, nth: int = 0) -> list[np.ndarray]:
    """Draw a workload's inputs: see `inputs_for`. Sets with odd ``nth`` vary where the workload says how."""
    limits = index_limits(workload.func)
    inputs = inputs_for(workload.inputs, seed, workload.output.dtype, limits, workload.ranges)
    if workload.vary is not None and nth % 2:
        workload.vary(*inputs)
    return inputs


def _draw(
    rng: np.random.Generator,
    arg: ArgSpec,
    sum_bits: int,
    positions: int | None,
    bounds: tuple[float, float] | None,
) -> np.ndarray:
    dtype = np.dtype(arg.dtype)
    if positions is not None:
        return rng.integers(0, min(positions, np.iinfo(dtype).max), arg.shape, dtype=dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, arg.shape).astype(np.bool_)
    if dtype.kind not in "iu":
        low, high = bounds or (-1.0, 1.0)
        return rng.uniform(low, high, arg.shape).astype(dtype)
    if bounds is not None:
        return rng.integers(int(bounds[0]), int(bounds[1]), arg.shape, dtype=dtype)
    if 4 * 8 * dtype.itemsize <= sum_bits:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, arg.shape, dtype=dtype, endpoint=True)
    low = 0 if dtype.kind == "u" else -_SMALL_INTEGER
    return rng.integers(low, _SMALL_INTEGER, arg.shape, dtype=dtype, endpoint=True)


def fill_untouched(output: np.ndarray, nth: int) -> None:
    """Fill an output so that elements which a kernel does not write are found.

    NaN for even ``nth``, a sentinel for odd ``nth`` and for integers: an element that should be NaN
    and one that should equal the sentinel are both told from one never written.
    """
    if output.dtype.kind in "iub":
        output[...] = (
            nth % 2
            if output.dtype.kind == "b"
            else np.array(_SENTINEL + nth).astype(np.int64).astype(output.dtype)
        )
    else:
        output[...] = np.nan if nth % 2 == 0 else _SENTINEL


def index_limits(func: Any) -> dict[str, int]:
    """Return a PrimFunc's arguments that are positions in other arrays, and how many positions there are.

    ``{"i": 10}`` for ``out[n] = table[i[n]]`` with a table of ten elements.
    """
    arguments = list(func.params)
    limits: dict[str, int] = {}

    def look(access: Any) -> None:
        array = access.source if isinstance(access, TensorLoad) else access.buffer
        for extent, index in zip(array.shape, access.indices, strict=True):
            loads: list[Any] = []
            structural_walk(index, [(TensorLoad, loads.append)])
            for name in (str(load.source.name) for load in loads if load.source in arguments):
                limits[name] = min(int(extent), limits.get(name, int(extent)))

    structural_walk(func.body, [((TensorLoad, tirx.BufferStore), look)])
    return limits


def tolerance(dtype: str, reduction_length: int) -> float:
    """Return the error allowed, relative to the expected value plus the output's root mean square.

    Summing K products of values in [-1, 1) in a type with rounding unit u makes K rounding errors, each
    of the size of u times a partial sum. Partial sums grow like sqrt(k) (random signs), the errors add up
    like a random walk: about 0.24 u K for one output, 1.2 u K for the worst of a million, while the
    outputs' root mean square is sqrt(K)/3. Sums of positive terms err by 2.9 u sqrt(K) of their value by
    the same reckoning. 8 u sqrt(K) of both covers each of them twice over, in any order of summation,
    and is below what one lost term changes up to K of some thousands in float32. Integers are exact.

    Parameters
    ----------
    dtype : str
        The output's type; sums are assumed to be in this type or a wider one.
    reduction_length : int
        How many terms one output sums up.
    """
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        return 0.0
    unit: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]  # ml_dtypes leaves it untyped
    return _ROUNDINGS * float(unit.eps) / 2 * sqrt(max(1, reduction_length))


def reduction_length(func: Any) -> int:
    """Count the terms that one output of a PrimFunc sums up, over all its reductions one after another.

    Where a reduction's length varies, as that of an adaptive pool's windows, it is an upper bound.
    """
    return max(1, sum(terms for terms, _ in _reductions(func)))


def _reductions(func: Any) -> list[tuple[int, str]]:
    """Return how many terms each reduction of a PrimFunc has, and the type it sums them in."""
    sch = schedule_to_read(func)
    ranges = sym.Analyzer()

    def below(parent: Any) -> Iterable[tuple[int, str]]:
        for child in sch.get_child_blocks(parent):
            block, axes = sch.get(child), []
            for axis in block.iter_vars:
                if axis.iter_type == tirx.IterVar.CommReduce:
                    axes.append(int(ranges.const_int_bound(axis.dom.extent).max_value))
                ranges.bind(axis.var, axis.dom)
            if axes:
                yield prod(axes), str(block.writes[0].source.dtype)
            yield from below(child)

    root = root_block(sch)
    return [] if root is None else list(below(root))


def workload_tolerance(workload: Workload) -> float:
    """Return the error allowed in a workload's output: see `tolerance`.

    Where sums are in a wider type than the output's, that of the sums, and that of one term for the output.
    """
    out, reductions = workload.output.dtype, _reductions(workload.func)
    terms = max(1, sum(terms for terms, _ in reductions))
    of_sums = max((tolerance(dtype, terms) for _, dtype in reductions), default=inf)
    return min(tolerance(out, terms), tolerance(out, 1) + of_sums)


def expected_output(workload: Workload, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Compute the right output: by the reference, else by the workload's own unscheduled PrimFunc."""
    if workload.reference is not None:
        return _by_reference(workload, workload.reference, inputs)
    from ...machine.arrays import Kernel
    from ..records.compilation import arguments, build

    result: np.ndarray = Kernel(build(workload.func, "host"), arguments(workload))(*inputs)
    return result


def _by_reference(
    workload: Workload, reference: Callable[..., np.ndarray], inputs: Sequence[np.ndarray]
) -> np.ndarray:
    """Call the reference; what it returns must have the output's shape, and takes its type."""
    with blamed(f"the reference of {workload.name}", reference):
        found = np.asarray(reference(*inputs), np.dtype(workload.output.dtype), order="C")
    if found.shape != workload.output.shape:
        raise InputError(
            f"the reference of {workload.name} returns an array of shape {found.shape}; "
            f"the output {workload.output.name} is {workload.output.shape}"
        )
    return found
