"""Real models that need no download: those that the onnx package ships for its backend tests."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ..machine.errors import unknown_name
from .importing.onnx_file import declared_inputs, read_onnx

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@dataclass(frozen=True, eq=False)
class Sample:
    """A model with one input and the output that it should give.

    Parameters
    ----------
    path : Path
        The ONNX file.
    inputs : dict of str to numpy.ndarray
        By the names of the model's inputs.
    outputs : dict of str to numpy.ndarray
        ``output_0``, ...: computed once by the onnx project.
    """

    path: Path
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def sample_names() -> list[str]:
    """Return the models there are: ``light_resnet50``, ..."""
    return sorted(path.stem for path in _FOLDER.glob("light_*.onnx"))


def sample_path(name: str) -> Path:
    """Return the file of a model.

    Raises
    ------
    InputError
        There is no such model.
    """
    if name not in sample_names():
        raise unknown_name("sample model", name, sample_names())
    return _FOLDER / f"{name}.onnx"


def sample(name: str) -> Sample:
    """Return a model with its input and expected output.

    The input is what onnx's test runner makes: ``x.flat[i] = i / x.size``. The weights of these models are
    constants of one value each, so that the files are small.

    Raises
    ------
    InputError
        There is no such model.

    References
    ----------
    ``generate_dummy_data`` in onnx/backend/test/runner.
    """
    path = sample_path(name)
    shapes = declared_inputs(read_onnx(path))
    inputs = {n: _ramp(tuple(int(d) for d in dims)) for n, dims in shapes.items()}
    files = sorted(_FOLDER.glob(f"{name}_output_*.pb"))
    outputs = {f"output_{i}": numpy_helper.to_array(onnx.load_tensor(file)) for i, file in enumerate(files)}
    return Sample(path, inputs, outputs)


def _ramp(shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(prod(shape)).reshape(shape) / prod(shape)).astype(np.float32)
