"""Proof that a replacement computes what it replaces: equal signatures, equal results on random inputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from ...kernels.operator import Workload
from ...machine.errors import InputError, blamed
from ...machine.signature import ArgSpec
from ...schedules import apply_default
from ...tuning.measuring.cases import CASES, LoadedCase, prepare_cases
from ...tuning.records.compilation import build
from .external import External
from .replacement import Replacement


def require_same(replacement: Replacement, target: Any, tolerance: float | None) -> None:
    """Check that a replacement has the signature of what it replaces, and computes the same.

    Raises
    ------
    InputError
        It has not, or it does not; the message shows where, what came out, what was expected and the error.
    """
    if isinstance(replacement.content, External):
        _require_callable(replacement, replacement.content)
    else:
        require_same_signature(replacement)
    original = replacement.original
    kernel = _runnable(replacement, target)
    with TemporaryDirectory(prefix="tunesmith-") as folder:
        cases = prepare_cases(original, folder)
        if tolerance is not None:
            cases = dataclasses.replace(cases, allowed=tolerance)
        for nth in range(CASES):
            verdict, _ = LoadedCase(cases, nth).check(kernel)
            if not verdict.ok:
                raise InputError(
                    f"nothing is replaced: {replacement.description} does not compute what "
                    f"{replacement.function} does: {verdict.message}"
                )


def require_same_signature(replacement: Replacement) -> None:
    """Check number, shapes and dtypes of a PrimFunc's arguments.

    Raises
    ------
    InputError
        They differ.
    """
    name, wanted = replacement.function, replacement.original.args
    found = Workload(name, {}, "", replacement.content, flops=0).args
    if len(found) != len(wanted):
        raise InputError(
            f"{replacement.description} has {len(found)} arguments; "
            f"{name} has {len(wanted)}: {_listed(wanted)}"
        )
    for number, (has, wants) in enumerate(zip(found, wanted, strict=True)):
        if (has.shape, has.dtype) != (wants.shape, wants.dtype):
            raise InputError(
                f"argument {number} of {replacement.description} is {_listed([has])}; "
                f"{name} has {_listed([wants])} there"
            )


def _require_callable(replacement: Replacement, external: External) -> None:
    """Check that a Python function takes as many arrays as the function has arguments."""
    args = replacement.original.args
    try:
        signature = inspect.signature(external.function)
    except ValueError:
        return  # compiled functions have none
    try:
        signature.bind(*args)
    except TypeError:
        raise InputError(
            f"{external.description} takes {signature}; it is called with {len(args)} arrays, the output of "
            f"{replacement.function} last, and writes that"
        ) from None


def _listed(args: Sequence[ArgSpec]) -> str:
    return ", ".join(f"{arg.name}: {arg.dtype}{list(arg.shape)}" for arg in args)


def _runnable(replacement: Replacement, target: Any) -> Callable[..., Any]:
    """Return what a replacement will run as, on TVM's tensors."""
    content = replacement.content
    if isinstance(content, External):
        return _blamed(content, replacement)
    main = content.with_attr("global_symbol", "main")
    schedule = main if replacement.scheduled else apply_default(main, target)[0]
    return build(schedule, target)["main"]


def _blamed(external: External, replacement: Replacement) -> Callable[..., None]:
    """Return an external function that says in a line what it raised."""
    function = external.on_tensors()

    def call(*tensors: Any) -> None:
        with blamed(f"{external.description} in the place of {replacement.function}", external.function):
            function(*tensors)

    return call
