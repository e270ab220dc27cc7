"""Linking: compiled code is loaded from a library, and still runs where nothing can be linked."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.arrays import aligned_empty, as_tensor
from tunesmith.machine.linking import export_library, load_code
from tunesmith.tuning.records.compilation import build


@pytest.fixture(scope="module")
def executable():
    return build(ts.workload("relu", m=8, n=16).func, "host")


def assert_computes(module):
    data, result = aligned_empty((8, 16), "float32"), aligned_empty((8, 16), "float32")
    data[...] = np.arange(-64, 64).reshape(8, 16)
    module["main"](as_tensor(data), as_tensor(result))
    np.testing.assert_array_equal(result, np.maximum(data, 0))


def mapped():
    return {line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if line.count(".so")}


def test_code_is_loaded_from_a_library_that_leaves_no_file(executable, tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert_computes(load_code(executable))
    assert any(path.startswith(str(tmp_path)) for path in mapped())
    assert not list(tmp_path.iterdir()) and not recwarn.list


def test_without_a_linker_code_is_compiled_in_memory_and_a_warning_says_so(executable, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(
        UserWarning, match=r"cannot link compiled code .*tunesmith doctor.* says what is missing"
    ):
        module = load_code(executable)
    assert_computes(module)
    assert not list(tmp_path.iterdir())


def test_a_compiler_of_ones_own_links(executable, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    path = tmp_path / "own.so"
    export_library(executable, str(path))
    assert path.read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_a_kernel_for_another_architecture_is_refused(triple):
    target = {"kind": "llvm", "mtriple": triple, "mcpu": "generic", "num-cores": 2}
    name = triple.partition("-")[0]
    with pytest.raises(ts.InputError, match=f"code for llvm {name} cannot run on this machine: it is llvm"):
        ts.compile(ts.workload("relu", m=8, n=16), target=target)
