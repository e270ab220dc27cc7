"""The one exception type for input that is wrong, and how its message names what was probably meant."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import CodeType
from typing import Any

from .interrupts import raise_kept_interrupt


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


def last_line(error: BaseException) -> str:
    """Return the line of an error that says what is wrong: TVM's come with the whole program before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1].removeprefix("Error message: ") if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def blamed(what: str, function: Callable[..., Any]) -> Iterator[None]:
    """Turn whatever a user's own function raises into one line that names the line of its file.

    Parameters
    ----------
    what : str
        What the function is, as a user would call it: "the schedule 'tiles'".
    function : callable
        The function that is called inside; those of tunesmith itself are not a user's.

    Raises
    ------
    InputError
        The function raised something else.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise_kept_interrupt()
        own = getattr(function, "func", function)  # that of a partial
        if str(getattr(own, "__module__", "")).startswith("tunesmith."):
            raise
        raise InputError(f"{what} failed{_place(own, error)}: {last_line(error)}") from error


def _place(function: Callable[..., Any], error: Exception) -> str:
    """Name the deepest line of the function's own file that an error passed through.

    A function that another process has sent has lost its code's file name, and kept that of its module.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    file = _file_of(function.__globals__, code)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if _file_of(frame.f_globals, frame.f_code) == file]
    return f" in {Path(file).name}, line {lines[-1] if lines else code.co_firstlineno}"


def _file_of(names: Mapping[str, Any], code: CodeType) -> str:
    return str(names.get("__file__") or code.co_filename)
