from __future__ import annotations

from math import prod

import tunesmith as ts
import tvm
from tunesmith.integrate.lowering.cost import count_flops
from tvm import te


def test_a_convolution_counts_its_multiply_adds() -> None:
    w = ts.workload("conv2d", n=1, h=8, w=8, ci=4, co=6, kh=3, kw=3, stride=1, padding=1)
    assert count_flops(w.func) == 2 * prod(w.output.shape) * 3 * 3 * 4


def test_bias_and_relu_count_one_operation_an_element_each() -> None:
    w = ts.workload("linear_relu", m=4, n=8, k=16)
    assert count_flops(w.func) == 2 * 4 * 8 * 16 + 2 * 4 * 8


def test_copies_and_index_arithmetic_are_free() -> None:
    a = te.placeholder((8, 8), name="a")
    padded = te.compute(
        (10, 10), lambda i, j: tvm.tirx.if_then_else(tvm.tirx.all(i > 0, j > 0), a[i % 8, j % 8], 0.0)
    )
    assert count_flops(te.create_prim_func([a, padded])) == 0


def test_a_function_call_counts_one() -> None:
    a = te.placeholder((8,), name="a")
    assert count_flops(te.create_prim_func([a, te.compute((8,), lambda i: te.exp(a[i]))])) == 8
