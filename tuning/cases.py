"""Test cases of a workload: inputs and expected outputs on disk, made once, read by every worker."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.operator import ArgSpec, Workload
from ..machine.arrays import aligned_copy, aligned_empty, as_tensor
from .verification import (
    Verdict,
    compare,
    expected_output,
    fill_untouched,
    inputs_for,
    workload_tolerance,
)

# Two sets: an output that does not depend on the inputs cannot be right on both.
CASES = 2
_PREFIX = "tunesmith-"


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


def new_folder() -> str:
    """Make a folder for one tuning, and remove those of processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        match = re.fullmatch(rf"{_PREFIX}(\d+)-.*", folder.name)
        if match and folder.is_dir() and not _is_running(int(match[1])):
            shutil.rmtree(folder, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")


def _is_running(process: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def prepare_cases(workload: Workload, folder: str, seed: int | None = None) -> Cases:
    """Draw inputs with fresh entropy (or a given seed), compute what is expected, and write both to disk."""
    cases = Cases(folder, workload.args, workload_tolerance(workload))
    seeds = np.random.SeedSequence(seed).generate_state(CASES)
    Path(folder).mkdir(exist_ok=True)
    for case in range(CASES):
        inputs = inputs_for(workload.inputs, int(seeds[case]), workload.output.dtype)
        for arg, array in enumerate([*inputs, expected_output(workload, inputs)]):
            np.save(cases.file(case, arg), array)
    return cases


class LoadedCase:
    """One test case in memory: tensors to run on, and what they must hold afterwards."""

    def __init__(self, cases: Cases, case: int) -> None:
        self._nth = case
        self._allowed = cases.allowed
        self._names = [a.name for a in cases.args]
        # np.save stores the types of ml_dtypes as raw bytes.
        files = [
            np.load(cases.file(case, i), mmap_mode="r").view(np.dtype(a.dtype))
            for i, a in enumerate(cases.args)
        ]
        self._pristine, self._want = files[:-1], files[-1]
        self._inputs = [aligned_copy(a) for a in self._pristine]
        self._output = aligned_empty(self._want.shape, self._want.dtype)
        self.tensors: list[Any] = [as_tensor(a) for a in (*self._inputs, self._output)]

    def clear_output(self) -> None:
        """Fill the output with what no kernel computes."""
        fill_untouched(self._output, self._nth)

    def verdict(self) -> Verdict:
        """Judge the last run: the output, and that the inputs are what they were."""
        for name, pristine, array in zip(self._names, self._pristine, self._inputs, strict=False):
            if not np.array_equal(pristine.view(np.uint8), array.view(np.uint8)):
                np.copyto(array, pristine)
                return Verdict(False, None, f"the kernel changed its input {name}")
        return compare(self._output, self._want, self._allowed)


@lru_cache(maxsize=1)
def loaded_cases(cases: Cases) -> list[LoadedCase]:
    """Read a workload's test cases; kept until another workload's are read."""
    return [LoadedCase(cases, case) for case in range(CASES)]
