"""What may be wrong with this machine or this installation, found before it hurts."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile

from .cache import cache_folder
from .errors import InputError
from .process import require_sound_tvm, usable_cpus

_PACKAGES = ("tunesmith", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "onnx")
# Those that TVM links with, in its order; CXX and CC come before them.
_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


@dataclass(frozen=True)
class Check:
    """One finding.

    Parameters
    ----------
    name : str
        What was looked at.
    ok : bool
        Whether tunesmith can work with it.
    found : str
        What was found, in one line.
    advice : str
        What to do about it; empty where nothing need be done.
    """

    name: str
    ok: bool
    found: str
    advice: str = ""


def diagnose() -> list[Check]:
    """Look at everything that tunesmith stands on, and never raise.

    TVM is imported only after its version was found to be sound; with one that is not,
    what needs TVM is left out.
    """
    checks = [
        check for look in (_python, _versions, _compiler, _cache_folder, _cpu) for check in _looked(look)
    ]
    sound = next(_looked(_sound_tvm))
    checks.append(sound)
    if sound.ok:
        checks += [check for look in (_tvm_threads, _target, _facts, _peaks) for check in _looked(look)]
    return checks


def _looked(look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield what one look finds; an error of its own is a finding too."""
    try:
        yield from look()
    except Exception as error:  # whatever is broken here is what the user wants to read
        reason = " ".join(str(error).split()) or type(error).__name__
        yield Check(look.__name__.strip("_").replace("_", " "), False, f"{type(error).__name__}: {reason}")


def _python() -> Iterator[Check]:
    yield Check("python", True, f"{platform.python_version()} on {platform.platform()}")
    yield Check("tunesmith's folder", True, str(Path(__file__).parents[1]))


def _versions() -> Iterator[Check]:
    for package in _PACKAGES:
        try:
            yield Check(package, True, version(package))
        except PackageNotFoundError:
            yield Check(package, False, "not installed", f"run: pip install {package}")


def _compiler() -> Iterator[Check]:
    wanted = os.environ.get("CXX") or os.environ.get("CC")
    names = (wanted,) if wanted else _COMPILERS
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path:
        yield Check("C++ compiler", True, path)
    else:
        advice = "install one, for packages are linked with it (Debian, Ubuntu: apt install g++)"
        yield Check("C++ compiler", False, f"none of {', '.join(names)}", advice)


def _cache_folder() -> Iterator[Check]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            yield Check("cache folder", True, str(folder))
    except OSError as error:
        advice = "set XDG_CACHE_HOME to a folder that can be written; without it every process measures anew"
        yield Check("cache folder", False, f"{folder}: {error.strerror}", advice)


def _cpu() -> Iterator[Check]:
    yield Check("usable CPUs", True, f"{usable_cpus()} of {os.cpu_count()} (affinity and cgroup quota)")


def _sound_tvm() -> Iterator[Check]:
    try:
        require_sound_tvm()
        yield Check("TVM", True, "a version that tunesmith knows to be sound")
    except InputError as error:
        found, _, advice = str(error).rpartition("; ")
        yield Check("TVM", False, found, advice)


def _tvm_threads() -> Iterator[Check]:
    import tvm

    threads, usable = int(tvm.runtime.num_threads()), usable_cpus()
    advice = (
        "" if threads == usable else f"set TVM_NUM_THREADS={usable} or leave it unset before Python starts"
    )
    found = f"{threads} (TVM_NUM_THREADS={os.environ.get('TVM_NUM_THREADS', 'unset')})"
    yield Check("TVM's threads", threads <= usable, found, advice)


def _target() -> Iterator[Check]:
    from .target import host_target, target_text

    yield Check("target", True, target_text(host_target()))


def _facts() -> Iterator[Check]:
    from .facts import cpu_model, facts
    from .target import host_target

    here = facts(host_target())
    yield Check("CPU", True, cpu_model())
    yield Check("vector registers", True, f"{here.vector_registers} of {here.vector_bits} bits")
    sizes = (here.l1_bytes, here.l2_bytes, here.l3_bytes)
    yield Check(
        "caches", True, ", ".join(f"L{i} {size // 1024} KiB" for i, size in enumerate(sizes, start=1))
    )


def _peaks() -> Iterator[Check]:
    from .peaks import measured_peaks

    peaks = measured_peaks(refresh=True)
    rates = ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in peaks.gflops.items())
    yield Check("peak GFLOP/s", True, f"{rates} on {peaks.threads} threads")
    reading = f"L1 {peaks.l1_gbps:.0f}, L2 {peaks.l2_gbps:.0f}, L3 {peaks.l3_gbps:.0f}"
    yield Check("bandwidth in GB/s", True, f"memory {peaks.memory_gbps:.0f}, {reading}")
