"""Threads, sound versions, and TVM's start-up without its slow parts."""

import importlib.metadata
import os
import subprocess
import sys

import pytest
from tunesmith.machine import process
from tunesmith.machine.errors import InputError

# TVM imports torch where it is installed, which takes longer than what is looked at here.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None"
SOUND = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}


def python(code, **environment):
    """Run code in a new process and return what it prints."""
    variables = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def cgroup(tmp_path):
    """Write a tree of control groups; return the quotas that bind a process in the given group."""

    def quotas(membership, files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        (tmp_path / "membership").write_text(membership)
        return list(process._cgroup_quotas(str(tmp_path / "membership"), str(tmp_path)))

    return quotas


def test_v2_quota_of_own_group_and_its_parents(cgroup):
    files = {"a/b/cpu.max": "150000 100000\n", "a/cpu.max": "max 100000\n", "cpu.max": "400000 100000\n"}
    assert cgroup("0::/a/b\n", files) == [1.5, 4.0]


def test_v2_group_that_a_container_does_not_see(cgroup):
    assert cgroup("0::/docker/0123\n", {"cpu.max": "200000 100000\n"}) == [2.0]


def test_v1_quota(cgroup):
    files = {
        "cpu,cpuacct/x/cpu.cfs_quota_us": "250000\n",
        "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert cgroup("3:cpuset:/y\n2:cpu,cpuacct:/x\n", files) == [2.5]


def test_no_control_groups(cgroup):
    assert cgroup("", {}) == []
    assert list(process._cgroup_quotas("/nonexistent", "/nonexistent")) == []


@pytest.mark.parametrize(
    ("quotas", "expected"), [([], 8), ([1.5], 2), ([0.01], 1), ([6.0, 2.0], 2), ([64.0], 8)]
)
def test_usable_cpus_is_the_least_limit_rounded_up(monkeypatch, quotas, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(process, "_cgroup_quotas", lambda: iter(quotas))
    assert process.usable_cpus() == expected


def test_tvm_gets_every_usable_cpu():
    code = f"{WITHOUT_TORCH}; import tunesmith, tvm; print(tvm.runtime.num_threads())"
    assert python(code, TVM_NUM_THREADS=None, OMP_NUM_THREADS=None) == str(process.usable_cpus())


def test_a_thread_count_of_the_user_stays():
    code = "import tunesmith, os; print(os.environ['TVM_NUM_THREADS'])"
    assert python(code, TVM_NUM_THREADS="7") == "7"


@pytest.fixture
def installed(monkeypatch):
    """Pretend that other versions are installed."""

    def pretend(**versions):
        found = {**SOUND, **{name.replace("_", "-"): version for name, version in versions.items()}}

        def version(package):
            if found[package] is None:
                raise importlib.metadata.PackageNotFoundError(package)
            return found[package]

        monkeypatch.setattr(importlib.metadata, "version", version)
        process.require_sound_tvm.cache_clear()

    yield pretend
    process.require_sound_tvm.cache_clear()


@pytest.mark.parametrize("ffi", ["0.1.14.post0", "0.1.14.post1", "0.1.14.post12"])
def test_sound_versions_pass(installed, ffi):
    installed(apache_tvm_ffi=ffi)
    process.require_sound_tvm()


@pytest.mark.parametrize(
    "ffi", ["0.1.15", "0.1.15.post1", "0.1.14", "0.1.14rc1", "0.1.13.post3", "0.1.140.post1"]
)
def test_a_tvm_ffi_that_crashes_is_refused(installed, ffi):
    installed(apache_tvm_ffi=ffi)
    with pytest.raises(InputError, match=f"apache-tvm-ffi must be .* found {ffi}; run: pip install"):
        process.require_sound_tvm()


def test_another_tvm_is_refused(installed):
    installed(apache_tvm="0.19.0")
    with pytest.raises(InputError, match=r"needs apache-tvm 0\.27\.0\.post1: found 0\.19\.0"):
        process.require_sound_tvm()


def test_a_missing_tvm_is_named(installed):
    installed(apache_tvm_ffi=None)
    with pytest.raises(InputError, match="apache-tvm-ffi is not installed; run: pip install"):
        process.require_sound_tvm()


def test_a_bad_tvm_ffi_is_found_before_tvm_is_imported():
    code = """
import importlib.metadata, sys
importlib.metadata.version = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post1"}.get
import tunesmith
try:
    tunesmith.tune
except ValueError as error:
    print(type(error).__name__, "tvm_ffi" in sys.modules)
"""
    assert python(code) == "InputError False"


def test_tvm_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("print('torch was imported')")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from tunesmith.machine.process import import_tvm
import_tvm()
print("tvm" in sys.modules)
import torch
"""
    assert python(code).splitlines() == ["True", "torch was imported"]


def test_tvm_without_the_runtime_that_its_wheel_lacks():
    code = """
import sys
asked = []
class Finder:
    find_spec = staticmethod(lambda name, path=None, target=None: asked.append(name))
sys.meta_path.insert(0, Finder)
from tunesmith.machine.process import import_tvm
import_tvm()
print("tvm.relax" in asked, "tvm.runtime.disco" in asked, "tvm.runtime.disco" in sys.modules)
"""
    assert python(code) == "True False False"


OTHER_DEVICES = """
import os
from tunesmith.machine.process import import_tvm
import_tvm()
import tvm_ffi
from tunesmith.machine.target import as_target, host_target
from tvm.backend.loader import is_loaded
from tvm.target import list_tags
tvm_ffi.get_global_func("tvm.contrib.sort.argsort")
host_target()
print(is_loaded("cuda"), as_target({"kind": "llvm"}).kind.name, is_loaded("cuda"))
print(as_target(os.environ.get("NAME", "nvidia/nvidia-h100")).kind.name, is_loaded("cuda"))
print(os.environ.get("TVM_DEVICE_BACKEND_AUTOLOAD"))
"""


def test_back_ends_of_other_devices_are_loaded_when_one_is_asked_for():
    expected = ["False llvm False", "cuda True", "None"]
    assert python(OTHER_DEVICES, TVM_DEVICE_BACKEND_AUTOLOAD=None).splitlines() == expected


def test_back_ends_that_the_user_does_not_want_stay_out():
    found = python(OTHER_DEVICES, TVM_DEVICE_BACKEND_AUTOLOAD="0", NAME="cuda").splitlines()
    assert found == ["False llvm False", "cuda False", "0"]


def test_torch_that_is_there_already_stays():
    code = """
import sys, types
sys.modules["torch"] = torch = types.ModuleType("torch")
from tunesmith.machine.process import import_tvm
import_tvm()
print(sys.modules["torch"] is torch)
"""
    assert python(code) == "True"


def test_only_the_intrinsics_of_the_target_are_loaded():
    code = f"""
{WITHOUT_TORCH}
import tvm
from tunesmith.machine.process import load_tensor_intrinsics
from tvm.s_tir.meta_schedule import TuneContext
target = tvm.target.Target({{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2}})
load_tensor_intrinsics(target)
TuneContext(target=target, num_threads=1)
def loaded():
    return sorted(n.rpartition(".")[2] for n in sys.modules if n.startswith("tvm.s_tir.tensor_intrin."))
print(loaded())
load_tensor_intrinsics(tvm.target.Target({{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}}))
print(tvm.s_tir.tensor_intrin.metal.__name__, hasattr(tvm.s_tir.tensor_intrin, "nonsense"))
import tvm.s_tir.tensor_intrin
print(loaded())
"""
    assert python(code).splitlines() == [
        "['x86']",
        "tvm.s_tir.tensor_intrin.metal False",
        "['arm_cpu', 'dot_product_common', 'metal', 'x86']",
    ]


CHECKED = """
from collections import Counter
import tunesmith as ts
from tunesmith.machine.process import import_tvm
import_tvm()
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import _type_checker
looked, look = Counter(), _type_checker._dispatcher
_type_checker._dispatcher = lambda type_: looked.update([type_]) or look(type_)
func, target = ts.workload("softmax", m=64, n=128).func, ts.host_target()
for _ in range(2):
    ts.apply_default(func, target)
print(set(looked.values()), len(looked) > 5)
try:
    Schedule(func).split("i", [None, 4])
except TypeError as error:
    print(error)
"""


def test_types_that_arguments_must_have_are_taken_apart_once():
    found, message = python(f"{WITHOUT_TORCH}\n{CHECKED}").splitlines()
    assert found == "{1} True"
    assert message.startswith('In "Schedule.split", "loop" has wrong type. Expected ')
