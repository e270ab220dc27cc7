"""What schedules are told about a CPU."""

from dataclasses import replace

import pytest
from tunesmith.machine import facts as module
from tunesmith.machine.facts import cpu_model, facts, machine_fingerprint
from tunesmith.machine.process import usable_cpus
from tunesmith.machine.target import as_target, host_target

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("mcpu", "bits"),
    [("znver4", 256), ("znver5", 512), ("sapphirerapids", 512), ("znver3", 256), ("znver1", 128)],
)
def test_what_a_unit_takes_at_once_follows_from_the_cpu(mcpu, bits):
    assert facts(as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux"})).unit_bits == bits


@pytest.mark.parametrize(
    ("triple", "mcpu", "bits", "registers", "masks"),
    [
        (X86, "znver4", 512, 32, True),
        (X86, "skylake-avx512", 512, 32, True),
        (X86, "knl", 512, 32, False),  # masks of elements of 32 bits and more only
        (X86, "haswell", 256, 16, False),
        (X86, "sandybridge", 256, 16, False),
        (X86, "x86-64", 128, 16, False),
        (ARM, "neoverse-n1", 128, 32, False),
    ],
)
def test_vector_registers_and_masks_follow_from_the_cpu(triple, mcpu, bits, registers, masks):
    found = facts(as_target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu}))
    assert (found.vector_bits, found.vector_registers, found.has_masks) == (bits, registers, masks)


def test_lanes():
    found = facts(as_target({"kind": "llvm", "mtriple": X86, "mcpu": "haswell"}))
    lanes = {"float32": 8, "float64": 4, "float16": 16, "bfloat16": 16, "int8": 32}
    assert {dtype: found.lanes(dtype) for dtype in lanes} == lanes


def test_cores_are_those_of_the_target():
    assert facts(host_target()).cores == usable_cpus()
    assert facts(as_target({"kind": "llvm", "num-cores": 96})).cores == 96


def test_caches_of_this_machine_only_for_its_own_cpu(monkeypatch):
    monkeypatch.setattr(module, "_host_caches", lambda: {1: 111, 2: 222, 3: 333})
    module._facts.cache_clear()
    host = host_target()
    other = "haswell" if host.attrs["mcpu"] != "haswell" else "skylake"
    here, elsewhere = facts(host), facts(as_target({"kind": "llvm", "mtriple": X86, "mcpu": other}))
    module._facts.cache_clear()
    assert (here.l1_bytes, here.l2_bytes, here.l3_bytes) == (111, 222, 333)
    assert (elsewhere.l1_bytes, elsewhere.l2_bytes, elsewhere.l3_bytes) == (
        32 * 1024,
        512 * 1024,
        8 * 1024**2,
    )


def test_caches_are_read_from_the_system(tmp_path):
    entries = [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "1024K"), ("Unified", 3, "32M")]
    for i, (kind, level, size) in enumerate(entries):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    (tmp_path / "index9").mkdir()
    assert module._host_caches(tmp_path) == {1: 48 * 1024, 2: 1024**2, 3: 32 * 1024**2}
    assert module._host_caches(tmp_path / "nowhere") == {}


def test_facts_of_a_target_without_vectors_are_stated_defaults():
    assert facts(as_target("nvidia/nvidia-a100")).vector_bits == 128


def test_the_fingerprint_is_stable_and_a_file_name():
    module.machine_fingerprint.cache_clear()
    first = machine_fingerprint()
    module.machine_fingerprint.cache_clear()
    assert machine_fingerprint() == first
    assert len(first) < 60
    assert not set(first) & set("/\\ :")
    assert f"-{usable_cpus()}cpu-" in first


def test_the_cpu_has_a_name(monkeypatch):
    assert cpu_model()
    monkeypatch.setattr(module, "cpu_identity", lambda: "")
    assert cpu_model() == host_target().attrs["mcpu"]


def test_an_l3_far_away_keeps_little_of_what_it_has():
    here = replace(facts(host_target()), cores=2, l2_bytes=2 << 20, l3_bytes=480 << 20)
    assert (here.near_bytes, here.has_far_l3, here.kept_by_l3) == (4 << 20, True, 32 << 20)
    near = replace(here, l3_bytes=32 << 20)
    assert (near.has_far_l3, near.kept_by_l3) == (False, near.l3_bytes)
