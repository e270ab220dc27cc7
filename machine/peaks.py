"""The machine's limits, measured: multiply-adds per second of each dtype, bytes per second of each memory.

Roofline: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import tvm
from tvm.target import codegen

from . import peak_kernels
from .arrays import aligned_empty, as_tensor
from .cache import cache_folder
from .dot_instructions import DotInstruction, dot_instruction
from .facts import Facts, facts, has_feature, machine_fingerprint
from .target import host_target
from .tile_instructions import (
    ROW_BYTES,
    TILE_ROWS,
    TileInstruction,
    configuration,
    tile_instruction,
)

# The method's version: peaks measured another way are not read back.
_METHOD = 6

_ACCUMULATORS = (12, 24)
"""Independent vectors tried: latency times units needs 8 to 10; AVX-512 has room for 24, others for 12."""
_READ_ACCUMULATORS = 8
_COPY_VECTORS, _COPY_LANES = 4, 8
"""Vectors copied at a time, of 256 bits at most: with those of 512 a Xeon copies 34 GB/s instead of 44."""
_MULTIPLY_ADDS = 3_000_000
"""Vector multiply-adds of a call on each thread: 0.3 ms where two of them end in a cycle."""
_SUM_TILES, _TILE_PRODUCTS = 4, 60_000
"""Tiles of sums that hide each other's latency, and products of tiles of a call: 0.3 ms of 16 cycles each."""
_CACHE_READ_BYTES = 32 * 1024**2
"""Bytes that a thread reads in a call, whichever cache they come from."""
_BEYOND_CACHE = 16
"""How many times what L3 keeps a working set of memory has: of one far away some still hits at 8 times."""
_MEMORY_BYTES_OF_THREAD = 32 * 1024**2
_SECONDS_OF_MEASUREMENT = 0.04
_LEAST_CALLS = 5
_FAST_PERCENTILE = 20
"""Of the times of many short calls: a busy neighbour lengthens some of them, nothing shortens any."""

_INTEGER_DTYPE = "int32"
_WIDENED_DTYPE = "float32"
_BYTE_DTYPES = ("int8", "uint8")


@dataclass(frozen=True)
class Peaks:
    """What this machine can do at most, with all of its threads.

    Parameters
    ----------
    gflops : mapping of str to float
        For each dtype, 10^9 operations a second of multiply-adds held in registers; one is two operations.
        float16 and bfloat16 operands may be widened once and summed in float32, so theirs is at least
        float32's; bfloat16 is multiplied by a `TileInstruction` where the CPU has one. Products of int8 and
        uint8 by int8 are summed by a `TileInstruction` or a `DotInstruction` where the CPU has one, and
        multiplied and added in int32 where it has none.
    memory_gbps : float
        10^9 bytes a second from memory: the better of reading, and of copying past the caches with both
        directions counted.
    l1_gbps, l2_gbps, l3_gbps : float
        10^9 bytes a second read from each cache.
    threads : int
        Threads that measured them.
    """

    gflops: Mapping[str, float]
    memory_gbps: float
    l1_gbps: float
    l2_gbps: float
    l3_gbps: float
    threads: int

    def seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        """Return the roofline: ``max(flops / peak, bytes / bandwidth)`` in seconds.

        A dtype that was not measured counts as the nearest one that was: integers as int32, others as
        float32.
        """
        nearest = _INTEGER_DTYPE if dtype.startswith(("int", "uint", "bool")) else _WIDENED_DTYPE
        gflops = self.gflops.get(dtype, self.gflops[nearest])
        return max(flops / (gflops * 1e9), bytes_moved / (self.memory_gbps * 1e9))


def roofline_seconds(flops: float, bytes_moved: float, dtype: str) -> float:
    """Return the least time in seconds in which this machine can do a computation (see `Peaks.seconds`)."""
    return measured_peaks().seconds(flops, bytes_moved, dtype)


def measured_peaks(refresh: bool = False) -> Peaks:
    """Return this machine's peaks: those kept in the cache folder, else measured now in about 2 s.

    Parameters
    ----------
    refresh : bool
        Measure again, and keep that.
    """
    if refresh:
        _peaks_of_process.cache_clear()
        _store(_measure())
    return _peaks_of_process()


@cache
def _peaks_of_process() -> Peaks:
    """Read the peaks that were kept, else measure and keep them."""
    kept = _load()
    if kept is None:
        kept = _measure()
        _store(kept)
    return kept


def _cache_file() -> Path:
    return cache_folder() / f"peaks-{_METHOD}-{machine_fingerprint()}-{tvm.runtime.num_threads()}threads.json"


