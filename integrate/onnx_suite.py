"""The ONNX project's backend test suite run against tunesmith, each test in a worker process."""

from __future__ import annotations

import os
import queue
import re
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..machine.errors import InputError
from ..machine.process import usable_cpus
from ..tuning.processes.worker import Worker, WorkerCrash, WorkerError, WorkerTimeout
from ..tuning.processes.worker_group import WorkerGroup
from .importing.errors import (
    ConversionError,
    DataDependentShapeError,
    NotATensorError,
    UnsupportedOperatorError,
    UnsupportedTypeError,
)
from .onnx_backend import TunesmithBackend

PASSED, WRONG, CRASHED, TIMEOUT, FAILED = "passed", "wrong result", "crashed", "timeout", "failed"

OUTCOMES: dict[str, str] = {
    PASSED: "the outputs are as expected",
    "unsupported operator": "TVM's importer does not know the operator, nor what the standard defines it by",
    "unsupported type": "the model computes with a type that TVM cannot compute with",
    "not converted": "TVM's importer knows the operator, but not with these attributes, types or inputs",
    "data-dependent shape": "an extent depends on the values of the inputs, and code is compiled for shapes",
    "no tensor": "an input or output is a sequence, an optional or text",
    WRONG: "the outputs differ from those expected",
    FAILED: "an error in lowering or at run time",
    CRASHED: "the process ended: the signal and what it printed last",
    TIMEOUT: "no answer in time",
}
"""What a test can come to."""

BAD = (WRONG, FAILED, CRASHED, TIMEOUT)
"""Outcomes of a model that was imported, and then did not do what it should."""

KNOWN: dict[str, str] = {
    r"attention_4d_causal_fp16": "the expected values are rounded to float16 after each step, ours "
    "once after each sum: they differ by two units in the last place, and ours are nearer to exact ones",
}
"""Why tests fail that are imported: what TVM computes otherwise, by a pattern of their names."""

_OUTCOME_OF: tuple[tuple[type[Exception], str], ...] = (
    (UnsupportedOperatorError, "unsupported operator"),
    (UnsupportedTypeError, "unsupported type"),
    (ConversionError, "not converted"),
    (DataDependentShapeError, "data-dependent shape"),
    (NotATensorError, "no tensor"),
    (AssertionError, WRONG),
)
_SUFFIX = "_cpu"


@dataclass(frozen=True)
class SuiteRow:
    """What one test of the suite came to.

    Parameters
    ----------
    test : str
        Its name, without the device.
    category : str
        ``NodeModel``, ``SimpleModel``, ``RealModel`` (the light ones), ``PyTorchConvertedModel`` or
        ``PyTorchOperatorModel``.
    operator : str
        What it tests: the operator of a node test, else its category.
    outcome : str
        One of :data:`OUTCOMES`.
    reason : str
        The first line of the error.
    seconds : float
        How long it took.
    """

    test: str
    category: str
    operator: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0


def explanation(row: SuiteRow) -> str:
    """Return the known reason for a test that was imported and failed; empty where there is none."""
    return next((why for pattern, why in KNOWN.items() if re.search(pattern, row.test)), "")


def unexplained(rows: Iterable[SuiteRow]) -> list[SuiteRow]:
    """Return the tests that were imported and then failed for a reason that nobody has found."""
    return [row for row in rows if row.outcome in BAD and not explanation(row)]


def suite_tests() -> dict[str, str]:
    """Return the category of each test of the suite that onnx ships, by the test's name."""
    return {
        name.removesuffix(_SUFFIX): category
        for category, items in _runner()._test_items.items()
        for name in sorted(items)
        if name.endswith(_SUFFIX)
    }


def run_suite(
    names: Iterable[str] | None = None,
    timeout_s: float = 120.0,
    workers: int | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Iterator[SuiteRow]:
    """Run tests of the suite, each in a process that may crash, and yield what each came to.

    Parameters
    ----------
    names : iterable of str, optional
        The tests; all of them if left out.
    timeout_s : float
        After that a test is ended, and counts as a timeout.
    workers : int, optional
        How many processes; as many as CPUs if left out.
    say : callable
        Told what goes wrong as it goes wrong.
    """
    tests = suite_tests()
    wanted = list(tests if names is None else names)
    unknown = [name for name in wanted if name not in tests]
    if unknown:
        raise InputError(
            f"the ONNX backend test suite has no {unknown[0]!r}; its tests are in docs/onnx_support.md"
        )
    operators = _operators()
    count = min(workers or usable_cpus(), len(wanted)) or 1
    with (
        tempfile.TemporaryDirectory() as home,
        WorkerGroup(count, {"ONNX_HOME": home, "TVM_NUM_THREADS": "1"}, ("tvm", __name__)) as group,
        ThreadPoolExecutor(count) as pool,
    ):
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in group.workers:
            idle.put(worker)
        for name, (outcome, reason, seconds) in zip(
            wanted, pool.map(lambda name: _guarded(name, idle, timeout_s), wanted), strict=True
        ):
            if outcome in BAD:
                say(f"{name}: {outcome}: {reason}")
            yield SuiteRow(name, tests[name], operators.get(name, tests[name]), outcome, reason, seconds)


def run_test(name: str) -> tuple[str, str]:
    """Run one test in this process and return its outcome and the reason."""
    item = next(items[name + _SUFFIX] for items in _runner()._test_items.values() if name + _SUFFIX in items)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            item.func(unittest.TestCase())
    except Exception as error:
        outcome = next((o for kind, o in _OUTCOME_OF if isinstance(error, kind)), FAILED)
        return outcome, _reason(error)
    return PASSED, ""


def _guarded(name: str, idle: queue.SimpleQueue[Worker], timeout_s: float) -> tuple[str, str, float]:
    """Run one test in a worker."""
    worker, started = idle.get(), time.monotonic()
    try:
        outcome, reason = worker.call(run_test, name, timeout_s)
    except WorkerTimeout as error:
        outcome, reason = TIMEOUT, str(error)
    except WorkerCrash as error:
        outcome, reason = CRASHED, str(error)
    except WorkerError as error:
        outcome, reason = FAILED, str(error)
    finally:
        idle.put(worker)
    return outcome, reason, time.monotonic() - started


def _reason(error: Exception) -> str:
    """Say on one line what went wrong; of a comparison, how much."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, AssertionError):
        return "; ".join(lines[:4])
    return lines[0] if isinstance(error, InputError) else f"{type(error).__name__}: {lines[0]}"


@cache
def _runner() -> Any:
    """Make onnx's test runner; it computes the expected outputs of the node tests, which takes seconds."""
    os.environ.setdefault("ONNX_HOME", tempfile.gettempdir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        return BackendTest(TunesmithBackend, __name__)


@cache
def _operators() -> dict[str, str]:
    """Return the operator of each node test; that of an expanded one is the operator that it expands."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = {case.name: case.model for case in load_model_tests(kind="node")}
    found = {name: model.graph.node[0].op_type for name, model in models.items() if model is not None}
    return {name: found.get(name.partition("_expanded")[0], op) for name, op in found.items()}
