"""What the words on the command line stand for: workloads, models, databases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..machine.errors import InputError
from .options import DEFAULT_DATABASE

if TYPE_CHECKING:
    from ..integrate.model import Model
    from ..kernels.operator import Workload
    from ..tuning.records.database import Database
    from ..tuning.remote.tracker import Remote


ALL = "all"


def is_model(word: str) -> bool:
    """Tell a model's path from an operator's name."""
    return word.endswith(".onnx") or (".py" not in word and Path(word).is_file())


def one_workload(operator: str, shape: str, dtype: str | None) -> Workload:
    """Return the workload of an operator in one shape."""
    from ..kernels import operator as operator_named
    from ..kernels.shapes import parse_shape

    found = operator_named(operator)
    return found.workload(parse_shape(shape) if shape else {}, dtype or found.dtypes[0])


def several_workloads(
    operator: str, shapes: Sequence[str], dtype: str | None, most: int | None = None
) -> list[Workload]:
    """Return a workload for each shape given; without one, for the operator's own examples, or the first.

    ``all`` is every operator that there is.
    """
    from ..kernels import OPERATORS
    from ..kernels import operator as operator_named

    if operator == ALL:
        require_only(f"{ALL} operators", shape=shapes, dtype=dtype)
        return [w for name in OPERATORS for w in several_workloads(name, (), None, most)]
    if shapes:
        return [one_workload(operator, shape, dtype) for shape in shapes]
    found = operator_named(operator)
    return [found.workload(example.shape, dtype or found.dtypes[0]) for example in found.examples[:most]]


def model_at(path: str, input_shapes: str | None, input_values: str | None) -> Model:
    """Load the model in a file."""
    from ..integrate.importing.shapes import parse_input_shapes, parse_input_values
    from ..integrate.model import load_model

    shapes = parse_input_shapes(input_shapes) if input_shapes else None
    values = parse_input_values(input_values) if input_values else None
    return load_model(path, shapes, input_values=values)


def runnable_target(text: str) -> Any:
    """Return the target that is asked for, if this machine can run what is compiled for it."""
    from ..machine.target import as_target, instruction_set, is_like_host

    target = as_target(text)
    if not is_like_host(target):
        raise InputError(
            f"code for {instruction_set(target)} cannot run on this machine: --target {text}; "
            "leave --target out (show needs no machine that can run it)"
        )
    return target


def remote_named(tracker: str | None, key: str | None) -> Remote | None:
    """Return the servers that --rpc-tracker and --rpc-key name; None where neither is given."""
    if tracker is None and key is None:
        return None
    if tracker is None or key is None:
        missing = "--rpc-tracker" if tracker is None else "--rpc-key"
        raise InputError(f"--rpc-tracker and --rpc-key belong together: give {missing} as well")
    from ..tuning.remote.tracker import Remote

    return Remote(tracker, key)


def require_only(kind: str, **given: object) -> None:
    """Refuse options that mean nothing for what the command was given."""
    for option, value in given.items():
        if value:
            raise InputError(f"--{option.replace('_', '-')} is not for {kind}: leave it out")


def existing_database(path: str | None) -> Database | None:
    """Open the database that is asked for, or the one in the current folder where there is one.

    It is closed when the command ends.
    """
    from ..tuning.records.database import Database

    if path is None and not Path(DEFAULT_DATABASE).exists():
        return None
    return click.get_current_context().with_resource(Database(path or DEFAULT_DATABASE, create=False))
