"""What MetaSchedule's features of a store are called, in the order in which it gives them.

Sizes and counts are logarithms: log2(1 + x).

References
----------
apache/tvm, ``src/s_tir/meta_schedule/feature_extractor/per_store_feature.cc`` (its groups 1 to 5).
"""

from __future__ import annotations

from collections.abc import Iterator

_OPERATIONS = ("mad", "add_sub", "mul", "div_mod", "cmp", "math_func", "other_func")
_POSITIONS = (
    "none",
    "inner_spatial",
    "middle_spatial",
    "outer_spatial",
    "inner_reduce",
    "middle_reduce",
    "outer_reduce",
    "mixed",
)
_GPU = ("is_gpu", "block_x", "block_y", "block_z", "thread_x", "thread_y", "thread_z", "vthread")
_BUFFER = (
    "is_read",
    "is_written",
    "is_read_and_written",
    "bytes",
    "unique_bytes",
    "lines",
    "unique_lines",
    "is_reused_in_loop",
    "is_reused_serially",
    "is_not_reused",
    "reuse_distance_iterations",
    "reuse_distance_bytes",
    "reuse_count",
    "bytes_per_reuse",
    "unique_bytes_per_reuse",
    "lines_per_reuse",
    "unique_lines_per_reuse",
    "stride",
)
# MetaSchedule's defaults: buffers of a store, the most lines touched first, and points of the curve.
_BUFFERS = 5
_CURVE = 10


def _names() -> Iterator[str]:
    yield from (f"{kind}_{operation}" for kind in ("float", "int") for operation in _OPERATIONS)
    yield from ("bool_op", "select_op")
    for kind in ("vectorized", "unrolled", "parallel"):
        yield from (f"{kind}_{what}" for what in ("loops", "product", "length"))
        yield from (f"{kind}_position_{position}" for position in _POSITIONS)
    yield from _GPU
    yield from (f"buffer_{i}_{what}" for i in range(_BUFFERS) for what in _BUFFER)
    yield from (f"arithmetic_intensity_{i}" for i in range(_CURVE))
    yield from ("alloc_bytes", "alloc_product", "alloc_outer_product", "alloc_inner_product")
    yield from ("outer_product", "outer_loops", "auto_unroll_max_step")


FEATURE_NAMES = tuple(_names())
"""A name for each column of a store's features."""
