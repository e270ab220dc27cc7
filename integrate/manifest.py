"""The manifest of a package: what it computes, what it was built for, and where its schedules came from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tvm.target import Target, codegen

from ..machine.errors import InputError
from ..machine.process import TVM_VERSION
from ..machine.signature import ArgSpec
from ..machine.target import host_target
from .lowering.choice import Choice

FORMAT = "tunesmith-package"
FORMAT_VERSION = 1


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

    def to_json(self) -> str:
        """Return the manifest as JSON text."""
        return json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}, indent=1)


def read_manifest(text: str, source: str) -> Manifest:
    """Read a manifest and check that this machine and this version can run what it describes.

    Parameters
    ----------
    text : str
        JSON.
    source : str
        The package's path, for messages.

    Raises
    ------
    InputError
        It is no manifest, of a newer format, built with another TVM, or for another CPU.
    """
    fields = _fields(text, source)
    if fields.pop("format", None) != FORMAT:
        raise InputError(f"not a tunesmith package: {source}")
    version = fields.pop("format_version", None)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{source} has package format {version}, this tunesmith reads up to {FORMAT_VERSION}; "
            "update tunesmith"
        )
    try:
        manifest = _manifest(fields)
    except (TypeError, KeyError) as error:
        raise InputError(f"{source} has a damaged manifest: {error}; build the package again") from None
    _require_runnable(manifest, source)
    return manifest


def _fields(text: str, source: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise InputError(f"{source} has a damaged manifest: it is no JSON; build the package again") from None
    if not isinstance(fields, dict):
        raise InputError(f"not a tunesmith package: {source}")
    return fields


def _manifest(fields: dict[str, Any]) -> Manifest:
    for key in ("inputs", "outputs"):
        fields[key] = tuple(ArgSpec(a["name"], tuple(a["shape"]), a["dtype"]) for a in fields[key])
    fields["choices"] = tuple(Choice(**choice) for choice in fields["choices"])
    return Manifest(**fields)


def _require_runnable(manifest: Manifest, source: str) -> None:
    """Refuse what would crash: another TVM's bytecode, or instructions that this CPU lacks."""
    if manifest.tvm_version != TVM_VERSION:
        raise InputError(
            f"{source} was built with TVM {manifest.tvm_version}, this is {TVM_VERSION}; "
            "build the package again"
        )
    wanted, here = Target(manifest.target), host_target()
    if wanted.kind.name != here.kind.name or _architecture(wanted) != _architecture(here):
        raise InputError(f"{source} was built for {manifest.target}; this machine is {here}")
    missing = _features(wanted) - _features(here)
    if missing:
        cpu = wanted.attrs.get("mcpu", "another CPU")
        raise InputError(
            f"{source} was built for {cpu}; this CPU lacks {', '.join(sorted(missing))}; build it here"
        )


def _architecture(target: Any) -> str:
    return str(target.attrs.get("mtriple", "")).partition("-")[0]


def _features(target: Any) -> set[str]:
    """Return the instruction sets that code for a target may use."""
    return {str(feature) for feature in codegen.llvm_get_cpu_features(target)}
