"""Contenders of a comparison: packages and ONNX files, each in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ...machine.errors import InputError
from ...machine.signature import ArgSpec
from ..packaging.loading import package_manifest
from .contender_tasks import ONNX, ContenderJob, Started, peak_bytes, start
from .package import Package

if TYPE_CHECKING:
    from ...tuning.processes.worker import Task, Worker

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Contender:
    """How one side of a comparison did.

    Parameters
    ----------
    name : str
        Its file, or its model's name.
    seconds : tuple of float
        Of one inference, a value a round.
    first_s : float
        Seconds from an empty Python process to its first outputs, imports included.
    peak_bytes : int
        The most memory that its process held, that of mapped files included.
    """

    name: str
    seconds: tuple[float, ...]
    first_s: float
    peak_bytes: int

    @property
    def median_s(self) -> float:
        """Median seconds of one inference."""
        return median(self.seconds)


@dataclass(frozen=True)
class Source:
    """A file that a process of its own runs; ``inputs`` is None where only that process knows them."""

    name: str
    path: str
    inputs: tuple[ArgSpec, ...] | None


def has_onnxruntime() -> bool:
    """Tell whether ONNX Runtime is installed."""
    return find_spec("onnxruntime") is not None


def as_source(contender: Package | str | Path, folder: Path) -> Source:
    """Return the file of a contender; a package that has none is exported to the folder.

    Raises
    ------
    InputError
        There is no such file, it is no package, or ONNX Runtime is not installed.
    """
    if isinstance(contender, Package):
        path = contender.path or contender.export(folder / f"{len(list(folder.iterdir()))}.tsm")
        return Source(contender.manifest.name, str(path), contender.inputs)
    if not str(contender).endswith(ONNX):
        return Source(str(contender), str(contender), package_manifest(contender).inputs)
    if not Path(contender).is_file():
        raise InputError(f"no such model: {contender}")
    if not has_onnxruntime():
        raise InputError(f"{contender} needs ONNX Runtime: pip install 'tunesmith[baselines]'")
    return Source(f"{contender} (ONNX Runtime)", str(contender), None)


class Running:
    """A contender in its process, which is held unless it is its turn."""

    def __init__(self, source: Source, worker: Worker) -> None:
        self.name, self.worker = source.name, worker
        self._source = source

    def start(self, inputs: Sequence[np.ndarray], folder: Path) -> tuple[Started, list[np.ndarray]]:
        """Load the model, run it once, and return what that took and its outputs.

        Raises
        ------
        InputError
            It cannot run.
        """
        folder.mkdir()
        files = []
        for number, array in enumerate(inputs):
            np.save(folder / f"input{number}.npy", array, allow_pickle=False)
            files.append((str(folder / f"input{number}.npy"), array.dtype.name))
        job = ContenderJob(self._source.path, tuple(files), str(folder / "output"))
        started = self._do(start, job)
        count = len(list(folder.glob("output*.npy")))
        return started, [np.load(folder / f"output{i}.npy") for i in range(count)]

    def peak_bytes(self) -> int:
        """Return the most memory that the process held."""
        return int(self._do(peak_bytes, None))

    def _do(self, task: Task, payload: Any) -> Any:
        from ...tuning.processes.worker import WorkerCrash, WorkerError, WorkerTimeout

        try:
            with self.worker.alone():
                return self.worker.call(task, payload, _TIMEOUT_S)
        except (WorkerCrash, WorkerError, WorkerTimeout) as error:
            raise InputError(f"cannot run {self.name}: {' '.join(str(error).split())}") from None
