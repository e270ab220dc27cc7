"""Rewrite patterns of a model's operators: x * sigmoid(x) to SiLU, a whole layer to a PrimFunc of one's own.

    python examples/06_pattern_rewriting.py

Relax has a language for patterns (`tvm.relax.dpl`) and a function that rewrites each match. The result may be
another Relax operator, or a call of any PrimFunc: here tunesmith's linear_relu, max(0, X W^T + bias).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tunesmith as ts
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard


def silu_of_products(main: relax.Function) -> relax.Function:
    """Rewrite x * sigmoid(x), also sigmoid(x) * x, to silu(x)."""
    x = wildcard()
    sigmoid = is_op("relax.sigmoid")(x)
    product = is_op("relax.multiply")(x, sigmoid) | is_op("relax.multiply")(sigmoid, x)
    return rewrite_call(product, lambda _call, matched: relax.op.nn.silu(matched[x]), main)


def own_linear_relu(mod: tvm.IRModule) -> tvm.IRModule:
    """Rewrite relu(x W + bias) to calls of tunesmith's operator linear_relu, whose weight is (n, k)."""
    x, weight, bias = wildcard(), is_const(), is_const()
    layer = is_op("relax.nn.relu")(is_op("relax.add")(is_op("relax.matmul")(x, weight), bias))
    builder = relax.BlockBuilder(mod)

    def rewritten(call: relax.Call, matched: Any) -> relax.Expr:
        (m, n), k = (int(extent) for extent in call.ty.shape), int(matched[x].ty.shape[1])
        func = ts.workload("linear_relu", m=m, n=n, k=k).func.without_attr("global_symbol")
        place = builder.add_func(func, "linear_relu")
        transposed = relax.const(np.ascontiguousarray(matched[weight].value.numpy().T))
        return relax.call_tir(place, [matched[x], transposed, matched[bias]], out_ty=call.ty)

    main = rewrite_call(layer, rewritten, mod["main"])
    builder.update_func(mod.get_global_var("main"), main)
    return builder.get()


def network(batch: int, width: int) -> Any:
    """Return h * sigmoid(h) of h = relu(x W + bias) V."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal((width, width), dtype=np.float32) / width**0.5 for _ in range(2))
    b = rng.standard_normal(width, dtype=np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(w)))
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(product, relax.const(b)))))
            h = builder.emit(relax.op.matmul(hidden, relax.const(v)))
            y = builder.emit_output(builder.emit(relax.op.multiply(builder.emit(relax.op.sigmoid(h)), h)))
        builder.emit_func_output(y)
    return builder.get()


def main(batch: int = 64, width: int = 256) -> None:
    mod = network(batch, width)
    own = mod.clone()
    own.update_func(own.get_global_var("main"), silu_of_products(own["main"]))
    assert "silu" in own.script() and "sigmoid" not in own.script()
    own = own_linear_relu(own)
    assert "call_tir(cls.linear_relu" in own.script()

    before, after = ts.compile_model(ts.load_model(mod)), ts.compile_model(ts.load_model(own))
    for choice in after.choices:
        print(f"{choice.function}: {choice.origin} ({choice.schedule})")
    x = np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32)
    want, got = before.run({"x": x})["output_0"], after.run({"x": x})["output_0"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    print("the outputs are those of the untouched model")


if __name__ == "__main__":
    main()
