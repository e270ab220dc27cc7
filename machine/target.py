"""What is compiled for: this machine, or a target that a user names."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from tvm.target import Target, codegen, list_tags

from .errors import InputError, unknown_name
from .process import load_backends, usable_cpus
from .tile_instructions import TILE_FEATURES, usable_tile_features
from .vector_math import use_vector_math

HOST = "host"


@cache
def host_target() -> Any:
    """Return the target of this machine: its CPU, and as many cores as this process may use."""
    return with_tile_features(_completed(Target.from_device("cpu")), usable_tile_features())


def with_tile_features(target: Any, usable: Collection[str]) -> Any:
    """Return an llvm target whose CPU has these of `TILE_FEATURES` and no others.

    LLVM goes by the model: a virtual machine may lack what that has, or have more.
    """
    expected = set(map(str, codegen.llvm_get_cpu_features(target)))
    switches = [
        f"{'+' if f in usable else '-'}{f}" for f in TILE_FEATURES if (f in usable) != (f in expected)
    ]
    return _from_config({**json.loads(str(target)), "mattr": switches}) if switches else target


def as_target(wanted: Any) -> Any:
    """Return the TVM target that a user means.

    An llvm target that leaves out its triple or its number of cores gets this machine's, so that
    equal targets have equal texts whichever way they were written.

    Parameters
    ----------
    wanted : str or mapping or tvm.target.Target
        ``"host"``, a target's JSON text or the path of a file with it, a tag such as
        ``"raspberry-pi/4b-aarch64"``, a kind such as ``"llvm"``, or a target.

    Raises
    ------
    InputError
        There is no such target, or it has an unknown option, mcpu or triple.
    """
    if isinstance(wanted, Target):
        return _completed(wanted)
    if isinstance(wanted, Mapping):
        return _completed(_from_config(dict(wanted)))
    text = str(wanted).strip()
    if text == HOST:
        return host_target()
    if text.startswith("{"):
        return _completed(_from_json(text, "target"))
    if text.endswith(".json") or Path(text).is_file():
        return _completed(_from_json(_file_text(text), f"target file {text}"))
    return _completed(_from_name(text))


def target_text(target: Any) -> str:
    """Return a target as canonical JSON text, with its keys in order: the key of records."""
    return json.dumps(json.loads(str(target)), sort_keys=True, separators=(",", ":"))


def instruction_set(target: Any) -> str:
    """Name the kind of a target, and for llvm the architecture; one's code runs on no other."""
    return " ".join((str(target.kind.name), *str(target.attrs.get("mtriple", "")).split("-")[:1])).strip()


def is_like_host(target: Any) -> bool:
    """Tell whether a target is of this machine's kind and architecture."""
    return instruction_set(target) == instruction_set(host_target())


def _completed(target: Any) -> Any:
    """Fill in triple and cores of an llvm target, and check them and its CPU."""
    # Whatever is compiled here is compiled for a target that went through here.
    use_vector_math()
    if target.kind.name != "llvm":
        return target
    given = json.loads(str(target))
    full = {"mtriple": codegen.llvm_get_system_triple(), "num-cores": usable_cpus(), **given}
    _check_triple(full["mtriple"])
    if full["num-cores"] < 1:
        raise InputError(f"a target's num-cores must be at least 1: num-cores={full['num-cores']}")
    if "mcpu" in full:
        _check_cpu(full["mcpu"], full["mtriple"])
    return target if full == given else _from_config(full)


def _check_triple(triple: str) -> None:
    """Refuse an architecture that LLVM does not know: it would crash the process."""
    architecture = triple.split("-")[0]
    known = [str(name) for name in codegen.llvm_get_targets()]
    # Triples add versions to the names LLVM lists: armv7l, arm64; i686 is an i386.
    if not architecture.startswith((*known, "i686", "i586")):
        raise unknown_name("architecture in mtriple", architecture, known)


def _check_cpu(mcpu: str, triple: str) -> None:
    """Refuse a CPU that LLVM does not know: it would compile for a generic one without a word."""
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(Target({"kind": "llvm", "mtriple": triple}))]
    if mcpu in known:
        return
    near = get_close_matches(mcpu, known, cutoff=0.5)
    if near:
        raise unknown_name("mcpu", mcpu, near)
    raise InputError(
        f"unknown mcpu {mcpu!r} for {triple}; this machine's is {codegen.llvm_get_system_cpu()!r}"
    )


def _from_name(text: str) -> Any:
    """Look up a kind or a tag."""
    if text != "llvm":
        # They bring tags.
        load_backends()
    words = text.split()
    if len(words) > 1 and words[0] in Target.list_kinds():
        options = dict(word.lstrip("-").split("=", 1) for word in words[1:] if "=" in word)
        raise InputError(
            f"a target with options is written as JSON: found {text!r}; "
            f"write {json.dumps({'kind': words[0], **options})}"
        )
    kinds, tags = [str(kind) for kind in Target.list_kinds()], [str(tag) for tag in list_tags()]
    if text not in (*kinds, *tags):
        near = get_close_matches(text, [HOST, *kinds, *tags], cutoff=0.5)
        raise unknown_name("target", text, near or [HOST, *kinds])
    return _from_config(text)


def _from_json(text: str, what: str) -> Any:
    """Read a target's JSON text."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InputError(f"{what} is no valid JSON: {error}") from None
    if not isinstance(config, dict) or "kind" not in config:
        raise InputError(
            f'{what} must be a JSON object with a "kind", such as {{"kind": "llvm"}}: found {text}'
        )
    return _from_config(config)


def _from_config(config: str | dict[str, Any]) -> Any:
    """Make the target; TVM's own errors become one line."""
    if isinstance(config, dict) and config.get("kind") != "llvm":
        load_backends()
    try:
        return Target(config)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split()).split(". Target creation from")[0]
        raise InputError(f"TVM refuses the target: {reason}") from None


def _file_text(path: str) -> str:
    """Read the file of a target."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"cannot read the target file {path}: {reason}") from None
