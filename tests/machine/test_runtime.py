"""The runtime runs compiled code without the compiler, and beside it."""

import subprocess
import sys

import numpy as np
import pytest
import tvm
from tunesmith.machine import runtime
from tunesmith.machine.arrays import as_numpy, as_tensor
from tunesmith.machine.errors import InputError
from tvm import relax

RUN = """
import sys
from pathlib import Path
from tunesmith.machine.process import import_tvm
import_tvm("tvm_ffi")
import numpy as np
from tunesmith.machine.arrays import as_numpy, as_tensor
from tunesmith.machine.runtime import load_library, thread_count, virtual_machine
main = virtual_machine(load_library(Path(sys.argv[1])))["main"]
print(as_numpy(main(as_tensor(np.arange(4, dtype="float32")))), thread_count() > 0)
print([name for name in ("tvm", "torch") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    path = tmp_path_factory.mktemp("library") / "twice.so"
    tvm.compile(builder.get(), target=tvm.target.Target("llvm")).export_library(str(path))
    return path


def test_a_library_runs_without_tvm(library):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(library)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["[0. 2. 4. 6.] True", "[]"]


def test_a_library_runs_beside_tvm(library):
    machine = runtime.virtual_machine(runtime.load_library(library))
    np.testing.assert_array_equal(as_numpy(machine["main"](as_tensor(np.ones(4, "float32")))), 2)
    assert runtime.thread_count() == tvm.runtime.num_threads()


def test_without_the_library_it_is_said(monkeypatch):
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="TVM's runtime library is not there"):
        runtime.load_runtime.__wrapped__()
