"""ONNX Runtime on the same file, in a process of its own: two thread pools in one fight for the cores."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ...machine.errors import InputError
from ...machine.process import usable_cpus

_TIMEOUT_S = 600


@dataclass(frozen=True, eq=False)
class Baseline:
    """What ONNX Runtime made of a model.

    Parameters
    ----------
    outputs : dict of str to numpy.ndarray
        ``output_0``, ...
    seconds : tuple of float
        Each of one inference, warm.
    """

    outputs: dict[str, np.ndarray]
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median seconds of one inference."""
        return median(self.seconds)


def has_onnxruntime() -> bool:
    """Tell whether ONNX Runtime is installed."""
    return find_spec("onnxruntime") is not None


def run_onnxruntime(path: str | Path, inputs: Mapping[str, np.ndarray], repeat: int = 20) -> Baseline:
    """Run an ONNX file with ONNX Runtime on as many threads as this process may use.

    Raises
    ------
    InputError
        ONNX Runtime is not installed, or cannot run the model.
    """
    if not has_onnxruntime():
        raise InputError("ONNX Runtime is not installed: pip install 'tunesmith[baselines]'")
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        given, found = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        arrays: dict[str, Any] = {f"input_{i}": array for i, array in enumerate(inputs.values())}
        np.savez(given, **arrays)
        words = [str(path), str(given), str(found), str(repeat), str(usable_cpus()), *inputs]
        command = [sys.executable, "-m", __name__, *words]
        child = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if child.returncode != 0:
            reason = (child.stderr.strip().splitlines() or ["it crashed"])[-1]
            raise InputError(f"ONNX Runtime cannot run {path}: {reason}")
        with np.load(found) as results:
            outputs = {name: results[name] for name in results.files}
    seconds = outputs.pop("seconds")
    return Baseline(outputs, tuple(float(s) for s in seconds))


def _main(path: str, given: str, found: str, repeat: str, threads: str, *names: str) -> None:
    """Run in the child process."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    with np.load(given) as arrays:
        feed = {name: arrays[f"input_{i}"] for i, name in enumerate(names)}
    outputs = session.run(None, feed)
    seconds = []
    for _ in range(int(repeat)):
        start = time.perf_counter()
        session.run(None, feed)
        seconds.append(time.perf_counter() - start)
    np.savez(found, seconds=np.array(seconds), **{f"output_{i}": array for i, array in enumerate(outputs)})


if __name__ == "__main__":
    _main(*sys.argv[1:])
