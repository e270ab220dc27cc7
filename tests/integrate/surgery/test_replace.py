"""A function of a model is replaced by whatever computes the same, and by nothing else."""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
import tvm_ffi
from tunesmith.integrate.lowering.functions import prim_func_calls
from tvm import s_tir
from tvm.script import tirx as T

from ..conftest import record_of
from .conftest import FUNCTION, K, M, product


def choice(package: Any) -> Any:
    return next(c for c in package.choices if c.function == FUNCTION)


def compiled(model: Any, x: np.ndarray, y: np.ndarray, **options: Any) -> Any:
    """Compile and check that the output is that of the untouched model; return the choice."""
    package = ts.compile_model(model, **options)
    np.testing.assert_allclose(package.run({"x": x})["output_0"], y, rtol=1e-4, atol=1e-6)
    return choice(package)


@T.prim_func(s_tir=True)
def narrow(A: T.Buffer((6, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((6, 8), "float32")):
    P = T.sblock_alloc_buffer((6, 8))
    for i, j, k in T.grid(6, 8, 8):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                P[vi, vj] = T.float32(0)
            P[vi, vj] = P[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(6, 8):
        with T.sblock("positive"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(P[vi, vj], T.float32(0))


def by_hand(func: Any) -> Any:
    """Schedule a product by hand."""
    sch = s_tir.Schedule(func)
    sch.parallel(sch.get_loops(sch.get_sblock("product"))[0])
    return sch


def numpy_relu_matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.maximum(a @ b, 0, out=out)


def test_the_untouched_model_calls_the_function_twice(model: Any) -> None:
    names = [name for name, _ in prim_func_calls(model.prepared(ts.host_target()))]
    assert names.count(FUNCTION) == 2


def test_te_tensors_get_a_schedule(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    found = compiled(ts.replace(model, FUNCTION, product(M, K, K)), x, y)
    assert (found.origin, found.schedule) == ("default", "matmul")
    assert found.reason == "replaced by the PrimFunc; no database given"


def test_tvmscript_with_narrow_extents_gets_a_schedule(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    found = compiled(ts.replace(model, FUNCTION, narrow), x, y)
    assert (found.origin, found.schedule) == ("default", "matmul")
    assert found.reason.startswith("replaced by the PrimFunc narrow; ")


def test_a_scheduled_prim_func_stays_as_it_is(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    func = by_hand(narrow.with_attr("global_symbol", "main")).mod["main"]
    found = compiled(ts.replace(model, FUNCTION, func), x, y, strict=False)
    assert (found.origin, found.schedule, found.reason) == ("replaced", "own", "replaced by the PrimFunc")
    assert found.flops == 2 * M * K * K + 2 * M * K - M * K


def test_serial_loops_stay_if_asked_for(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    altered = ts.replace(model, FUNCTION, narrow, scheduled=True)
    assert compiled(altered, x, y).origin == "replaced"


def test_a_schedule_of_what_was_taken_out(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    taken = ts.take(model, FUNCTION)
    schedule, rule = ts.apply_default(taken.func, ts.host_target())
    assert compiled(ts.replace(model, FUNCTION, schedule), x, y).reason == "replaced by a schedule"
    found = compiled(ts.replace(model, FUNCTION, rule), x, y)
    assert (found.origin, found.reason) == ("replaced", f"replaced by the schedule {rule.name}")


def test_a_record(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    record = record_of(ts.take(model, FUNCTION))
    found = compiled(ts.replace(model, FUNCTION, record), x, y)
    assert found.reason == f"replaced by record {record.id} (matmul)"


def test_a_numpy_function(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    found = compiled(ts.replace(model, FUNCTION, numpy_relu_matmul), x, y)
    assert (found.origin, found.schedule) == ("replaced", "external")
    assert found.reason.startswith(
        "replaced by the Python function numpy_relu_matmul (test_replace.py, line "
    )
    assert (found.flops, found.calls) == (ts.take(model, FUNCTION).flops, 2)


def test_a_torch_function(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    torch = pytest.importorskip("torch")

    def relu_matmul(a: Any, b: Any, out: Any) -> None:
        torch.matmul(a, b, out=out).relu_()

    altered = ts.replace(model, FUNCTION, ts.External(relu_matmul, "torch"))
    assert compiled(altered, x, y).origin == "replaced"


def test_a_function_of_a_c_library(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    library = tvm.compile(tvm.IRModule({"own": narrow.with_attr("global_symbol", "own")}), ts.host_target())
    function = library["own"]
    found = compiled(ts.replace(model, FUNCTION, function), x, y)
    assert found.reason == "replaced by a compiled external function"
    tvm.register_global_func("tests.relu_matmul", function, override=True)
    assert compiled(ts.replace(model, FUNCTION, "tests.relu_matmul"), x, y).schedule == "external"
    with pytest.raises(ts.InputError, match=r"no global function 'tests\.relu': load the library"):
        ts.replace(model, FUNCTION, "tests.relu")


@pytest.mark.skipif(not (which("ninja") and which("g++")), reason="needs g++ and ninja")
def test_a_function_in_c_plus_plus(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    source = """
    void relu_matmul(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
      auto A = (const float*)a.data_ptr(), B = (const float*)b.data_ptr(); auto C = (float*)c.data_ptr();
      for (int64_t i = 0; i < c.size(0); ++i)
        for (int64_t j = 0; j < c.size(1); ++j) {
          float sum = 0;
          for (int64_t k = 0; k < a.size(1); ++k) sum += A[i * a.size(1) + k] * B[k * c.size(1) + j];
          C[i * c.size(1) + j] = sum > 0 ? sum : 0;
        }
    }"""
    library = tvm_ffi.cpp.load_inline(name="own", cpp_sources=source, functions=["relu_matmul"])
    found = compiled(ts.replace(model, FUNCTION, library.relu_matmul), x, y)
    assert (found.origin, found.schedule) == ("replaced", "external")


def test_a_function_of_a_c_library_by_ctypes(model: Any) -> None:
    exp = ctypes.CDLL(find_library("m")).expf
    exp.argtypes, exp.restype = [ctypes.c_float], ctypes.c_float

    def softmax(a: np.ndarray, out: np.ndarray) -> None:
        powers = np.array([[exp(v) for v in row] for row in a], np.float32)
        out[...] = powers / powers.sum(1, keepdims=True)

    assert ts.compile_model(ts.replace(model, "softmax", softmax)).run()["output_0"].shape == (M, 16)


def test_the_memory_is_shared_and_inputs_are_safe(model: Any, x: np.ndarray) -> None:
    seen: list[Any] = []

    def look(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        seen.append((a.flags.writeable, b.flags.owndata, out.flags.owndata, out.ctypes.data % 64))
        numpy_relu_matmul(a, b, out)

    ts.compile_model(ts.replace(model, FUNCTION, look)).run({"x": x})
    assert set(seen) == {(False, False, False, 0)}


def test_what_was_replaced_is_replaced_again(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    once = ts.replace(model, FUNCTION, numpy_relu_matmul)
    twice = ts.replace(once, FUNCTION, product(M, K, K))
    both = ts.replace(twice, "softmax", ts.take(twice, "softmax"))
    package = ts.compile_model(both)
    np.testing.assert_allclose(package.run({"x": x})["output_0"], y, rtol=1e-4, atol=1e-6)
    assert "numpy" not in choice(package).reason
    assert sum("replaced by" in c.reason for c in package.choices) == 2


def test_the_model_itself_stays_as_it_was(model: Any, x: np.ndarray, y: np.ndarray) -> None:
    ts.replace(model, FUNCTION, numpy_relu_matmul)
    assert "replaced" not in compiled(model, x, y).reason


def test_a_replacement_is_taken_out_tuned_and_put_back(
    model: Any, x: np.ndarray, y: np.ndarray, tmp_path: Path
) -> None:
    altered = ts.replace(model, FUNCTION, product(M, K, K))
    taken = ts.take(altered, FUNCTION)
    assert taken.hash != ts.take(model, FUNCTION).hash
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(taken))
        found = compiled(altered, x, y, database=database)
        original = compiled(model, x, y, database=database)
    assert found.origin == "record"
    assert found.reason.startswith("replaced by the PrimFunc; record test-")
    assert original.origin == "default"


def test_what_keeps_its_schedule_is_not_tuned(model: Any) -> None:
    for replacement in (numpy_relu_matmul, by_hand(narrow.with_attr("global_symbol", "main"))):
        altered = ts.replace(model, FUNCTION, replacement)
        assert FUNCTION not in [name for w in ts.extract_workloads(altered) for name in w.functions]
        with pytest.raises(ts.InputError, match=f"{FUNCTION} of module has no loops left to schedule"):
            ts.take(altered, FUNCTION)


def test_strict_takes_a_replacement_for_an_answer(model: Any, tmp_path: Path) -> None:
    altered = ts.replace(model, FUNCTION, numpy_relu_matmul)
    with ts.Database(tmp_path / "t.db") as database:
        for found in ts.extract_workloads(altered):
            database.add(record_of(found.workload))
        ts.compile_model(altered, database=database, strict=True)


def test_another_target_has_other_functions(model: Any) -> None:
    altered = ts.replace(model, FUNCTION, product(M, K, K))
    altered.replacements[0].original.__dict__["hash"] = "as for another target"
    altered._altered.clear()
    with pytest.raises(
        ts.InputError, match=f"{FUNCTION} was replaced as it is for another target: replace it"
    ):
        ts.compile_model(altered)


def test_the_profile_names_it(model: Any, x: np.ndarray) -> None:
    package = ts.compile_model(ts.replace(model, FUNCTION, numpy_relu_matmul))
    row = next(row for row in package.profile({"x": x}, repeat=1) if row["function"] == FUNCTION)
    assert (row["calls"], row["origin"], row["schedule"]) == (2, "replaced", "external")


def test_a_package_with_a_python_function_cannot_be_written(model: Any, tmp_path: Path) -> None:
    altered = ts.replace(model, FUNCTION, numpy_relu_matmul)
    message = (
        f"cannot be written as one file: {FUNCTION} was replaced by the Python function numpy_relu_matmul"
    )
    with pytest.raises(ts.InputError, match=message):
        ts.compile_model(altered, output=tmp_path / "m.tsm")
    with pytest.raises(ts.InputError, match=message):
        ts.compile_model(altered).export(tmp_path / "m.tsm")
    assert list(tmp_path.iterdir()) == []
