"""What `doctor` finds, and that it finds it without falling over."""

import importlib.metadata
import subprocess
import sys
from dataclasses import replace

import pytest
import tunesmith
from tunesmith.machine import diagnosis, facts, peaks
from tunesmith.machine.diagnosis import diagnose
from tunesmith.machine.process import require_sound_tvm, usable_cpus

VERSION = importlib.metadata.version
pytestmark = pytest.mark.usefixtures("kept_peaks")


def found(name):
    return next(check for check in diagnose() if check.name == name)


def test_this_machine_is_sound():
    checks = diagnose()
    assert [check for check in checks if not check.ok] == []
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert {
        "python",
        "apache-tvm",
        "C++ compiler",
        "cache folder",
        "TVM's threads",
        "target",
        "caches",
    } <= set(names)
    assert all(check.found and "\n" not in check.found for check in checks)


def test_the_folder_and_the_versions_are_those_in_use():
    assert found("tunesmith's folder").found == str(tunesmith.__path__[0])
    assert found("tunesmith").found == tunesmith.__version__
    assert found("usable CPUs").found.startswith(f"{usable_cpus()} of ")


def test_a_missing_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    check = found("C++ compiler")
    assert not check.ok
    assert "apt install g++" in check.advice


def test_a_compiler_of_the_environment_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert found("C++ compiler").found == "none of no-such-compiler"


def test_a_cache_folder_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check = found("cache folder")
    assert not check.ok
    assert "Not a directory" in check.found
    assert "XDG_CACHE_HOME" in check.advice


def test_a_missing_package(monkeypatch):
    def version(package):
        if package == "xgboost":
            raise importlib.metadata.PackageNotFoundError(package)
        return VERSION(package)

    monkeypatch.setattr(diagnosis, "version", version)
    check = found("xgboost")
    assert (check.ok, check.found, check.advice) == (False, "not installed", "run: pip install xgboost")


@pytest.fixture
def bad_tvm_ffi(monkeypatch):
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: "0.1.15.post1" if name == "apache-tvm-ffi" else VERSION(name),
    )
    require_sound_tvm.cache_clear()
    yield
    require_sound_tvm.cache_clear()


def test_a_tvm_ffi_that_crashes(bad_tvm_ffi):
    check = found("TVM")
    assert not check.ok
    assert check.found.endswith("found 0.1.15.post1")
    assert check.advice.startswith("run: pip install 'apache-tvm==")
    assert "target" not in [check.name for check in diagnose()]


def test_a_bad_tvm_is_found_before_it_is_imported():
    code = """
import importlib.metadata, sys
real = importlib.metadata.version
importlib.metadata.version = lambda name: "0.1.15.post1" if name == "apache-tvm-ffi" else real(name)
from tunesmith.machine.diagnosis import diagnose
print([check.name for check in diagnose() if not check.ok], "tvm" in sys.modules, "tvm_ffi" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['TVM'] False False", done.stderr


def test_an_error_of_a_look_is_a_finding(monkeypatch):
    def broken(target):
        raise OSError("two\nlines")

    monkeypatch.setattr(facts, "facts", broken)
    check = found("facts")
    assert (check.ok, check.found) == (False, "OSError: two lines")


def test_more_threads_than_cpus(monkeypatch):
    monkeypatch.setattr(diagnosis, "usable_cpus", lambda: 0)
    check = found("TVM's threads")
    assert not check.ok
    assert "set TVM_NUM_THREADS=0" in check.advice


def test_limits_are_measured_again(kept_peaks, monkeypatch, tmp_path):
    """Those that were first measured on a busy machine would be too low for good."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peaks._store(replace(kept_peaks, memory_gbps=kept_peaks.memory_gbps / 7))
    peaks._peaks_of_process.cache_clear()
    assert found("bandwidth in GB/s").found.startswith(f"memory {kept_peaks.memory_gbps:.0f}, ")
