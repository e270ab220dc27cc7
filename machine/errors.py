"""The one exception type for input that is wrong, and how its message names what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A call or its input is wrong.

    The message is one line that says what is wrong, the value found, and what to do about it.
    The command line prints it without a traceback and exits with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not in a table, with the nearest names that are.

    Parameters
    ----------
    kind : str
        What the name stands for, as a user would call it: "operator", "knob".
    name : str
        The name found.
    known : iterable of str
        The names there are.
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
