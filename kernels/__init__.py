"""The operators: what is computed, one a file; not a word about how."""

from __future__ import annotations

from typing import Any

from ..machine.errors import InputError, unknown_name
from .add import ADD
from .argmax import ARGMAX
from .attention import ATTENTION
from .batch_matmul import BATCH_MATMUL
from .batch_norm import BATCH_NORM
from .concat import CONCAT
from .conv1d import CONV1D
from .conv2d import CONV2D
from .conv2d_transpose import CONV2D_TRANSPOSE
from .elementwise import ELEMENTWISE
from .gather import GATHER
from .group_norm import GROUP_NORM
from .layer_norm import LAYER_NORM
from .linear import LINEAR
from .linear_relu import LINEAR_RELU
from .matmul import MATMUL
from .operator import Operator, Workload
from .pad import PAD
from .pool2d import AVG_POOL2D, GLOBAL_AVG_POOL2D, MAX_POOL2D
from .quantized import QUANTIZED_LINEAR, QUANTIZED_MATMUL
from .quantized_conv2d import QUANTIZED_CONV2D
from .reduction import MAX, MEAN, SUM
from .relu import RELU
from .resize import RESIZE2D
from .rms_norm import RMS_NORM
from .softmax import LOG_SOFTMAX, SOFTMAX
from .transpose import TRANSPOSE
from .user_file import load_operator


def by_name(*operators: Operator) -> dict[str, Operator]:
    """Tabulate operators by name.

    Raises
    ------
    InputError
        Two have the same name.
    """
    table: dict[str, Operator] = {}
    for op in operators:
        if op.name in table:
            raise InputError(f"there is already an operator named {op.name!r}; give this one another name")
        table[op.name] = op
    return table


OPERATORS: dict[str, Operator] = by_name(
    MATMUL,
    BATCH_MATMUL,
    LINEAR,
    LINEAR_RELU,
    CONV2D,
    QUANTIZED_MATMUL,
    QUANTIZED_LINEAR,
    QUANTIZED_CONV2D,
    RELU,
    ADD,
    MAX_POOL2D,
    AVG_POOL2D,
    GLOBAL_AVG_POOL2D,
    TRANSPOSE,
    CONCAT,
    PAD,
    GATHER,
    RESIZE2D,
    CONV1D,
    CONV2D_TRANSPOSE,
    *ELEMENTWISE,
    ATTENTION,
    SOFTMAX,
    LOG_SOFTMAX,
    LAYER_NORM,
    RMS_NORM,
    BATCH_NORM,
    GROUP_NORM,
    SUM,
    MEAN,
    MAX,
    ARGMAX,
)
"""Every operator that tunesmith brings."""


def operator(name: str) -> Operator:
    """Return an operator by its name, or a user's own by ``FILE.py:NAME``.

    Raises
    ------
    InputError
        There is no such operator, file, or name in the file.
    """
    if ".py" in name:
        return load_operator(name)
    if name not in OPERATORS:
        raise unknown_name("operator", name, OPERATORS)
    return OPERATORS[name]


def workload(name: str, *, dtype: str | None = None, **shape: Any) -> Workload:
    """Fix an operator's shape and dtype: ``workload("matmul", m=512, n=512, k=512)``.

    Parameters
    ----------
    name : str
        The operator's name, or ``FILE.py:NAME`` for a user's own.
    dtype : str
        The element type of the inputs; the first that the operator supports where it is None.
    **shape : int or str
        The operator's dimensions.

    Raises
    ------
    InputError
        The operator, a dimension or the dtype is unknown, or a dimension is missing or out of its range.
    """
    return operator(name).workload(shape, dtype)
