"""The running process: its threads, the TVM it may import, and a TVM start-up without the slow parts.

``import tunesmith`` runs this module, so it imports only what Python has loaded anyway.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import Any

from .errors import InputError

TVM_VERSION = "0.27.0.post1"
TVM_FFI_RANGE = ">=0.1.14.post0,<0.1.15"
_SOUND_TVM_FFI = re.compile(r"0\.1\.14\.post\d+(\+.*)?")

# Which of TVM's intrinsic modules a target needs: by its kind, and for llvm by the first word of its triple.
_INTRINSICS_OF_KIND = {"cuda": "cuda", "rocm": "rocm", "metal": "metal", "hexagon": "hexagon"}
_INTRINSICS_OF_ARCH = {
    "x86_64": "x86",
    "i386": "x86",
    "i686": "x86",
    "aarch64": "arm_cpu",
    "riscv64": "riscv_cpu",
}
_INTRINSICS = "tvm.s_tir.tensor_intrin"
_KEPT_OUT = ("torch", "tvm.runtime.disco")
_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"


def usable_cpus() -> int:
    """Count the CPUs this process may really use.

    The least of its affinity and of the cgroup quotas (v1 and v2) on the way from its own group to the
    root, rounded up; never below 1.
    """
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affine, *map(ceil, _cgroup_quotas())]))


def prepare_process() -> None:
    """Let TVM use every CPU this process may use, unless the environment says otherwise.

    TVM's pool takes half of the logical CPUs when nothing is said; it reads the variable when it starts.
    """
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cpus()))


@cache
def require_sound_tvm() -> None:
    """Check the installed TVM before it is imported.

    Raises
    ------
    InputError
        TVM is missing or of another version, or its tvm-ffi is one that crashes the process.
    """
    # Loading it takes longer than the rest of `import tunesmith`.
    from importlib.metadata import PackageNotFoundError, version

    advice = f"run: pip install 'apache-tvm=={TVM_VERSION}' 'apache-tvm-ffi{TVM_FFI_RANGE}'"
    found = {}
    for package in ("apache-tvm", "apache-tvm-ffi"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            raise InputError(f"{package} is not installed; {advice}") from None
    if found["apache-tvm"] != TVM_VERSION:
        raise InputError(f"tunesmith needs apache-tvm {TVM_VERSION}: found {found['apache-tvm']}; {advice}")
    if not _SOUND_TVM_FFI.fullmatch(found["apache-tvm-ffi"]):
        raise InputError(
            f"apache-tvm-ffi must be {TVM_FFI_RANGE}, others crash when a module is saved or tuned: "
            f"found {found['apache-tvm-ffi']}; {advice}"
        )


def import_tvm(module: str = "tvm") -> None:
    """Import TVM, or ``tvm_ffi`` alone, without what takes longest and is not needed for CPUs.

    Both import torch where it is installed, and that takes longer than TVM itself; torch can still be
    imported afterwards. TVM's back ends of other devices take 0.35 s of 0.85; `load_backends` loads them when
    they are wanted. And TVM tries to import its distributed runtime, which is not in the wheel, and does
    without: the error costs 0.25 s, because it is the first one and debug symbols are read for it.
    """
    from importlib import import_module

    if "torch" in sys.modules or "tvm_ffi" in sys.modules:
        return
    for name in _KEPT_OUT:
        sys.modules[name] = None  # type: ignore[assignment]  # how Python says "not importable"
    wanted = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        import_module(module)
    finally:
        for name in _KEPT_OUT:
            del sys.modules[name]
        del os.environ[_AUTOLOAD]
        if wanted is not None:
            os.environ[_AUTOLOAD] = wanted
    if module == "tvm":
        from .runtime import load_runtime

        # TVM loads the second of its libraries with the back ends.
        load_runtime()


@cache
def load_backends() -> None:
    """Have TVM load its back ends of other devices than CPUs, unless the environment says otherwise."""
    from tvm.backend import _autoload_backends as start
    from tvm.backend.loader import is_loaded

    # Where TVM was imported in the plain way, they are there.
    if not is_loaded("cuda"):
        start._AUTO_LOAD_DONE = False
        start._autoload_backends()


def remember_type_checks() -> None:
    """Have TVM look once at each type that arguments of its schedule primitives are checked against.

    It takes the annotations apart in every call, which is a third of the time of a schedule of many loops
    (softmax: 51 ms with it, 34 without).
    """
    from tvm.s_tir.schedule import _type_checker

    _type_checker._dispatcher = cache(_type_checker._dispatcher)


def load_tensor_intrinsics(target: Any) -> None:
    """Register the tensor intrinsics that a target needs, and no others.

    Parameters
    ----------
    target : tvm.target.Target
        What is compiled for.
    """
    from importlib import import_module

    keep_tensor_intrinsics_out()
    needed = intrinsics_of(target)
    if needed is not None:
        import_module(f"{_INTRINSICS}.{needed}")
    if needed == "x86":
        from .vnni import register_vnni

        register_vnni()


def intrinsics_of(target: Any) -> str | None:
    """Name the module of TVM's with a target's tensor intrinsics; None where there is none."""
    return _INTRINSICS_OF_KIND.get(target.kind.name) or _INTRINSICS_OF_ARCH.get(_architecture(target))


def keep_tensor_intrinsics_out() -> None:
    """Have MetaSchedule import no tensor intrinsics; call it before a TuneContext is made.

    It imports ``tvm.s_tir.tensor_intrin``, whose 248 intrinsics take 14 s to parse. A light package of the
    same name and path stands in for it: its submodules are imported when they are asked for. Where the whole
    package is loaded already, it stays.
    """
    if _INTRINSICS in sys.modules:
        return
    from importlib import import_module
    from importlib.machinery import ModuleSpec
    from importlib.util import module_from_spec

    from tvm import s_tir

    spec = ModuleSpec(_INTRINSICS, loader=None, is_package=True)
    spec.submodule_search_locations = [os.path.join(path, "tensor_intrin") for path in s_tir.__path__]
    package: Any = module_from_spec(spec)
    submodules = {*_INTRINSICS_OF_KIND.values(), *_INTRINSICS_OF_ARCH.values()}

    def imported(name: str) -> Any:
        if name not in submodules:
            raise AttributeError(f"module {_INTRINSICS!r} has no attribute {name!r}")
        return import_module(f"{_INTRINSICS}.{name}")

    package.__getattr__ = imported
    sys.modules[_INTRINSICS] = s_tir.tensor_intrin = package


def _architecture(target: Any) -> str:
    """Name the instruction set of an llvm target: the first word of its triple."""
    from tvm.target import codegen

    return str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple()).split("-")[0]


def _cgroup_quotas(groups: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> Iterator[float]:
    """Yield every CPU quota that binds this process, in CPUs."""
    for line in _text(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for folder in (mount, f"{mount}/unified"):
                yield from _quotas_up(folder, path, "cpu.max")
        elif "cpu" in controllers.split(","):
            for folder in {f"{mount}/{controllers}", f"{mount}/cpu"}:
                yield from _quotas_up(folder, path, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _quotas_up(folder: str, path: str, *files: str) -> Iterator[float]:
    """Yield quota / period of a control group and its parents (a container sees only the upper ones)."""
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        group = os.path.join(folder, *parts[:depth])
        words = " ".join(_text(os.path.join(group, name)) for name in files).split()
        # "max" (v2) and -1 (v1) mean no limit.
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
            yield int(words[0]) / int(words[1])


def _text(path: str) -> str:
    """Read a small file of the system; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
