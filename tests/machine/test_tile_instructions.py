"""Tiles of a matrix unit: how they are described, and whether this process may use them."""

import struct
import subprocess
import sys

import pytest
from tunesmith.machine import tile_instructions
from tunesmith.machine.facts import has_feature
from tunesmith.machine.target import as_target, host_target, with_tile_features
from tunesmith.machine.tile_instructions import TILE_FEATURES, configuration, usable_tile_features

TRIPLE = {"kind": "llvm", "mtriple": "x86_64-linux", "num-cores": 2}


@pytest.fixture
def flags(monkeypatch):
    """Let the system name other features of the CPU."""

    def named(*names):
        monkeypatch.setattr(tile_instructions, "cpu_flags", lambda: frozenset(names))
        usable_tile_features.cache_clear()

    yield named
    usable_tile_features.cache_clear()


def test_a_configuration_is_what_the_cpu_wants():
    described = struct.pack("<8Q", *configuration([(16, 64), (13, 48), (1, 4)]))
    palette, start, _, row_bytes, _, rows, _ = struct.unpack("<BB14s6s26s3s13s", described)
    assert (palette, start) == (1, 0)
    assert struct.unpack("<3H", row_bytes) == (64, 48, 4)
    assert tuple(rows) == (16, 13, 1)
    assert described[22:48] == bytes(26) and described[51:] == bytes(13)


@pytest.mark.parametrize("names", [(), ("avx512f",), ("amx_int8", "amx_bf16")])
def test_a_cpu_without_tiles_has_none_of_their_features(names, flags):
    flags(*names)
    assert usable_tile_features() == frozenset()


def test_who_gets_no_leave_has_none_either(flags, monkeypatch):
    class Refusing:
        @staticmethod
        def syscall(*numbers):
            assert numbers == (158, 0x1023, 18)
            return -1

    flags("amx_tile", "amx_int8")
    monkeypatch.setattr(tile_instructions.ctypes, "CDLL", lambda _: Refusing)
    assert usable_tile_features() == frozenset()


@pytest.mark.parametrize(
    ("mcpu", "usable", "switches"),
    [
        ("rocketlake", TILE_FEATURES, ["+amx-tile", "+amx-int8", "+amx-bf16"]),
        ("sapphirerapids", TILE_FEATURES, []),
        ("sapphirerapids", (), ["-amx-tile", "-amx-int8", "-amx-bf16"]),
        ("sapphirerapids", ("amx-tile", "amx-int8"), ["-amx-bf16"]),
        ("znver3", (), []),
    ],
)
def test_the_target_says_what_llvm_does_not_know_of_this_machine(mcpu, usable, switches):
    told = with_tile_features(as_target({**TRIPLE, "mcpu": mcpu}), usable)
    assert list(told.attrs.get("mattr", ())) == switches
    assert {f for f in TILE_FEATURES if has_feature(told, f)} == set(usable)


def test_this_machine_has_what_its_target_says():
    usable = usable_tile_features()
    assert {f for f in TILE_FEATURES if has_feature(host_target(), f)} == usable


@pytest.mark.skipif(not usable_tile_features(), reason="this machine has no AMX, or no leave to use it")
def test_a_kernel_asks_for_leave_itself():
    """What runs it need not know that it uses tiles: a process of its own that never asked."""
    code = """
import numpy as np, tunesmith as ts
from tunesmith.machine import tile_instructions
tile_instructions.usable_tile_features = lambda: frozenset(tile_instructions.TILE_FEATURES)
from tunesmith.machine import target
target.usable_tile_features = tile_instructions.usable_tile_features
kernel = ts.compile(ts.workload("quantized_matmul", m=64, n=64, k=128))
assert "matrix_unit" in str(kernel), kernel
a, b = np.full((64, 128), 3, "uint8"), np.full((128, 64), -2, "int8")
assert (np.asarray(kernel(a, b)) == -768).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
