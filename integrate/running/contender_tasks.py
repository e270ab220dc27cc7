"""What the processes of a comparison do: load a model, run it once, then time it in turns.

Little is imported here: what each of them needs is a part of its memory and of its time to the first
inference.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...machine.process import import_tvm, usable_cpus
from ...tuning.benchmark.turn_tasks import make_ready

ONNX = ".onnx"


@dataclass(frozen=True)
class ContenderJob:
    """A file to run, the inputs as ``.npy`` files in its order, their dtypes, and where the outputs go."""

    path: str
    inputs: tuple[tuple[str, str], ...]
    outputs: str


@dataclass(frozen=True)
class Started:
    """What a contender took, in seconds: to its first outputs from nothing, and about how long for a call."""

    first_s: float
    call_s: float


def start(job: ContenderJob) -> Started:
    """Load a model and run it."""
    began = time.perf_counter()
    ready = _onnxruntime if job.path.endswith(ONNX) else _package
    call, arguments, arrays = ready(job)
    outputs = arrays(call(*arguments))
    first_s = time.perf_counter() - began
    import numpy as np

    for number, output in enumerate(outputs):
        np.save(f"{job.outputs}{number}.npy", output, allow_pickle=False)
    make_ready(call, arguments)
    from ...tuning.measuring.measurement import warm_seconds

    return Started(first_s, warm_seconds(call, arguments))


def peak_bytes(_: None = None) -> int:
    """Return the most memory that this process ever held: its own and what it has mapped of files."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


Ready = tuple[Callable[..., Any], Sequence[Any], Callable[[Any], Sequence[Any]]]
"""A function, its arguments, and what makes arrays of its result."""


def _package(job: ContenderJob) -> Ready:
    import_tvm("tvm_ffi")
    from .package import load_package

    package = load_package(job.path)
    given = dict(zip((spec.name for spec in package.inputs), _read(job), strict=True))
    call, arguments = package.ready(given)
    return call, arguments, package.as_arrays


def _onnxruntime(job: ContenderJob) -> Ready:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cpus()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"])
    feed = dict(zip((entry.name for entry in session.get_inputs()), _read(job), strict=True))
    return session.run, (None, feed), list


def _read(job: ContenderJob) -> list[Any]:
    """Read the inputs; bfloat16 and its like lose their name in a file."""
    import ml_dtypes  # noqa: F401  # by importing it, NumPy learns their names
    import numpy as np

    return [np.load(file).view(np.dtype(dtype)) for file, dtype in job.inputs]
