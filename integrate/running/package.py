"""A package: a compiled model that runs, is timed and profiled, and travels as one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from statistics import mean, median, stdev
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ...machine.arrays import as_numpy, as_tensor
from ...machine.errors import InputError, last_line
from ...machine.runtime import thread_count, virtual_machine
from ...machine.signature import ArgSpec
from ...tuning.measuring.measurement import Timing, measure
from ..lowering.choice import Choice
from ..packaging.loading import read_package
from ..packaging.manifest import Manifest
from .inputs import Inputs, called_with, filled, named
from .profiling import ProfileRow, profile

if TYPE_CHECKING:
    from .torch_module import PackageModule


class Package:
    """A compiled model.

    It may be called from several threads: calls wait for each other, since each uses all of the process's
    cores. For inferences side by side, load the package in several processes; they share the weights.

    Parameters
    ----------
    library : Module
        The compiled code, loaded.
    weights : iterable of Tensor
        What ``main`` takes after the inputs.
    manifest : Manifest
        What it computes and where its schedules came from.
    executable : VMExecutable, optional
        What can be exported; a loaded package has none.
    path : Path, optional
        The file that it was loaded from.
    """

    def __init__(
        self,
        library: Any,
        weights: Iterable[Any],
        manifest: Manifest,
        executable: Any = None,
        path: Path | None = None,
    ) -> None:
        self.manifest, self.path = manifest, path
        self._weights = list(weights)
        self._library, self._executable = library, executable
        self._main = self._machine()["main"]
        # One machine has one stack of frames.
        self._turn = Lock()

    @property
    def inputs(self) -> tuple[ArgSpec, ...]:
        """What :meth:`run` takes."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[ArgSpec, ...]:
        """What :meth:`run` returns."""
        return self.manifest.outputs

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The schedule of each function, and why it got that one."""
        return self.manifest.choices

    def __call__(self, *arrays: Any, **by_name: Any) -> Any:
        """Run one inference.

        Parameters
        ----------
        *arrays, **by_name
            The inputs, in the model's order or by name: NumPy arrays, torch or TVM tensors, or any with
            DLPack. They are read in place where they are contiguous, writable and start at a multiple of 64
            bytes, and copied otherwise; they are never written.

        Returns
        -------
        numpy.ndarray or tuple of numpy.ndarray
            The output, or all of them where there are several; whatever the inputs are.

        Raises
        ------
        InputError
            An input is missing, unknown, given twice, or of another shape or dtype.
        """
        outputs = tuple(self.run(called_with(self.inputs, arrays, by_name)).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Inputs | None = None, fill: str = "random") -> dict[str, np.ndarray]:
        """Run one inference.

        Parameters
        ----------
        inputs : mapping, optional
            All inputs by name, as for a call; left out, they are filled.
        fill : str
            ``random``, ``zeros`` or ``ones``: what the inputs hold if none are given.

        Returns
        -------
        dict of str to numpy.ndarray
            The outputs: ``output_0``, ``output_1``, ...

        Raises
        ------
        InputError
            An input is missing, unknown, or of another shape or dtype.
        """
        call, arguments = self.ready(inputs, fill)
        with self._turn:
            result = call(*arguments)
        return {spec.name: y for spec, y in zip(self.outputs, self.as_arrays(result), strict=True)}

    def ready(self, inputs: Inputs | None = None, fill: str = "random") -> tuple[Any, list[Any]]:
        """Return the compiled function and its arguments, to be called many times without any overhead.

        Such calls do not wait for others: one at a time.

        Parameters
        ----------
        inputs, fill
            As for :meth:`run`.
        """
        arrays = filled(self.inputs, fill) if inputs is None else named(self.inputs, inputs)
        return self._main, [*(as_tensor(array) for array in arrays), *self._weights]

    @staticmethod
    def as_arrays(result: Any) -> list[np.ndarray]:
        """Return copies of what the compiled function returns: an output may be an input or a weight."""
        tensors = list(result) if isinstance(result, Sequence) else [result]
        return [np.array(as_numpy(tensor)) for tensor in tensors]

    def time(
        self, inputs: Inputs | None = None, *, number: int = 1, repeat: int = 10, fill: str = "random"
    ) -> dict[str, Any]:
        """Time inferences after a warm-up.

        Parameters
        ----------
        inputs, fill
            As for :meth:`run`.
        number : int
            Inferences averaged in one repetition; 0 takes as many as last 100 ms.
        repeat : int
            Repetitions, each a value of its own.

        Returns
        -------
        dict
            ``package, repeat, number, mean_s, median_s, max_s, min_s, std_s, threads``.
        """
        _check_counts(number, repeat)
        call, arguments = self.ready(inputs, fill)
        least_ms = 0.0 if number else 100.0
        timing = Timing(number, repeat, least_ms, budget_s=inf, noise=inf)
        with self._turn:
            seconds = measure(call, arguments, timing).run_secs
        return {
            "package": self.manifest.name,
            "repeat": repeat,
            "number": number,
            "mean_s": mean(seconds),
            "median_s": median(seconds),
            "max_s": max(seconds),
            "min_s": min(seconds),
            "std_s": stdev(seconds) if repeat > 1 else 0.0,
            "threads": thread_count(),
        }

    def profile(
        self, inputs: Inputs | None = None, *, repeat: int = 10, fill: str = "random"
    ) -> list[ProfileRow]:
        """Return the time of each function in one inference, the longest first.

        The row ``(runtime)`` is what is left of an inference after its functions.

        Parameters
        ----------
        inputs, fill
            As for :meth:`run`.
        repeat : int
            Inferences of which the median is taken, after one that warms up.
        """
        _check_counts(1, repeat)
        # A machine of its own: once it has been instrumented, each of its calls goes through Python.
        with self._turn:
            call, arguments = self.ready(inputs, fill)
            return profile(call, self._machine(), arguments, self.choices, repeat)

    def export(self, path: str | Path) -> Path:
        """Write the package as one file that another process can load without the database.

        Raises
        ------
        InputError
            The file cannot be written there; what was there before is still there.
        """
        from ..packaging.writing import require_writable, write_package

        path = require_writable(path)
        if self._executable is None:
            raise InputError(f"{self.manifest.name} was loaded from a package file; copy that file")
        write_package(path, self._executable, self._weights, self.manifest)
        return path

    def as_torch_module(self) -> PackageModule:
        """Return a ``torch.nn.Module`` that takes and returns torch tensors, for inference.

        Raises
        ------
        InputError
            PyTorch is not installed.
        """
        try:
            from .torch_module import PackageModule
        except ImportError:
            raise InputError("PyTorch is not installed: pip install 'tunesmith[baselines]'") from None
        return PackageModule(self)

    def __repr__(self) -> str:
        """Return the signature."""
        sides = (", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in side) for side in self._sides())
        return f"<Package {self.manifest.name} ({') -> ('.join(sides)})>"

    def _sides(self) -> tuple[Sequence[ArgSpec], Sequence[ArgSpec]]:
        return self.inputs, self.outputs

    def _machine(self) -> Any:
        try:
            return virtual_machine(self._library)
        except (AttributeError, RuntimeError, ValueError) as error:
            raise InputError(
                f"{self.manifest.name} cannot run in this process: {last_line(error)}; "
                "register the functions that its model calls before it is loaded"
            ) from error


def load_package(path: str | Path) -> Package:
    """Load a package file; nothing of it is executed but the compiled library.

    Raises
    ------
    InputError
        There is no such file; it is no package, is damaged, or cannot run on this machine.
    """
    return Package(*read_package(path), path=Path(path))


def _check_counts(number: int, repeat: int) -> None:
    if number < 0 or repeat < 1:
        raise InputError(f"number must be at least 0 and repeat at least 1: number={number}, repeat={repeat}")
