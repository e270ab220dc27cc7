"""The facts about a target that schedules need: vector registers, caches, cores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tvm.target import codegen

from .cpu import cpu_identity
from .element import element_bits
from .process import usable_cpus
from .target import as_target, host_target

# Vector registers by the first feature found: (feature, bits of a register, registers).
_VECTORS = (
    ("avx512f", 512, 32),
    ("avx2", 256, 16),
    ("avx", 256, 16),
    ("sse2", 128, 16),
    ("neon", 128, 32),
)
_NO_VECTORS = (128, 16)
# CPUs whose units take a register in halves, by LLVM's names: the bits that they take at once.
_HALVES = {"znver4": 256, "znver1": 128}
# Of which vectors of elements of any width can be loaded and stored in part, as fast as whole ones.
_MASKS = frozenset({"avx512bw", "avx512vl"})

# Caches of a CPU that cannot be asked: the least among the server and desktop CPUs of the last ten years.
_L1_BYTES = 32 * 1024
_L2_BYTES = 512 * 1024
_L3_BYTES = 8 * 1024 * 1024

# Of an L3 that is far away a core's share is more than so many times its L2.
_FAR_L3 = 32

# It keeps so many times what the L2s do, before it gives way to other cores' lines. On 2 threads of a Xeon, 2
# MiB of L2 and 480 of L3, time past the caches over that of ordinary stores: transposing 17 MB 1.1, 19 MB
# 0.56, 67 MB 0.56; softmax, layer_norm and rms_norm, fetched ahead, of 8 MB 0.99 to 1.02, 17 MB 0.76 to 0.85,
# 67 MB 0.55 to 0.60; silu of 17 to 26 MB 0.9 to 1.0, 42 MB 0.86, 67 MB 0.83.
_KEPT_BY_FAR_L3 = 8

LINE_BYTES = 64
"""What a cache moves at once."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True)
class Facts:
    """What a schedule needs to know about a CPU.

    Parameters
    ----------
    vector_bits : int
        Width of a vector register in bits.
    vector_registers : int
        How many of them an instruction can name.
    unit_bits : int
        What a unit takes of a register at once: all of it on most CPUs, half of it on some.
    l1_bytes, l2_bytes, l3_bytes : int
        Data caches in bytes: the first two of one core, the third shared.
    cores : int
        Cores to spread the work over.
    has_masks : bool
        Whether vectors can be loaded and stored in part: see `masked_vectors`.
    """

    vector_bits: int
    vector_registers: int
    unit_bits: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int
    has_masks: bool

    @property
    def takes_halves(self) -> bool:
        """Whether units take registers in halves; those that take whole ones wait for loads sooner."""
        return self.unit_bits < self.vector_bits

    @property
    def near_bytes(self) -> int:
        """Bytes of the second caches of all cores together."""
        return self.l2_bytes * self.cores

    @property
    def has_far_l3(self) -> bool:
        """Whether L3 is one of many cores, and far away: a core's share is many times as large as its L2."""
        return self.l3_bytes // self.cores > _FAR_L3 * self.l2_bytes

    @property
    def kept_by_l3(self) -> int:
        """Bytes that L3 keeps for these cores: what it has, or of one far away what is left by the others."""
        return min(self.l3_bytes, _KEPT_BY_FAR_L3 * self.near_bytes) if self.has_far_l3 else self.l3_bytes

    def lanes(self, dtype: str) -> int:
        """Count the elements of a dtype that fill a vector register: ``vector_bits // dtype_bits``."""
        return max(1, self.vector_bits // element_bits(dtype))


def line_elements(dtype: str) -> int:
    """Count the elements of a dtype that a cache moves at once."""
    return max(1, LINE_BYTES * 8 // element_bits(dtype))


def facts(target: Any) -> Facts:
    """Return the facts of a target.

    Vector registers follow from the features of the target's CPU. Caches are this machine's where the
    target's CPU is this machine's, and stated defaults otherwise.

    Parameters
    ----------
    target : tvm.target.Target
        The target; its ``num-cores`` counts, else the CPUs usable here.
    """
    return _facts(str(target))


@cache
def _features(text: str) -> frozenset[str]:
    """Return the CPU features of a target text, by LLVM's names."""
    target = as_target(text)
    known = target.kind.name == "llvm"
    return frozenset(map(str, codegen.llvm_get_cpu_features(target))) if known else frozenset()


def has_feature(target: Any, name: str) -> bool:
    """Tell whether a target's CPU has a feature, by LLVM's name for it."""
    return name in _features(str(target))


@cache
def machine_fingerprint() -> str:
    """Return a short text that is the same only on like machines: CPU model, usable CPUs, features."""
    host = host_target()
    features = " ".join(sorted(map(str, codegen.llvm_get_cpu_features(host))))
    digest = hashlib.sha256(f"{cpu_identity()} {features}".encode()).hexdigest()[:8]
    return f"{host.attrs['mcpu']}-{usable_cpus()}cpu-{digest}"


def cpu_model() -> str:
    """Name the CPU as the system does; LLVM's name for it where the system has none."""
    for line in cpu_identity().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return str(codegen.llvm_get_system_cpu())


@cache
def _facts(text: str) -> Facts:
    """Work out the facts once for each target text."""
    target = as_target(text)
    cores = int(target.attrs.get("num-cores") or usable_cpus())
    bits, registers = _NO_VECTORS
    caches: dict[int, int] = {}
    if target.kind.name == "llvm":
        bits, registers = next((v[1:] for v in _VECTORS if v[0] in _features(text)), _NO_VECTORS)
        if target.attrs.get("mcpu") == host_target().attrs["mcpu"]:
            caches = _host_caches()
    return Facts(
        vector_bits=bits,
        vector_registers=registers,
        unit_bits=min(bits, _HALVES.get(str(target.attrs.get("mcpu", "")), bits)),
        l1_bytes=caches.get(1, _L1_BYTES),
        l2_bytes=caches.get(2, _L2_BYTES),
        l3_bytes=caches.get(3, _L3_BYTES),
        cores=cores,
        has_masks=target.kind.name == "llvm" and _features(text) >= _MASKS,
    )


def _host_caches(folder: Path = _CACHES) -> dict[int, int]:
    """Read the size in bytes of each level's data cache; empty where the system does not tell."""
    sizes: dict[int, int] = {}
    for index in folder.glob("index*"):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            if kind in ("Data", "Unified"):
                sizes[int(level)] = int(size[:-1]) * _UNITS[size[-1]] if size[-1] in _UNITS else int(size)
        except (OSError, ValueError, IndexError):
            continue
    return sizes
