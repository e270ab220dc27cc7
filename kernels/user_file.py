"""Load a user's own operator from ``FILE.py:NAME``."""

from __future__ import annotations

import sys
import traceback
from hashlib import sha1
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ..machine.errors import InputError, unknown_name
from ..machine.process import load_backends
from .operator import Operator


def load_operator(place: str) -> Operator:
    """Run a user's Python file and return the operator it defines.

    The file is trusted: it runs with the rights of this process, and is read anew at every call.

    Parameters
    ----------
    place : str
        ``FILE.py:NAME``, where NAME is a variable that holds an ``Operator``.

    Raises
    ------
    InputError
        There is no such file or name, the name holds something else, or the file fails when it is run.
    """
    file, _, name = place.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"a user's operator is written FILE.py:NAME: {place!r}")
    found = _names_in(file)
    if name not in found:
        raise unknown_name(f"name in {file}", name, [k for k, v in found.items() if isinstance(v, Operator)])
    if not isinstance(found[name], Operator):
        raise InputError(f"{file}:{name} must be a tunesmith.Operator: it is a {type(found[name]).__name__}")
    return found[name]


def operators_in(file: str) -> dict[str, Operator]:
    """Run a user's Python file and return every operator it defines, by the name of its variable.

    Raises
    ------
    InputError
        There is no such file, it fails when it is run, or it defines no operator.
    """
    found = {name: value for name, value in _names_in(file).items() if isinstance(value, Operator)}
    if not found:
        raise InputError(f"{file} defines no operator: give a variable of it a tunesmith.Operator")
    return found


def _names_in(file: str) -> dict[str, Any]:
    path = Path(file).resolve()
    if not path.is_file():
        raise InputError(f"no such file: {file}; write FILE.py:NAME with a path from {Path.cwd()}")
    return vars(_run(path, file))


def _run(path: Path, shown: str) -> ModuleType:
    """Run a file as a module that ``sys.modules`` knows, as dataclasses and TVMScript need it."""
    name = f"tunesmith_user_{path.stem}_{sha1(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = module_from_spec(spec)
    sys.modules[name] = module
    # The file may use them: whoever wrote it had imported TVM in the plain way.
    load_backends()
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _failure(error, path, shown) from error
    return module


def _failure(error: Exception, path: Path, shown: str) -> InputError:
    """Name the user's line that failed: the deepest one in that file."""
    what = f"{type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]
    what = str(error) if isinstance(error, InputError) else what
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return InputError(f"{shown}, line {error.lineno}: SyntaxError: {error.msg}")
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = f", line {lines[-1]}" if lines else ""
    return InputError(f"{shown}{line}: {what}")
