"""The manifest of a package: what it computes, what it was built for, and where its schedules came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ...machine.errors import InputError
from ...machine.signature import ArgSpec
from ..lowering.choice import Choice

FORMAT = "tunesmith-package"
FORMAT_VERSION = 2


@dataclass(frozen=True)
class Manifest:
    """What a package says about itself.

    Parameters
    ----------
    name : str
        The model's name.
    inputs, outputs : tuple of ArgSpec
        What a caller gives and gets.
    target : str
        What it was compiled for, as canonical JSON text.
    choices : tuple of Choice
        The schedule of each function and why it got that one.
    threads : int
        Threads of the process that built it; a package runs on however many the loading process has.
    created : str
        ISO 8601, UTC.
    tvm_version, tunesmith_version : str
        What built it.
    planned_bytes : int
        Memory that one inference takes for the results of its functions, outputs among them.
    cpu : str
        Signature of the CPU that built it, where that CPU can run it; empty where not or unknown.
    """

    name: str
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    target: str
    choices: tuple[Choice, ...]
    threads: int
    created: str
    tvm_version: str
    tunesmith_version: str
    planned_bytes: int = 0
    cpu: str = ""


@dataclass(frozen=True)
class FilePart:
    """A part of a package's file: its length, and the SHA-256 of its bytes."""

    nbytes: int
    sha256: str


@dataclass(frozen=True)
class StoredTensor:
    """A weight as it lies in the part of weights: at a multiple of 64 bytes, in C order."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Contents:
    """What the other parts of a package's file must be.

    Parameters
    ----------
    library, weights : FilePart
        The compiled code and the weights.
    tensors : tuple of StoredTensor
        Where each weight is, in the order in which ``main`` takes them.
    """

    library: FilePart
    weights: FilePart
    tensors: tuple[StoredTensor, ...]


def manifest_text(manifest: Manifest, contents: Contents) -> str:
    """Return the JSON text of a package's manifest."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION}
    return json.dumps({**head, **asdict(manifest), "contents": asdict(contents)}, indent=1)


def read_manifest(text: str, source: str) -> tuple[Manifest, Contents]:
    """Read a manifest.

    Parameters
    ----------
    text : str
        JSON.
    source : str
        The package's path, for messages.

    Raises
    ------
    InputError
        It is no manifest, damaged, or of another format.
    """
    fields = _fields(text)
    if fields.pop("format", None) != FORMAT:
        raise InputError(f"not a tunesmith package: {source}")
    _check_version(fields.pop("format_version", None), source)
    try:
        contents = _contents(fields.pop("contents"))
        return _manifest(fields), contents
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} has a damaged manifest: {error}; build the package again") from None


def require_this_format(text: str, source: str) -> None:
    """Check that a manifest, if it is one, is not of another format.

    Raises
    ------
    InputError
        It is of another format: that tells more than what else is strange about its package.
    """
    fields = _fields(text)
    if fields.get("format") == FORMAT:
        _check_version(fields.get("format_version"), source)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _check_version(version: Any, source: str) -> None:
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{source} has package format {version}, this tunesmith reads {FORMAT_VERSION}; update tunesmith"
        )
    if version < FORMAT_VERSION:
        raise InputError(
            f"{source} was made by an earlier tunesmith: it has package format {version}, this one reads "
            f"{FORMAT_VERSION}; compile the model again"
        )


def _manifest(fields: dict[str, Any]) -> Manifest:
    for key in ("inputs", "outputs"):
        fields[key] = tuple(ArgSpec(str(a["name"]), _shape(a), str(a["dtype"])) for a in fields[key])
    fields["choices"] = tuple(Choice(**choice) for choice in fields["choices"])
    return Manifest(**fields)


def _contents(fields: Mapping[str, Any]) -> Contents:
    library, weights = (_part(fields[name]) for name in ("library", "weights"))
    tensors = tuple(StoredTensor(_count(t["offset"]), _shape(t), str(t["dtype"])) for t in fields["tensors"])
    return Contents(library, weights, tensors)


def _part(fields: Mapping[str, Any]) -> FilePart:
    return FilePart(_count(fields["nbytes"]), str(fields["sha256"]))


def _shape(fields: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(_count(extent) for extent in fields["shape"])
    if prod(shape) >= 1 << 62:
        raise ValueError(f"no memory holds the shape {shape}")
    return shape


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
