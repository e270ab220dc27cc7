"""A package: a compiled model that runs, is timed and profiled, and travels as one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from math import inf
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import __version__
from ..machine.arrays import as_numpy, as_tensor
from ..machine.errors import InputError, unknown_name
from ..machine.process import TVM_VERSION
from ..machine.signature import ArgSpec
from ..machine.target import as_target, target_text
from ..tuning.measuring.measurement import Timing, measure
from ..tuning.measuring.verification import inputs_for
from ..tuning.records.database import Database
from .lowering.application import apply_records, require_records
from .lowering.choice import Choice
from .lowering.code import compile_code
from .lowering.dump import NO_DUMP, Dump
from .lowering.packing import pack_weights
from .manifest import Manifest
from .model import Model
from .package_file import read_package, require_writable, write_package
from .profiling import ProfileRow, profile

FILL_MODES = ("random", "zeros", "ones")
"""What inputs that are not given hold."""

Inputs = Mapping[str, Any]
"""Arrays by the names of the model's inputs: NumPy, torch or TVM."""


class Package:
    """A compiled model; calls are not thread-safe.

    Parameters
    ----------
    library : VMExecutable or Module
        The compiled or loaded code.
    weights : sequence of tvm.runtime.Tensor
        What ``main`` takes after the inputs.
    manifest : Manifest
        What it computes and where its schedules came from.
    """

    def __init__(self, library: Any, weights: Sequence[Any], manifest: Manifest) -> None:
        self.manifest = manifest
        self._weights = list(weights)
        self._library = library
        self._main = relax.VirtualMachine(library, tvm.cpu())["main"]

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

    def run(self, inputs: Inputs | None = None, fill: str = "random") -> dict[str, np.ndarray]:
        """Run one inference.

        Parameters
        ----------
        inputs : mapping, optional
            All inputs by name; left out, they are filled.
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
        result = self._main(*self._arguments(inputs, fill))
        tensors = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        # An output may be an input or a weight itself: the caller gets a copy.
        return {spec.name: np.array(as_numpy(t)) for spec, t in zip(self.outputs, tensors, strict=True)}

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
        tensors = self._arguments(inputs, fill)
        least_ms = 0.0 if number else 100.0
        timing = Timing(number, repeat, least_ms, budget_s=inf, noise=inf)
        seconds = measure(self._main, tensors, timing).run_secs
        return {
            "package": self.manifest.name,
            "repeat": repeat,
            "number": number,
            "mean_s": mean(seconds),
            "median_s": median(seconds),
            "max_s": max(seconds),
            "min_s": min(seconds),
            "std_s": stdev(seconds) if repeat > 1 else 0.0,
            "threads": tvm.runtime.num_threads(),
        }

    def profile(
        self, inputs: Inputs | None = None, *, repeat: int = 10, fill: str = "random"
    ) -> list[ProfileRow]:
        """Return the time of each function in one inference, the longest first.

        Parameters
        ----------
        inputs, fill
            As for :meth:`run`.
        repeat : int
            Inferences of which the median is taken, after one that warms up.
        """
        _check_counts(1, repeat)
        # A machine of its own: once it has been instrumented, each of its calls goes through Python.
        machine = relax.VirtualMachine(self._library, tvm.cpu())
        return profile(machine, self._arguments(inputs, fill), self.choices, repeat)

    def export(self, path: str | Path) -> Path:
        """Write the package as one file that another process can load without the database.

        Raises
        ------
        InputError
            The file cannot be written there.
        """
        path = require_writable(path)
        if not isinstance(self._library, relax.VMExecutable):
            raise InputError(f"{self.manifest.name} was loaded from a package file; copy that file")
        write_package(path, self._library, self._weights, self.manifest)
        return path

    def _arguments(self, inputs: Inputs | None, fill: str) -> list[Any]:
        """Return the arguments of ``main``: the inputs, checked or filled, and the weights."""
        arrays = filled(self.inputs, fill) if inputs is None else _checked_inputs(self.inputs, inputs)
        return [*(as_tensor(array) for array in arrays), *self._weights]


def compile_model(
    model: Model,
    target: Any = "host",
    database: Database | None = None,
    strict: bool = False,
    output: str | Path | None = None,
    dump: str | Path | None = None,
) -> Package:
    """Compile a model with the best verified record for each function, else the default schedule.

    Parameters
    ----------
    model : Model
        From :func:`~tunesmith.integrate.model.load_model`.
    target : str or tvm.target.Target
        What to compile for.
    database : Database, optional
        Where the records are.
    strict : bool
        Fail where a function has no record.
    output : path, optional
        Where to export the package to; checked before the work.
    dump : path, optional
        A folder for the module after each phase, as text: ``01_imported.py``, ...

    Raises
    ------
    InputError
        The target is unknown, or the output or the dump cannot be written.
    MissingRecordsError
        ``strict``, and a function has no record.
    """
    path = None if output is None else require_writable(output)
    target, dumped = as_target(target), Dump(dump)
    scheduled, choices = apply_records(model.prepared(target, dumped), target, database)
    dumped("schedules", scheduled)
    if strict:
        require_records(choices)
    packed = pack_weights(scheduled)
    dumped("packing", packed)
    package = build_package(model, packed, target, choices, dumped)
    if path is not None:
        package.export(path)
    return package


def load_package(path: str | Path) -> Package:
    """Load a package file; nothing of it is executed but the compiled library.

    Raises
    ------
    InputError
        There is no such file; it is no package, is damaged, or cannot run on this machine.
    """
    return Package(*read_package(path))


def build_package(
    model: Model, mod: Any, target: Any, choices: list[Choice], dump: Dump = NO_DUMP
) -> Package:
    """Compile a module whose functions are as they should be."""
    manifest = Manifest(
        name=model.name,
        inputs=model.inputs,
        outputs=model.outputs,
        target=target_text(target),
        choices=tuple(choices),
        threads=tvm.runtime.num_threads(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tvm_version=TVM_VERSION,
        tunesmith_version=__version__,
    )
    code = compile_code(mod, target, dump)
    return Package(code.executable, code.weights, manifest)


def filled(specs: tuple[ArgSpec, ...], fill: str = "random") -> list[np.ndarray]:
    """Make inputs: random ones are the same every time."""
    if fill not in FILL_MODES:
        raise InputError(f"fill must be one of {', '.join(FILL_MODES)}: {fill!r}")
    if fill == "random":
        return inputs_for(specs, seed=0)
    return [np.full(spec.shape, fill == "ones", np.dtype(spec.dtype)) for spec in specs]


def _checked_inputs(specs: tuple[ArgSpec, ...], inputs: Inputs) -> list[np.ndarray]:
    """Return the inputs in order, if they are all there and fit."""
    names = [spec.name for spec in specs]
    for name in inputs:
        if name not in names:
            raise unknown_name("input", name, names)
    missing = [name for name in names if name not in inputs]
    if missing:
        raise InputError(f"the model needs all of its inputs: {', '.join(missing)} missing")
    return [_checked(spec, inputs[spec.name]) for spec in specs]


def _checked(spec: ArgSpec, array: Any) -> np.ndarray:
    found = as_numpy(array)
    if found.shape != spec.shape or found.dtype.name != spec.dtype:
        raise InputError(
            f"input {spec.name} must be {spec.dtype} of shape {spec.shape}: "
            f"found {found.dtype.name} of shape {found.shape}"
        )
    return found


def _check_counts(number: int, repeat: int) -> None:
    if number < 0 or repeat < 1:
        raise InputError(f"number must be at least 0 and repeat at least 1: number={number}, repeat={repeat}")
