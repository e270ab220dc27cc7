"""Calls that do nothing but multiply and add in registers: what the peak of a dtype is measured by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import tvm
from tvm.target import codegen

from . import peak_kernels
from .arrays import aligned_empty, as_tensor
from .dot_instructions import DotInstruction, dot_instruction
from .facts import Facts, facts, has_feature
from .target import host_target
from .tile_instructions import ROW_BYTES, TILE_ROWS, TileInstruction, configuration, tile_instruction

ACCUMULATORS = (12, 24)
"""Independent vectors tried: latency times units needs 8 to 10; AVX-512 has room for 24, others for 12."""
_MULTIPLY_ADDS = 3_000_000
"""Vector multiply-adds of a call on each thread: 0.3 ms where two of them end in a cycle."""
_SUM_TILES, _TILE_PRODUCTS = 4, 60_000
"""Tiles of sums that hide each other's latency, and products of tiles of a call: 0.3 ms of 16 cycles each."""
_SECONDS_OF_MEASUREMENT = 0.04
_LEAST_CALLS = 5
_FAST_PERCENTILE = 20
"""Of the times of many short calls: a busy neighbour lengthens some of them, nothing shortens any."""

# Sums that gain their own upper halves times this stay about as they are; its lower half is zero.
_LITTLE = -(2.0**-30)

INTEGER_DTYPE = "int32"
WIDENED_DTYPE = "float32"
BYTE_DTYPES = ("int8", "uint8")


def multiply_add_call(dtype: str) -> tuple[Callable[[], Any], int]:
    """Return a short call that does nothing but multiply and add on all threads, and its operations.

    Whoever times an implementation against the peak times this beside it: the clock drifts.
    """
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    calls = _multiply_add_calls(here, threads, _multiplied_dtype(dtype))
    return max(calls, key=lambda found: found[1] / fast_seconds(found[0]))


def _multiplied_dtype(dtype: str) -> str:
    """Return the type that values of a dtype are multiplied and added in; a byte's own where bytes are."""
    if dtype.startswith(("int", "uint", "bool")):
        return dtype if dtype in BYTE_DTYPES else INTEGER_DTYPE
    if dtype == "bfloat16" and takes_bfloat16():
        return dtype
    return dtype if dtype == "float64" or (dtype == "float16" and has_float16()) else WIDENED_DTYPE


def multiply_add_peak(here: Facts, threads: int, dtype: str) -> float:
    """Measure 10^9 operations a second: the best over the counts of accumulators that fit the registers."""
    calls = _multiply_add_calls(here, threads, dtype)
    return max(operations / fast_seconds(call) / 1e9 for call, operations in calls)


def _multiply_add_calls(here: Facts, threads: int, dtype: str) -> list[tuple[Callable[[], Any], int]]:
    room = here.vector_registers - 2  # x and y take one each
    counts = [count for count in ACCUMULATORS if count <= room]
    tiles = tiles_of(dtype)
    if tiles is not None:
        return [_tile_products(threads, tiles)]
    instruction = _instruction_of(dtype)
    if instruction is not None:
        return [_dot_products(threads, count, instruction) for count in counts]
    summed = INTEGER_DTYPE if dtype in BYTE_DTYPES else dtype
    return [_multiply_adds(threads, count, here.lanes(summed), summed) for count in counts]


def _dot_products(
    threads: int, accumulators: int, instruction: DotInstruction
) -> tuple[Callable[[], Any], int]:
    """Return a call of the instruction with this many accumulators, and its operations."""
    kernel = partial(peak_kernels.dot_products, instruction, threads, accumulators)
    factor = [[3], [1]] if instruction.sums_dtype == INTEGER_DTYPE else [[_LITTLE], [_LITTLE]]
    call, sums = _called(kernel, threads, accumulators, instruction.lanes, instruction.sums_dtype, factor)
    return call, sums * instruction.products


