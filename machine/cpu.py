"""Which CPU this is, as the system tells; nothing here imports TVM."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_MODEL = ("vendor_id", "model name", "cpu family", "model\t", "stepping", "CPU implementer", "CPU part")
_FEATURES = ("flags", "Features")


def cpu_identity() -> str:
    """Return the lines of the system's first CPU that name its model; empty where there are none."""
    return _lines(_MODEL)


@cache
def cpu_flags() -> frozenset[str]:
    """Return the features of the system's first CPU, by the system's names; none where unknown."""
    return frozenset(_lines(_FEATURES).partition(":")[2].split())


@cache
def cpu_signature() -> str:
    """Return a short text that only CPUs of one model with equal features share; empty where unknown."""
    features = " ".join(sorted(cpu_flags()))
    return hashlib.sha256(f"{cpu_identity()} {features}".encode()).hexdigest()[:16] if features else ""


def _lines(names: tuple[str, ...]) -> str:
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(line for line in first.splitlines() if line.startswith(names))