def _load() -> Peaks | None:
    """Read the peaks of this machine and thread count; None where there are none that can be read."""
    try:
        fields = json.loads(_cache_file().read_text(encoding="utf-8"))
        return Peaks(**{**fields, "gflops": {dtype: float(rate) for dtype, rate in fields["gflops"].items()}})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _store(peaks: Peaks) -> None:
    """Keep the peaks, whole or not at all; a folder that cannot be written costs a line on stderr."""
    path = _cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(asdict(peaks), file)
        os.replace(file.name, path)
    except OSError as error:
        print(
            f"tunesmith: cannot keep the measured peaks in {path.parent}: {error.strerror}", file=sys.stderr
        )


def _measure() -> Peaks:
    """Measure everything."""
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    widened = _multiply_add_peak(here, threads, _WIDENED_DTYPE)
    gflops = {
        "float32": widened,
        "float64": _multiply_add_peak(here, threads, "float64"),
        "float16": max(widened, _multiply_add_peak(here, threads, "float16") if _has_float16() else 0.0),
        # TVM computes bfloat16 in float32; only tiles take it as it is.
        "bfloat16": _multiply_add_peak(here, threads, "bfloat16") if _tiled("bfloat16") else widened,
        **{dtype: _multiply_add_peak(here, threads, dtype) for dtype in (*_BYTE_DTYPES, _INTEGER_DTYPE)},
    }
    l1, l2, l3 = (
        _read_bandwidth(here, threads, size // 2)
        for size in (here.l1_bytes, here.l2_bytes, here.kept_by_l3 // threads)
    )
    return Peaks(gflops, _memory_bandwidth(here, threads), l1, l2, l3, threads)


def _has_float16() -> bool:
    """Tell whether the CPU computes in float16 itself; where it does not, each step converts to and fro."""
    features = {str(feature) for feature in codegen.llvm_get_cpu_features(host_target())}
    return not features.isdisjoint({"avx512fp16", "fullfp16"})


def multiply_add_call(dtype: str) -> tuple[Callable[[], Any], int]:
    """Return a short call that does nothing but multiply and add on all threads, and its operations.

    Whoever times an implementation against the peak times this beside it: the clock drifts.
    """
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    calls = _multiply_add_calls(here, threads, _multiplied_dtype(dtype))
    return max(calls, key=lambda found: found[1] / _fast_seconds(found[0]))


def _multiplied_dtype(dtype: str) -> str:
    """Return the type that values of a dtype are multiplied and added in; a byte's own where bytes are."""
    if dtype.startswith(("int", "uint", "bool")):
        return dtype if dtype in _BYTE_DTYPES else _INTEGER_DTYPE
    if dtype == "bfloat16" and _tiled(dtype) is not None:
        return dtype
    return dtype if dtype == "float64" or (dtype == "float16" and _has_float16()) else _WIDENED_DTYPE


def _multiply_add_peak(here: Facts, threads: int, dtype: str) -> float:
    """Measure 10^9 operations a second: the best over the counts of accumulators that fit the registers."""
    calls = _multiply_add_calls(here, threads, dtype)
    return max(operations / _fast_seconds(call) / 1e9 for call, operations in calls)


def _multiply_add_calls(here: Facts, threads: int, dtype: str) -> list[tuple[Callable[[], Any], int]]:
    room = here.vector_registers - 2  # x and y take one each
    counts = [count for count in _ACCUMULATORS if count <= room]
    tiled = _tiled(dtype)
    if tiled is not None:
        return [_tile_products(threads, tiled)]
    instruction = dot_instruction(host_target(), dtype, "int8") if dtype in _BYTE_DTYPES else None
    if instruction is not None:
        return [_dot_products(threads, count, instruction) for count in counts]
    summed = _INTEGER_DTYPE if dtype in _BYTE_DTYPES else dtype
    return [_multiply_adds(threads, count, here.lanes(summed), summed) for count in counts]


def _dot_products(
    threads: int, accumulators: int, instruction: DotInstruction
) -> tuple[Callable[[], Any], int]:
    """Return a call of the instruction with this many accumulators, and its operations."""
    kernel = partial(peak_kernels.dot_products, instruction, threads, accumulators)
    call, sums = _called(kernel, threads, accumulators, instruction.lanes, _INTEGER_DTYPE)
    return call, sums * instruction.products


def _tiled(dtype: str) -> TileInstruction | None:
    """Return what multiplies tiles of a dtype, as they are, on this machine; None where nothing does."""
    weight, sums = ("int8", _INTEGER_DTYPE) if dtype in _BYTE_DTYPES else (dtype, _WIDENED_DTYPE)
    found = tile_instruction(dtype, weight, sums)
    if found is None or found.parts > 1 or not has_feature(host_target(), found.feature):
        return None
    return found


def _tile_products(threads: int, instruction: TileInstruction) -> tuple[Callable[[], Any], int]:
    """Return a call that multiplies tiles, and its operations."""
    rounds = _TILE_PRODUCTS // _SUM_TILES
    call = _compiled(peak_kernels.tile_products(instruction, threads, _SUM_TILES, rounds))
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
    return _called(kernel, threads, accumulators, lanes, dtype)


def _called(
    kernel: Callable[[int], Any], threads: int, accumulators: int, lanes: int, dtype: str
) -> tuple[Callable[[], Any], int]:
    """Return a call of a kernel of so many rounds, and its operations where each sum gains one product."""
    rounds = _MULTIPLY_ADDS // accumulators
    call = _compiled(kernel(rounds))
    start = np.linspace(1, 2, accumulators * lanes).reshape(accumulators, lanes).astype(dtype)
    # A value near 1 keeps the sums finite and normal; integers wrap around.
    factors = np.array([[0.999], [0.001]] if np.dtype(dtype).kind == "f" else [[3], [1]])
    operands = as_tensor(start), as_tensor(np.repeat(factors, lanes, axis=1).astype(dtype))
    result = as_tensor(aligned_empty((threads, accumulators, lanes), dtype))
    return lambda: call(*operands, result), 2 * threads * rounds * accumulators * lanes


def _read_bandwidth(here: Facts, threads: int, working_set: int) -> float:
    """Measure 10^9 bytes a second read over and over from a working set of so many bytes a thread."""
    lanes = here.lanes("float32")
    steps = max(1, working_set // (_READ_ACCUMULATORS * lanes * 4))
    source = aligned_empty((threads, steps, _READ_ACCUMULATORS, lanes), "float32")
    source.fill(0)
    rounds = max(1, _CACHE_READ_BYTES * threads // source.nbytes)
    return _read_rate(source, rounds)


def _memory_bandwidth(here: Facts, threads: int) -> float:
    """Measure 10^9 bytes a second on arrays far beyond the caches: the better of reading and copying."""
    lanes = here.lanes("float32")
    wanted = max(_BEYOND_CACHE * here.kept_by_l3, threads * _MEMORY_BYTES_OF_THREAD)
    size = min(wanted, psutil.virtual_memory().available // 4)
    block = threads * _READ_ACCUMULATORS * lanes * 4
    memory = aligned_empty((2, size // (2 * block), threads, _READ_ACCUMULATORS, lanes), "float32")
    memory.fill(0)
    reading = _read_rate(memory.reshape(threads, -1, _READ_ACCUMULATORS, lanes), 1)
    return max(reading, _copy_rate(memory[0], memory[1]))


def _read_rate(source: np.ndarray, rounds: int) -> float:
    """Time reading all of a (threads, steps, accumulators, lanes) array this many times, in GB/s."""
    threads, steps, accumulators, lanes = source.shape
    call = _compiled(peak_kernels.read(threads, accumulators, lanes, steps, rounds))
    tensor, result = as_tensor(source), as_tensor(aligned_empty((threads, accumulators, lanes), "float32"))
    return rounds * source.nbytes / _fast_seconds(lambda: call(tensor, result)) / 1e9


def _copy_rate(source: np.ndarray, target: np.ndarray) -> float:
    """Time a copy of a (steps, threads, accumulators, lanes) array past the caches, in GB/s both ways."""
    _, threads, _, widest = source.shape
    lanes = min(widest, _COPY_LANES)
    shape = (threads, source.size // (threads * _COPY_VECTORS * lanes), _COPY_VECTORS, lanes)
    call = _compiled(peak_kernels.copy(*shape))
    tensors = as_tensor(source.reshape(shape)), as_tensor(target.reshape(shape))
    return 2 * source.nbytes / _fast_seconds(lambda: call(*tensors)) / 1e9


def _compiled(func: Any) -> Any:
    return tvm.compile(func, target=host_target())["main"]


def _fast_seconds(call: Callable[[], Any]) -> float:
    """Time a short call many times; return the time that the fastest fifth of them kept to."""
    call()
    times: list[float] = []
    end = perf_counter() + _SECONDS_OF_MEASUREMENT
    while perf_counter() < end or len(times) < _LEAST_CALLS:
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return float(np.percentile(times, _FAST_PERCENTILE))
