"""Whether this machine can run what a package holds: refused is what would crash."""

from __future__ import annotations

from typing import Any

from ...machine.cpu import cpu_signature
from ...machine.errors import InputError
from ...machine.process import TVM_VERSION
from .manifest import Manifest

_ADVICE = ("branchfusion", "macrofusion", "vzeroupper", "ermsb")


def require_runnable(manifest: Manifest, source: str) -> None:
    """Check that this TVM and this CPU can run a package.

    A package that was built on a CPU of the same model and features runs. For any other, LLVM is asked, which
    takes a second and 150 MB once.

    Raises
    ------
    InputError
        It was built with another TVM, for another architecture, or for instructions that this CPU lacks.
    """
    if manifest.tvm_version != TVM_VERSION:
        raise InputError(
            f"{source} was built with TVM {manifest.tvm_version}, this is {TVM_VERSION}; "
            "build the package again"
        )
    if not manifest.cpu or manifest.cpu != cpu_signature():
        _require_cpu(manifest.target, source)


def signature_if_runnable(target: Any) -> str:
    """Return this CPU's signature if it can run code for a target; empty if it cannot."""
    from ...machine.target import is_like_host

    return cpu_signature() if is_like_host(target) and not _missing_features(target) else ""


def _require_cpu(text: str, source: str) -> None:
    """Compare the target with this machine, by LLVM's names for what each can do."""
    from ...machine.target import as_target, host_target, is_like_host

    try:
        target = as_target(text)
    except InputError as error:
        raise InputError(f"{source} was built for a target that is unknown here: {error}") from None
    if not is_like_host(target):
        raise InputError(f"{source} was built for {text}; this machine is {host_target()}")
    missing = _missing_features(target)
    if missing:
        cpu = target.attrs.get("mcpu", "another CPU")
        raise InputError(f"{source} was built for {cpu}; this CPU lacks {', '.join(missing)}; build it here")


def _missing_features(target: Any) -> list[str]:
    """Return the instruction sets that code for a target may use and this CPU lacks."""
    from tvm.target import codegen

    from ...machine.target import host_target

    wanted, here = (set(map(str, codegen.llvm_get_cpu_features(t))) for t in (target, host_target()))
    return sorted(name for name in wanted - here if not _is_advice(name, target))


def _is_advice(feature: str, target: Any) -> bool:
    """Tell what LLVM calls a feature and is only advice on what is fast: slow-incdec, macrofusion.

    On x86 all names of more than one word are, but for those of the matrix unit. Elsewhere there is no such
    rule, and CPUs that differ in advice alone are taken for different.
    """
    if not str(target.attrs.get("mtriple", "")).startswith(("x86", "i386", "i586", "i686")):
        return False
    return feature in _ADVICE or ("-" in feature and not feature.startswith("amx-"))
