"""The model study: whole models against ONNX Runtime, and whether what is promised was shown."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from ...machine.errors import InputError
from ...tuning.records.database import Database
from ..model import load_model
from ..packaging.build import compile_model
from ..samples import sample, sample_names, sample_path
from .comparison import compare
from .outputs import compare_outputs

MODELS = ("light_resnet50", "light_squeezenet", "light_vgg19")
"""The samples that are studied where no others are named."""

LATENCY, TUNED_LATENCY, MEMORY = 1.25, 1.0, 1.1
"""What is promised at most, as parts of ONNX Runtime's: latency by defaults, with records, peak memory."""

COMPILE_S, FIRST_S = 60.0, 1.0
"""What is promised at most: seconds to load and compile, and from an empty process to the first output."""


@dataclass(frozen=True)
class ModelRow:
    """How a compiled model does against ONNX Runtime.

    Parameters
    ----------
    model : str
        Its name.
    compile_s : float
        Seconds to load and compile it.
    median_s, library_s : float
        Median seconds of one inference, ours and ONNX Runtime's.
    ratio, low, high : float
        Our time as a part of ONNX Runtime's: median of the rounds' ratios and its 95 % confidence interval.
    first_s, library_first_s : float
        Seconds from an empty process to the first output.
    peak_bytes, library_peak_bytes : int
        The most memory that a process held.
    max_error : float or None
        Of the outputs against ONNX Runtime's, relative to each value and the output's root mean square.
    equal : bool
        Whether the outputs are equal to ONNX Runtime's and, of a sample, to the ones that come with it.
    goal, met : str, bool
        What is promised, and whether that was shown.
    """

    model: str
    compile_s: float
    median_s: float
    library_s: float
    ratio: float
    low: float
    high: float
    first_s: float
    library_first_s: float
    peak_bytes: int
    library_peak_bytes: int
    max_error: float | None
    equal: bool
    goal: str
    met: bool


def model_path(model: str | Path) -> Path:
    """Return the file of a sample of this name, or the path itself.

    Raises
    ------
    InputError
        There is neither.
    """
    if str(model) in sample_names():
        return sample_path(str(model))
    if not Path(model).is_file():
        raise InputError(f"no such model file: {model}; samples are {', '.join(sample_names())}")
    return Path(model)


def study_model(
    model: str | Path,
    database: Database | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    rounds: int = 15,
    say: Callable[[str], object] = print,
) -> ModelRow:
    """Compile an ONNX model and run it in turns with ONNX Runtime, each in a process of its own.

    Parameters
    ----------
    model : str or path
        The name of a sample of the onnx package, or an ONNX file.
    database : Database, optional
        Where records are; without one all schedules are defaults.
    input_shapes : mapping, optional
        The shapes of inputs with symbolic dimensions.
    rounds : int
        How often each is timed.
    say : callable
        Told what is being done.

    Raises
    ------
    InputError
        There is no such model, it cannot be imported, or ONNX Runtime is not installed.
    """
    path = model_path(model)
    known = sample(str(model)) if str(model) in sample_names() else None
    say(f"{path.stem}: load and compile")
    began = time.perf_counter()
    package = compile_model(load_model(path, input_shapes), database=database)
    compile_s = time.perf_counter() - began
    say(f"{path.stem}: {rounds} rounds in turns with ONNX Runtime")
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        file = package.export(Path(folder, "model.tsm"))
        found = compare(path, file, known.inputs if known else None, rounds=rounds)
    expected = known is None or _as_expected(package, known.inputs, known.outputs)
    ours, theirs = found.after, found.before
    goal = LATENCY if database is None else TUNED_LATENCY
    met = (
        found.ok
        and expected
        and 1 / found.speedup <= goal
        and ours.peak_bytes <= MEMORY * theirs.peak_bytes
        and compile_s <= COMPILE_S
        and ours.first_s <= FIRST_S
    )
    errors = [check.max_error for check in found.outputs if check.max_error is not None]
    low, high = found.interval
    return ModelRow(
        model=path.stem,
        compile_s=compile_s,
        median_s=ours.median_s,
        library_s=theirs.median_s,
        ratio=1 / found.speedup,
        low=1 / high,
        high=1 / low if low else float("inf"),
        first_s=ours.first_s,
        library_first_s=theirs.first_s,
        peak_bytes=ours.peak_bytes,
        library_peak_bytes=theirs.peak_bytes,
        max_error=max(errors, default=None),
        equal=found.ok and expected,
        goal=f"outputs equal, latency <= {goal:g}x, memory <= {MEMORY:g}x, "
        f"compiled in {COMPILE_S:g} s, first output in {FIRST_S:g} s",
        met=met,
    )


def mean_ratio(rows: Sequence[ModelRow]) -> float:
    """Return the geometric mean of the rows' ratios."""
    return exp(mean(log(row.ratio) for row in rows))


def _as_expected(package: Any, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> bool:
    return all(check.ok for check in compare_outputs(package.run(inputs), outputs))
