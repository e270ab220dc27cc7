"""Emptying the caches: what a kernel meets when other work ran before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import psutil
import tvm

from . import peak_kernels
from .arrays import aligned_empty, as_tensor
from .facts import facts
from .peaks import measured_peaks
from .target import host_target

_SHARERS = Path("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_map")
_ACCUMULATORS = 8

# How many times the last cache is read: at 4 times half of it would still hit.
_BEYOND_CACHE = 8


@cache
def cache_flush() -> Callable[[], Any]:
    """Return a call that evicts what every core's caches hold; made once a process.

    Each thread reads memory of its own, since each core has first caches of its own; together they read
    so many times the last cache that nothing is left of what was there, from a quarter of the free memory
    at most.
    """
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    lanes = here.lanes("float32")
    steps = max(1, _bytes_read() // (threads * _ACCUMULATORS * lanes * 4))
    source = aligned_empty((threads, steps, _ACCUMULATORS, lanes), "float32")
    # Pages that were never written are all one and the same.
    source.fill(0)
    tensors = as_tensor(source), as_tensor(aligned_empty((threads, _ACCUMULATORS, lanes), "float32"))
    kernel = peak_kernels.read(threads, _ACCUMULATORS, lanes, steps, 1)
    read = tvm.compile(kernel, target=host_target())["main"]
    return lambda: read(*tensors)


def flush_seconds() -> float:
    """Return about how long emptying the caches takes: what is read, at the bandwidth of memory."""
    return _bytes_read() / (measured_peaks().memory_gbps * 1e9)


def _bytes_read() -> int:
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    last = max(here.l3_bytes * ceil(threads / _sharers(threads)), here.l2_bytes * threads)
    return int(min(_BEYOND_CACHE * last, psutil.virtual_memory().available // 4))


def _sharers(threads: int) -> int:
    """Count the CPUs that share one last cache; all threads where the system does not tell."""
    try:
        return max(1, int(_SHARERS.read_text().replace(",", ""), 16).bit_count())
    except (OSError, ValueError):
        return threads
