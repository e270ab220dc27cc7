"""Objects made of functions in a form that a worker can read: pickled with the code of a user's modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import cloudpickle


def pickled_with_code(value: Any, functions: Iterable[Callable[..., Any] | None]) -> bytes:
    """Pickle a value that is made of functions.

    Functions from a script or a file of one's own are pickled with their module's code: it may not be
    importable elsewhere.
    """
    plain = [getattr(function, "func", function) for function in functions if function]  # that of a partial
    modules = [sys.modules.get(function.__module__) for function in plain]
    own = {m for m in modules if m and m.__name__ != "__main__" and not m.__name__.startswith("tunesmith.")}
    with ExitStack() as stack:
        for module in own:
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        pickled: bytes = cloudpickle.dumps(value)
    return pickled
