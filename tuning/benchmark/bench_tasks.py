"""What benchmark workers do: prepare one implementation, to be timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cloudpickle
import numpy as np

from ...machine.multiply_adds import multiply_add_call
from ..measuring.cases import CASES, Cases, loaded_cases
from ..measuring.library import LoadedKernel
from ..measuring.measurement import seconds_of, warm_seconds
from ..measuring.verdict import compare
from .baselines import Unavailable, Variant, variants
from .turn_tasks import make_ready


@dataclass(frozen=True)
class Prepared:
    """An implementation that is ready.

    Parameters
    ----------
    verified : bool
        Whether its output is right.
    call_s : float
        About how long one call takes.
    note : str
        What is worth knowing; why it cannot run, where ``call_s`` is infinite.
    """

    verified: bool
    call_s: float
    note: str = ""


@dataclass(frozen=True)
class KernelJob:
    """A library that tunesmith built, to be timed."""

    library: str
    cases: Cases
    note: str = ""


@dataclass(frozen=True)
class BaselineJob:
    """Another library's implementation of an operator; ``libraries`` is pickled with its code."""

    library: str
    libraries: bytes
    shape: Mapping[str, Any]
    cases: Cases


@dataclass(frozen=True)
class LibraryTurn:
    """A turn of one of several libraries in one process: so many calls."""

    library: str
    cases: Cases
    number: int


# A call that lasts longer needs no second look at how long it lasts.
_SLOW_S = 0.1


def prepare_kernel(job: KernelJob) -> Prepared:
    """Load a library of tunesmith's, and judge its output on every test case."""
    kernel = LoadedKernel(job.library)
    verdicts = []
    for case in loaded_cases(job.cases):
        verdict, call_s = case.check(kernel)
        verdicts.append(verdict)
    call, tensors = kernel.prepared(loaded_cases(job.cases)[0].tensors)
    make_ready(call, tensors)
    wrong = next((v.message for v in verdicts if not v.ok), "")
    warm_s = call_s if call_s > _SLOW_S else warm_seconds(call, tensors)
    return Prepared(not wrong, warm_s, wrong or job.note)


def time_library(job: LibraryTurn) -> float:
    """Time a library in its turn: a call that does not count, then the mean of some, in seconds."""
    call, tensors = _loaded(job.library, job.cases)
    call(*tensors)
    return seconds_of(call, tensors, job.number)


@cache
def _loaded(library: str, cases: Cases) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Load a library once; all of them share the first test case's arrays."""
    return LoadedKernel(library).prepared(loaded_cases(cases)[0].tensors)


def prepare_baseline(job: BaselineJob) -> Prepared:
    """Set up another library's implementation; of several variants the fastest."""
    try:
        found = [_judged(job, case) for case in range(CASES)]
    except Unavailable as error:
        return Prepared(False, float("inf"), str(error))
    options = [v for v, _ in found[0]]
    seconds = [warm_seconds(v.call, ()) for v in options]
    best = int(np.argmin(seconds))
    make_ready(options[best].call)
    return Prepared(all(judged[best][1] for judged in found), seconds[best], options[best].note)


def prepare_peak(dtype: str) -> tuple[int, float]:
    """Set up nothing but multiply-adds; return the operations of a call and about how long it takes."""
    call, operations = multiply_add_call(dtype)
    make_ready(call)
    return operations, warm_seconds(call, ())


def _judged(job: BaselineJob, case: int) -> list[tuple[Variant, bool]]:
    """Return a library's variants on one test case, each with whether its output is right."""
    arrays = [np.load(job.cases.file(case, i)).view(np.dtype(a.dtype)) for i, a in enumerate(job.cases.args)]
    found = variants(job.library, cloudpickle.loads(job.libraries), job.shape, arrays[:-1])
    return [(v, compare(v.to_array(v.call()), arrays[-1], job.cases.allowed).ok) for v in found]
