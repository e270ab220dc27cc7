"""What every kind of import results in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Imported:
    """A Relax module of static shapes.

    Parameters
    ----------
    mod : IRModule
        With a function ``main``.
    names : tuple of str
        What a user calls the parameters of ``main``, in their order.
    weights : mapping
        The values of those parameters that are weights; the others are constants in the module.
    """

    mod: Any
    names: tuple[str, ...]
    weights: Mapping[str, Any] = field(default_factory=dict)
