"""The tensor intrinsics of the schedules here, which traces name."""

from __future__ import annotations

from . import streaming, transposition
from .dot_product import DOT_PRODUCTS, INTERLEAVING, register_dot_products


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names: TVM knows only those registered in this process."""
    transposition.register_intrinsics(trace)
    streaming.register_intrinsics(trace)
    if DOT_PRODUCTS in trace or INTERLEAVING in trace:
        register_dot_products()
