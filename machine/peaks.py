"""The machine's limits, measured: multiply-adds per second of each dtype, bytes per second of each memory.

Roofline: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import psutil
import tvm

from . import peak_kernels
from .arrays import aligned_empty, as_tensor
from .cache import cache_folder
from .facts import Facts, facts, machine_fingerprint
from .multiply_adds import (
    BYTE_DTYPES,
    INTEGER_DTYPE,
    WIDENED_DTYPE,
    compiled,
    fast_seconds,
    has_float16,
    multiply_add_peak,
    takes_bfloat16,
)
from .target import host_target

# The method's version: peaks measured another way are not read back.
_METHOD = 7

_READ_ACCUMULATORS = 8
_COPY_VECTORS, _COPY_LANES = 4, 8
"""Vectors copied at a time, of 256 bits at most: with those of 512 a Xeon copies 34 GB/s instead of 44."""
_CACHE_READ_BYTES = 32 * 1024**2
"""Bytes that a thread reads in a call, whichever cache they come from."""
_BEYOND_CACHE = 16
"""How many times what L3 keeps a working set of memory has: of one far away some still hits at 8 times."""
_MEMORY_BYTES_OF_THREAD = 32 * 1024**2


@dataclass(frozen=True)
class Peaks:
    """What this machine can do at most, with all of its threads.

    Parameters
    ----------
    gflops : mapping of str to float
        For each dtype, 10^9 operations a second of multiply-adds held in registers; one is two operations.
        float16 and bfloat16 operands may be widened once and summed in float32, so theirs is at least
        float32's. Products of bfloat16, and of int8 and uint8 by int8, are summed by a `TileInstruction` or
        a `DotInstruction` where the CPU has one; bytes are multiplied and added in int32 where it has none.
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
        nearest = INTEGER_DTYPE if dtype.startswith(("int", "uint", "bool")) else WIDENED_DTYPE
        gflops = self.gflops.get(dtype, self.gflops[nearest])
        return max(flops / (gflops * 1e9), bytes_moved / (self.memory_gbps * 1e9))

    def or_better(self, other: Peaks) -> Peaks:
        """Return these limits, or the others where those are higher."""
        mine, others = asdict(self), asdict(other)
        rates = {name: max(mine[name], others[name]) for name in mine if name != "gflops"}
        gflops = {dtype: max(rate, other.gflops.get(dtype, 0.0)) for dtype, rate in self.gflops.items()}
        return Peaks(gflops=gflops, **rates)


def roofline_seconds(flops: float, bytes_moved: float, dtype: str) -> float:
    """Return the least time in seconds in which this machine can do a computation (see `Peaks.seconds`)."""
    return measured_peaks().seconds(flops, bytes_moved, dtype)


def measured_peaks(refresh: bool = False) -> Peaks:
    """Return this machine's peaks: those kept in the cache folder, else measured now in about 2 s.

    Parameters
    ----------
    refresh : bool
        Measure again, and keep the better of each: what else runs can only take from a limit.
    """
    if refresh:
        kept, found = _load(), _measure()
        found = found if kept is None else found.or_better(kept)
        _store(found)
        _peaks_of_process.cache_clear()
        return found
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
    widened = multiply_add_peak(here, threads, WIDENED_DTYPE)
    gflops = {
        "float32": widened,
        "float64": multiply_add_peak(here, threads, "float64"),
        "float16": max(widened, multiply_add_peak(here, threads, "float16") if has_float16() else 0.0),
        # TVM computes bfloat16 in float32; only such instructions take it as it is.
        "bfloat16": multiply_add_peak(here, threads, "bfloat16") if takes_bfloat16() else widened,
        **{dtype: multiply_add_peak(here, threads, dtype) for dtype in (*BYTE_DTYPES, INTEGER_DTYPE)},
    }
    l1, l2, l3 = (
        _read_bandwidth(here, threads, size // 2)
        for size in (here.l1_bytes, here.l2_bytes, here.kept_by_l3 // threads)
    )
    return Peaks(gflops, _memory_bandwidth(here, threads), l1, l2, l3, threads)


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
    call = compiled(peak_kernels.read(threads, accumulators, lanes, steps, rounds))
    tensor, result = as_tensor(source), as_tensor(aligned_empty((threads, accumulators, lanes), "float32"))
    return rounds * source.nbytes / fast_seconds(lambda: call(tensor, result)) / 1e9


def _copy_rate(source: np.ndarray, target: np.ndarray) -> float:
    """Time a copy of a (steps, threads, accumulators, lanes) array past the caches, in GB/s both ways."""
    _, threads, _, widest = source.shape
    lanes = min(widest, _COPY_LANES)
    shape = (threads, source.size // (threads * _COPY_VECTORS * lanes), _COPY_VECTORS, lanes)
    call = compiled(peak_kernels.copy(*shape))
    tensors = as_tensor(source.reshape(shape)), as_tensor(target.reshape(shape))
    return 2 * source.nbytes / fast_seconds(lambda: call(*tensors)) / 1e9
