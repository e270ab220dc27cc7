"""The tensor intrinsics of the schedules here, which traces name."""

from __future__ import annotations

from . import dot_product, transposition, weight_groups
from .passes import streaming


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names: TVM knows only those registered in this process."""
    transposition.register_intrinsics(trace)
    streaming.register_intrinsics(trace)
    dot_product.register_intrinsics(trace)
    weight_groups.register_intrinsics(trace)
