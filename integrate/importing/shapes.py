"""Input shapes: symbolic dimensions are bound before anything is compiled, and named where they are not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...machine.errors import InputError, unknown_name

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each input by its name."""

Values = Mapping[str, Any]
"""The values of inputs by their names: arrays or numbers."""

Dims = Mapping[str, tuple[int | str, ...]]
"""Declared shapes: a number where a dimension is fixed, its name where it is symbolic, "?" if it has none."""

# What an unbound dimension is in the example that an error gives.
_EXAMPLE_EXTENT = 1
_ONE_VALUE = re.compile(r"([^\s:]\S*?)\s*:\s*(\[[^\]]*\]|[^\s,:\[\]]+)(?:\s*,\s*|\s+|$)")
_ONE_SHAPE = re.compile(r"([^\s:]\S*?)\s*:\s*\[([^\]]*)\]\s*,?\s*")


def bound_shapes(declared: Dims, given: Shapes) -> dict[str, tuple[int, ...]]:
    """Bind every symbolic dimension: from the given shapes, also where another input has the same dimension.

    Raises
    ------
    InputError
        A shape is given for an unknown input or contradicts the model, or a dimension stays unbound.
    """
    extents: dict[str, int] = {}
    for name, shape in given.items():
        if name not in declared:
            raise unknown_name("input", name, declared)
        _check_fits(name, declared[name], shape, extents)
    bound = {name: given.get(name) or _substituted(dims, extents) for name, dims in declared.items()}
    unbound = [f"{d!r} of input {name!r}" for name, dims in bound.items() for d in dims if isinstance(d, str)]
    if unbound:
        text = " ".join(
            f"{n}:{_example(dims)}" for n, dims in bound.items() if any(isinstance(d, str) for d in dims)
        )
        raise InputError(
            f'symbolic dimension {", ".join(unbound)} is not bound; give --input-shapes "{text}"'
        )
    return {name: tuple(int(d) for d in dims) for name, dims in bound.items()}


def _check_fits(
    name: str, dims: tuple[int | str, ...], shape: tuple[int, ...], extents: dict[str, int]
) -> None:
    """Compare a given shape with the declared one and note what its named dimensions are bound to."""
    fits = len(dims) == len(shape)
    for dim, extent in zip(dims, shape, strict=False):
        named = isinstance(dim, str) and dim != "?"
        fits = fits and (extents.setdefault(str(dim), extent) if named else dim) in (extent, "?")
    if not fits:
        wanted = ",".join(str(extents.get(str(d), d)) for d in dims)
        raise InputError(f"input {name!r} has the shape [{wanted}] in this model, not {list(shape)}")


def _substituted(dims: tuple[int | str, ...], extents: Mapping[str, int]) -> tuple[int | str, ...]:
    return tuple(extents.get(d, d) if isinstance(d, str) else d for d in dims)


def _example(dims: tuple[int | str, ...]) -> str:
    return "[" + ",".join(str(_EXAMPLE_EXTENT if isinstance(d, str) else d) for d in dims) + "]"


def parse_input_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read ``"a:[1,3,224,224] b:[1,2]"``.

    Raises
    ------
    InputError
        The text has another form, or an extent is no positive integer.
    """
    found = _items(_ONE_SHAPE, text)
    if not found:
        raise InputError(f'input shapes are written "name:[1,3,224,224] other:[1,2]": {text!r}')
    return {m.group(1): _extents(m.group(1), m.group(2)) for m in found}


def parse_input_values(text: str) -> dict[str, Any]:
    """Read ``"rate:16000 sizes:[3,-1]"``: numbers, true and false, or lists of them.

    Raises
    ------
    InputError
        The text has another form.
    """
    wrong = InputError(f'input values are written "name:16000 other:[3,-1]": {text!r}')
    found = _items(_ONE_VALUE, text)
    if not found:
        raise wrong
    try:
        return {m.group(1): json.loads(m.group(2)) for m in found}
    except json.JSONDecodeError:
        raise wrong from None


def _items(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return the items that a text consists of; none where anything else is in it."""
    found = list(pattern.finditer(text.strip()))
    return found if "".join(m.group(0) for m in found) == text.strip() else []


def _extents(name: str, text: str) -> tuple[int, ...]:
    words = [w.strip() for w in text.split(",")] if text.strip() else []
    if not all(w.isdecimal() and int(w) > 0 for w in words):
        raise InputError(f"extents are positive integers: {name}:[{text}]")
    return tuple(int(w) for w in words)
