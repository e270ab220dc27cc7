"""The VNNI intrinsic: registered in place of TVM's, it compiles and is exact."""

import numpy as np
import pytest
import tvm
from tunesmith.machine.dot_instructions import VPDPBUSD_512, performed_by
from tunesmith.machine.process import load_tensor_intrinsics
from tunesmith.machine.target import host_target
from tvm.s_tir import Schedule, TensorIntrin
from tvm.target import codegen


def dot_product(n, k):
    """Return int32 C[n] = sum over k of uint8 A[k] * int8 B[n, k]."""
    A = tvm.te.placeholder((k,), "uint8", name="A")
    B = tvm.te.placeholder((n, k), "int8", name="B")
    r = tvm.te.reduce_axis((0, k), name="r")
    C = tvm.te.compute(
        (n,), lambda j: tvm.te.sum(A[r].astype("int32") * B[j, r].astype("int32"), axis=r), name="C"
    )
    return tvm.te.create_prim_func([A, B, C])


def test_the_intrinsic_is_exact_over_the_full_range():
    target = host_target()
    if not codegen.llvm_cpu_has_features("avx512vnni", target):
        pytest.skip("needs AVX-512 VNNI")
    load_tensor_intrinsics(target)
    sch = Schedule(dot_product(16, 4))
    block = sch.get_sblock("C")
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    sch.tensorize(sch.get_loops(sch.get_sblock("C_update"))[0], "dot_16x4_vnni")
    built = tvm.compile(sch.mod, target=target)
    a = np.array([255, 254, 1, 255], np.uint8)
    b = np.random.default_rng(0).integers(-128, 128, (16, 4)).astype(np.int8)
    result = tvm.runtime.empty((16,), "int32")
    built["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
    np.testing.assert_array_equal(result.numpy(), b.astype(np.int32) @ a.astype(np.int32))
    assert "vpdpbusd" in built.mod.inspect_source("asm")


def test_it_replaces_the_one_of_tvm():
    load_tensor_intrinsics(tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"}))
    assert TensorIntrin.get("dot_16x4_vnni").impl.same_as(performed_by(VPDPBUSD_512))
