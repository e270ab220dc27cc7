"""Emptying the caches: what a kernel meets when other work ran before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import psutil
import tvm

from . import peak_kernels
from .arrays import aligned_empty, as_tensor
from .facts import facts
from .target import host_target

_BEYOND_CACHE = 2
"""How many times the last cache is read: once to fill it, once more where the CPU keeps what was there."""
_ACCUMULATORS = 8


@cache
def cache_flush() -> Callable[[], Any]:
    """Return a call that evicts what every core's caches hold; made once a process.

    Each thread reads memory of its own, since each core has first caches of its own; together they read
    ``_BEYOND_CACHE`` times the last cache, from a quarter of the free memory at most.
    """
    here, threads = facts(host_target()), int(tvm.runtime.num_threads())
    lanes = here.lanes("float32")
    wanted = _BEYOND_CACHE * max(here.l3_bytes, threads * here.l2_bytes)
    size = min(wanted, psutil.virtual_memory().available // 4)
    steps = max(1, size // (threads * _ACCUMULATORS * lanes * 4))
    source = aligned_empty((threads, steps, _ACCUMULATORS, lanes), "float32")
    # Pages never written all show one page of zeros.
    source.fill(0)
    tensors = as_tensor(source), as_tensor(aligned_empty((threads, _ACCUMULATORS, lanes), "float32"))
    read = tvm.compile(peak_kernels.read(threads, _ACCUMULATORS, lanes, steps, 1), target=host_target())[
        "main"
    ]
    return lambda: read(*tensors)
