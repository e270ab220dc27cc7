"""Test cases of a workload: inputs and expected outputs on disk, made once, read by every worker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.fresh_memory import without_zeros
from ...machine.interrupts import uninterrupted
from ...machine.signature import ArgSpec
from .guards import GuardedArray
from .measurement import seconds_of
from .verdict import Expected, Verdict
from .verification import expected_output, fill_untouched, inputs_of, workload_tolerance

# An output that does not depend on the inputs cannot be right on two; what depends on a few values is seldom
# right on three.
CASES = 3
# A kernel that takes longer is run once on each.
_SLOW_S = 0.05


@dataclass(frozen=True)
class Cases:
    """Where a workload's test cases lie.

    Parameters
    ----------
    folder : str
        The folder with one file an array.
    args : tuple of ArgSpec
        The arguments, the output last.
    allowed : float
        The tolerance.
    """

    folder: str
    args: tuple[ArgSpec, ...]
    allowed: float

    def file(self, case: int, arg: int) -> Path:
        """Return the file of one argument of one case."""
        return Path(self.folder) / f"case{case}_{arg}.npy"


def prepare_cases(workload: Workload, folder: str, seed: int | None = None) -> Cases:
    """Draw inputs with fresh entropy (or a given seed), compute what is expected, and write both to disk."""
    cases = Cases(folder, workload.args, workload_tolerance(workload))
    seeds = np.random.SeedSequence(seed).generate_state(CASES)
    for case in range(CASES):
        inputs = inputs_of(workload, int(seeds[case]), case)
        arrays = [*inputs, expected_output(workload, inputs)]
        try:
            Path(folder).mkdir(exist_ok=True)
            for arg, array in enumerate(arrays):
                # Ctrl-C within makes NumPy say that the file is no path.
                with uninterrupted():
                    np.save(cases.file(case, arg), array)
        except OSError as error:
            raise InputError(
                f"cannot write the test cases of {workload.label} to {folder}: {error.strerror or error}; "
                "free space there, or set TMPDIR to another folder"
            ) from error
    return cases


class LoadedCase:
    """One test case in memory: tensors to run on, and what they must hold afterwards.

    Parameters
    ----------
    cases : Cases
        Where the case lies.
    nth : int
        Which of them it is.
    device : tvm.runtime.Device or None
        Where the kernels run: None shares this process's memory with them; to a device, also to one of a
        remote session, arrays are copied and back.

    Attributes
    ----------
    tensors : list of tvm.runtime.Tensor
        What a kernel is called with, the output last.
    """

    def __init__(self, cases: Cases, nth: int, device: Any = None) -> None:
        self._nth = nth
        self._names = [a.name for a in cases.args]
        # np.save stores the types of ml_dtypes as raw bytes.
        files = [
            np.load(cases.file(nth, i), mmap_mode="r").view(np.dtype(a.dtype))
            for i, a in enumerate(cases.args)
        ]
        self._pristine, self._expected = files[:-1], Expected(files[-1], cases.allowed)
        self._arrays = [GuardedArray(a.shape, a.dtype, nth, device) for a in cases.args]
        for array, content in zip(self._arrays, self._pristine, strict=False):
            np.copyto(array.array, content)
            array.push()
        self._output = self._arrays[-1]
        self.tensors = [array.tensor for array in self._arrays]

    def clear_output(self) -> None:
        """Fill the output with what no kernel computes."""
        fill_untouched(self._output.array, self._nth)
        self._output.push()

    def verdict(self) -> Verdict:
        """Judge what is there now: the output, the inputs, and that nothing beside them was written."""
        damage = self._damage()
        return Verdict(False, None, damage) if damage else self._expected.compare(self._output.array)

    def check(
        self, kernel: Callable[..., Any], hopeless_s: float = inf, deadline_s: float = inf
    ) -> tuple[Verdict, float]:
        """Run a kernel and judge it, and where that is quick, run it again.

        The schedule fixes the order of every sum, so that two runs compute the same bits. Where they do not,
        threads race, or what another run left in memory was read.

        Parameters
        ----------
        kernel : callable
            Called as ``kernel(*tensors)``.
        hopeless_s : float
            Seconds of a run after which no other one is made.
        deadline_s : float
            Seconds after which this process dies of SIGALRM if the first run has not ended.

        Returns
        -------
        Verdict, float
            What became of it, and how many seconds the faster of its runs took.
        """
        self.clear_output()
        with alarm(deadline_s), without_zeros():
            seconds = seconds_of(kernel, self.tensors)
        verdict = self.verdict()
        if not verdict.ok or check_runs(seconds) == CASES or seconds > hopeless_s:
            return verdict, seconds
        first = self._output.array.copy()
        self.clear_output()
        seconds = min(seconds, seconds_of(kernel, self.tensors))
        difference = self._damage() or _difference(first, self._output.array)
        return Verdict(False, None, difference) if difference else verdict, seconds

    def _damage(self) -> str:
        """Say what was written that must not be, and put it right for the next kernel."""
        found = []
        for name, array in zip(self._names, self._arrays, strict=True):
            array.pull()
            if where := array.mend_zones():
                found.append(f"the kernel wrote outside {name}: {where}")
        for name, array, pristine in zip(self._names, self._arrays, self._pristine, strict=False):
            if not _same(array.array, pristine):
                np.copyto(array.array, pristine)
                found.append(f"the kernel changed its input {name}")
        if found:
            for array in self._arrays:
                array.push()
        return "; ".join(found)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Let this process die of SIGALRM where it is still in here after so many seconds.

    A kernel cannot be interrupted otherwise; there is no alarm for infinite seconds.
    """
    if seconds < inf:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether arrays hold the same bits: NaN is the same as NaN, and -0 not as 0."""
    return np.array_equal(_bytes(one), _bytes(other))


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _difference(first: np.ndarray, second: np.ndarray) -> str:
    """Say where two outputs differ; empty where they do not."""
    if _same(first, second):
        return ""
    unlike = (_bytes(first) != _bytes(second)).reshape(-1, first.itemsize).any(1)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(unlike)), first.shape))
    values = f"{first[at]}, then {second[at]}"
    return f"two runs on the same input differ in {unlike.sum()} elements, first at {at}: {values}"


def check_runs(call_s: float) -> int:
    """Return how often checking runs a right kernel of which one call takes about so many seconds."""
    return CASES if call_s >= _SLOW_S else 2 * CASES


@lru_cache(maxsize=1)
def loaded_cases(cases: Cases) -> list[LoadedCase]:
    """Read a workload's test cases; kept until another workload's are read."""
    return [LoadedCase(cases, case) for case in range(CASES)]
