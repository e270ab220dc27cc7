"""Operators and workloads: what they refuse and in which words, and what a workload knows of itself."""

import pickle

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels import OPERATORS
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.signature import ArgSpec
from tvm import te
from tvm.script import tirx as T

CONV = {"n": 1, "h": 5, "w": 5, "ci": 4, "co": 6, "kh": 3, "kw": 3}


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("attenton", {}, "unknown operator 'attenton'; did you mean attention?"),
        ("xyz", {}, f"unknown operator 'xyz'; there are: {', '.join(sorted(OPERATORS))}"),
        ("matmul", {"m": 1, "n": 1}, "matmul needs m, n, k: missing k"),
        ("matmul", {"m": 1}, "matmul needs m, n, k: missing n, k"),
        ("matmul", {"m": 1, "n": 1, "k": 1, "kk": 1}, "unknown dimension of matmul 'kk'; did you mean k?"),
        ("matmul", {"m": 0, "n": 1, "k": 1}, "m must be an integer of at least 1: m=0"),
        ("matmul", {"m": -3, "n": 1, "k": 1}, "m must be an integer of at least 1: m=-3"),
        ("matmul", {"m": 1.5, "n": 1, "k": 1}, "m must be an integer of at least 1: m=1.5"),
        ("matmul", {"m": "x", "n": 1, "k": 1}, "m must be an integer of at least 1: m='x'"),
        ("matmul", {"m": True, "n": 1, "k": 1}, "m must be an integer of at least 1: m=True"),
        ("matmul", {"m": 1, "n": 1, "k": 1, "dtype": "float33"},
         "matmul supports dtype float32, float64, float16, bfloat16, int8: dtype='float33'"),
        ("conv2d", {**CONV, "padding": -1}, "padding must be an integer of at least 0: padding=-1"),
        ("conv2d", {**CONV, "layout": "nhwc"},
         "layout must be one of NHWC, NCHW, NCHW8c, NCHW16c: layout='nhwc'"),
        ("conv2d", {**CONV, "bias": 2}, "bias must be one of 0, 1: bias=2"),
        ("conv2d", {**CONV, "groups": 4}, "groups must divide ci and co: groups=4, ci=4, co=6"),
        ("conv2d", {**CONV, "kh": 6},
         "dilation * (kh - 1) + 1 must be at most h + 2 * padding: "
         "kh=6, h=5, dilation=1, padding=0"),
        ("conv2d", {**CONV, "dilation": 3},
         "dilation * (kh - 1) + 1 must be at most h + 2 * padding: "
         "kh=3, h=5, dilation=3, padding=0"),
        ("conv2d", {**CONV, "kw": 8, "padding": 1},
         "dilation * (kw - 1) + 1 must be at most w + 2 * padding: "
         "kw=8, w=5, dilation=1, padding=1"),
    ],
)  # fmt: skip
def test_wrong_input_gets_one_line(name, shape, message):
    with pytest.raises(ts.InputError) as caught:
        ts.workload(name, **shape)
    assert str(caught.value) == message


def test_numpy_integers_are_integers():
    assert ts.workload("add", m=np.int64(3), n=2).shape == {"m": 3, "n": 2}


def test_a_shape_is_completed_with_defaults():
    workload = ts.workload("conv2d", **CONV, bias=True)
    assert workload.label == (
        "conv2d n=1,h=5,w=5,ci=4,co=6,kh=3,kw=3,"
        "stride=1,padding=0,dilation=1,groups=1,layout=NHWC,bias=1,residual=0,relu=0"
    )


def test_a_workload_lists_its_arguments_in_call_order():
    workload = ts.workload("linear_relu", m=2, n=3, k=5)
    assert workload.inputs == (
        ArgSpec("x", (2, 5), "float32"),
        ArgSpec("weight", (3, 5), "float32"),
        ArgSpec("bias", (3,), "float32"),
    )
    assert (workload.output.shape, workload.output.dtype) == ((2, 3), "float32")
    assert workload.weights == ()
    assert workload.label == "linear_relu m=2,n=3,k=5"


@pytest.mark.parametrize(("dtype", "nbytes"), [("float64", 120), ("bfloat16", 30), ("bool", 15), ("int4", 8)])
def test_the_size_of_an_argument(dtype, nbytes):
    assert ArgSpec("x", (3, 5), dtype).nbytes == nbytes


def test_the_hash_sees_the_computation_and_not_the_names():
    def doubled(argument, block, extent=4):
        x = te.placeholder((extent,), "float32", name=argument)
        return as_prim_func([x, te.compute((extent,), lambda i: x[i] * 2.0, name=block)])

    def workload(func, name):
        return ts.Workload(name=name, shape={}, dtype="float32", func=func, flops=4)

    first = workload(doubled("x", "twice"), "one")
    assert workload(doubled("operand", "result"), "two").hash == first.hash
    assert workload(doubled("x", "twice", extent=5), "one").hash != first.hash


def test_a_workloads_reference_can_be_sent_to_another_process():
    workload = ts.workload("matmul", m=2, n=2, k=2)
    reference = pickle.loads(pickle.dumps(workload.reference))
    one = np.eye(2, dtype="float32")
    np.testing.assert_array_equal(reference(one, one), one)


def test_a_prim_func_is_named_main():
    @T.prim_func(s_tir=True)
    def triple(a: T.handle):
        A = T.match_buffer(a, (4,), "float32")
        for i in T.serial(4):
            with T.sblock("triple"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] * T.float32(3)

    assert as_prim_func(triple).attrs["global_symbol"] == "main"


def test_an_unbound_symbolic_dimension_is_named():
    n = tvm.tirx.Var("n", "int64")
    x = te.placeholder((n, 16), "float32", name="x")
    func = te.create_prim_func([x, te.compute((n, 16), lambda i, j: x[i, j] + 1.0, name="y")])
    workload = ts.Workload(name="f", shape={}, dtype="float32", func=func, flops=1)
    with pytest.raises(ts.InputError, match=r"x is of shape \(n, 16\); bind its symbolic dimensions"):
        _ = workload.args
