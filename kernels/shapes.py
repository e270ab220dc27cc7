"""Read a shape as it is written on the command line."""

from __future__ import annotations

from ..machine.errors import InputError


def parse_shape(text: str) -> dict[str, int | str]:
    """Turn ``m=1024,n=1024,k=1024`` into a mapping; a value that is no integer stays text (``layout=NCHW``).

    Whether an operator has these dimensions, and allows these values, is for ``Operator.complete`` to say.

    Raises
    ------
    InputError
        A part is not NAME=VALUE, or a name is given twice.
    """
    shape: dict[str, int | str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name.isidentifier() or not value:
            raise InputError(
                f"a shape is written NAME=VALUE,NAME=VALUE, as in m=64,n=64,k=64: {part!r} in {text!r}"
            )
        if name in shape:
            raise InputError(f"a dimension is given once: {name} is given twice in {text!r}")
        shape[name] = _number(value)
    return shape


def _number(value: str) -> int | str:
    """Read an integer, with a sign if it has one; leave anything else as text."""
    try:
        return int(value)
    except ValueError:
        return value