def takes_bfloat16() -> bool:
    """Tell whether an instruction of this machine multiplies bfloat16 as it is."""
    return tiles_of("bfloat16") is not None or _instruction_of("bfloat16") is not None


def _instruction_of(dtype: str) -> DotInstruction | None:
    """Return what sums several products of a dtype on this machine; None where nothing does."""
    if dtype not in (*BYTE_DTYPES, "bfloat16"):
        return None
    return dot_instruction(host_target(), dtype, "int8" if dtype in BYTE_DTYPES else dtype)


def tiles_of(dtype: str) -> TileInstruction | None:
    """Return what multiplies tiles of a dtype, as they are, on this machine; None where nothing does."""
    weight, sums = ("int8", INTEGER_DTYPE) if dtype in BYTE_DTYPES else (dtype, WIDENED_DTYPE)
    found = tile_instruction(dtype, weight, sums)
    if found is None or found.parts > 1 or not has_feature(host_target(), found.feature):
        return None
    return found


def _tile_products(threads: int, instruction: TileInstruction) -> tuple[Callable[[], Any], int]:
    """Return a call that multiplies tiles, and its operations."""
    rounds = _TILE_PRODUCTS // _SUM_TILES
    call = compiled(peak_kernels.tile_products(instruction, threads, _SUM_TILES, rounds))
    shapes = [(TILE_ROWS, ROW_BYTES)] * (_SUM_TILES + 2)
    words = np.array(configuration(shapes), "uint64").view("int64")
    operands = np.zeros((2, TILE_ROWS, ROW_BYTES), "int8")
    result = aligned_empty((threads, _SUM_TILES, TILE_ROWS, instruction.lanes), instruction.sum_dtype)
    tensors = [as_tensor(array) for array in (words, operands, result)]
    products = TILE_ROWS * instruction.lanes * instruction.elements
    return lambda: call(*tensors), 2 * threads * rounds * _SUM_TILES * products


def _multiply_adds(threads: int, accumulators: int, lanes: int, dtype: str) -> tuple[Callable[[], Any], int]:
    """Return a call with this many accumulators, and its operations."""
    kernel = partial(peak_kernels.multiply_add, threads, accumulators, lanes, dtype)
    # A value near 1 keeps the sums finite and normal; integers wrap around.
    factors = [[0.999], [0.001]] if np.dtype(dtype).kind == "f" else [[3], [1]]
    return _called(kernel, threads, accumulators, lanes, dtype, factors)


def _called(
    kernel: Callable[[int], Any],
    threads: int,
    accumulators: int,
    lanes: int,
    dtype: str,
    factors: Sequence[Sequence[float]],
) -> tuple[Callable[[], Any], int]:
    """Return a call of a kernel of so many rounds, and its operations where each sum gains one product."""
    rounds = _MULTIPLY_ADDS // accumulators
    call = compiled(kernel(rounds))
    start = np.linspace(1, 2, accumulators * lanes).reshape(accumulators, lanes).astype(dtype)
    operands = as_tensor(start), as_tensor(np.repeat(np.array(factors), lanes, axis=1).astype(dtype))
    result = as_tensor(aligned_empty((threads, accumulators, lanes), dtype))
    return lambda: call(*operands, result), 2 * threads * rounds * accumulators * lanes


def has_float16() -> bool:
    """Tell whether the CPU computes in float16 itself; where it does not, each step converts to and fro."""
    features = {str(feature) for feature in codegen.llvm_get_cpu_features(host_target())}
    return not features.isdisjoint({"avx512fp16", "fullfp16"})


def compiled(func: Any) -> Any:
    """Compile a kernel for this machine."""
    return tvm.compile(func, target=host_target())["main"]


def fast_seconds(call: Callable[[], Any]) -> float:
    """Time a short call many times; return the time that the fastest fifth of them kept to."""
    call()
    times: list[float] = []
    end = perf_counter() + _SECONDS_OF_MEASUREMENT
    while perf_counter() < end or len(times) < _LEAST_CALLS:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return float(np.percentile(times, _FAST_PERCENTILE))
