"""Say yourself what an operator of Relax becomes: GELU by its tanh formula, as a TE operator of one's own.

    python examples/05_custom_legalization.py

`LegalizeOps` turns each Relax operator into a PrimFunc; a map replaces its choice for the operators named.
What comes out is fused, scheduled, tuned and packed like everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tunesmith as ts
from tvm import relax, te
from tvm.relax import transform


def tanh_gelu(x: Any) -> Any:
    """0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))): half the arithmetic of the exact one, by erf."""
    half, root, cubic = (te.const(v, "float32") for v in (0.5, 0.7978845608, 0.044715))

    def of_element(*at: Any) -> Any:
        v = x[at]
        return half * v * (te.const(1, "float32") + te.tanh(root * (v + cubic * v * v * v)))

    # The extents of Relax are int64, and so must those be that a fusion meets: take them from x.
    return te.compute(x.shape, of_element, name="tanh_gelu")


def legalize_gelu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Turn relax.nn.gelu(x) into a call of the PrimFunc that TE makes of `tanh_gelu`."""
    return builder.call_te(tanh_gelu, call.args[0], primfunc_name_hint="tanh_gelu")


def network(batch: int, width: int) -> Any:
    """Return gelu(x W)."""
    weight = np.random.default_rng(0).standard_normal((width, width), dtype=np.float32) / width**0.5
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weight)))
            y = builder.emit_output(builder.emit(relax.op.nn.gelu(product)))
        builder.emit_func_output(y)
    return builder.get()


def main(batch: int = 64, width: int = 256) -> None:
    mod = network(batch, width)
    # Only what the map names is legalized here; tunesmith does the rest when the model is compiled.
    own = transform.LegalizeOps({"relax.nn.gelu": legalize_gelu}, skip_ops=["relax.matmul"])(mod)

    before, after = ts.compile_model(ts.load_model(mod)), ts.compile_model(ts.load_model(own))
    for choice in after.choices:
        print(f"{choice.function}: {choice.origin} ({choice.schedule})")
    assert after.choices[0].function == "fused_matmul_tanh_gelu"

    x = np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32)
    want, got = before.run({"x": x})["output_0"], after.run({"x": x})["output_0"]
    print(f"largest difference from the exact GELU: {np.abs(got - want).max():.1e}")
    np.testing.assert_allclose(got, want, atol=1e-3)  # what the formula itself is off by
    assert not np.array_equal(got, want)


if __name__ == "__main__":
    main()
