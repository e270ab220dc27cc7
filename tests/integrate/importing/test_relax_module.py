from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Scripted:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 2), "float32")) -> R.Tensor(
        ("n", 2), "float32"
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


class Layer(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(4, 2)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.linear(x))


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def exported() -> tuple[tvm.IRModule, Any]:
    mod, params = Layer().export_tvm({"forward": {"x": nn.spec.Tensor(["n", 4], "float32")}})
    for _name, parameter in params:
        parameter.data = values(*(int(d) for d in parameter.shape))
    return mod, params


def test_tvmscript_with_its_weights_bound() -> None:
    w, x = values(4, 2), values(3, 4)
    model = ts.load_model(Scripted, {"x": (3, 4)}, weights={"w": w})
    assert [(spec.name, spec.shape) for spec in model.inputs] == [("x", (3, 4))]
    np.testing.assert_allclose(ts.compile_model(model).run({"x": x})["output_0"], x @ w, rtol=1e-5)


def test_parameters_without_values_are_inputs() -> None:
    model = ts.load_model(Scripted, {"x": (3, 4)})
    assert [spec.name for spec in model.inputs] == ["x", "w"]
    assert model.weights == {}


def test_a_module_of_the_nn_frontend_with_its_parameters() -> None:
    mod, params = exported()
    x = values(3, 4)
    model = ts.load_model(mod, {"x": (3, 4)}, weights=params)
    weight, bias = (parameter.data.numpy() for _name, parameter in params)
    wanted = np.maximum(x @ weight.T + bias, 0)
    np.testing.assert_allclose(ts.compile_model(model).run({"x": x})["output_0"], wanted, rtol=1e-5)


def test_weights_are_kept_with_their_values() -> None:
    mod, params = exported()
    model = ts.load_model(mod, {"x": (3, 4)}, weights=params, keep_weights=True)
    assert [spec.name for spec in model.inputs] == ["x", "linear.weight", "linear.bias"]
    bound = ts.compile_model(ts.load_model(mod, {"x": (3, 4)}, weights=params)).run({"x": values(3, 4)})
    kept = ts.compile_model(model).run(
        {"x": values(3, 4), **{n: w.numpy() for n, w in model.weights.items()}}
    )
    np.testing.assert_allclose(kept["output_0"], bound["output_0"], rtol=1e-6)


def test_weights_that_a_function_carries_itself_are_bound() -> None:
    mod = Scripted.clone()
    func = Scripted["main"].with_attr("num_input", 1).with_attr("params", [tvm.runtime.tensor(values(4, 2))])
    mod.update_func(mod.get_global_var("main"), func)
    assert [spec.name for spec in ts.load_model(mod, {"x": (3, 4)}).inputs] == ["x"]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"v": values(4, 2)}, "unknown parameter of 'main' 'v'"),
        ({"w": values(4, 3)}, r"input 'w' has the shape \[4,2\] in this model, not \[4, 3\]"),
        ({"w": values(4, 2).astype("float64")}, "the weight 'w' is float32 in this module, not float64"),
        (None, "'n' of input 'x' is not bound"),
    ],
)
def test_weights_that_do_not_fit(weights: Any, message: str) -> None:
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(Scripted, weights=weights)


def test_a_parameter_without_a_value() -> None:
    mod, params = exported()
    params[0][1].data = None
    with pytest.raises(ts.InputError, match=r"'linear\.weight' has no value"):
        ts.load_model(mod, {"x": (3, 4)}, weights=params)


def test_inputs_and_outputs_are_tensors() -> None:
    builder, shape = relax.BlockBuilder(), relax.Var("s", relax.ShapeType(ndim=2))
    with builder.function("main", [shape]):
        builder.emit_func_output(shape)
    with pytest.raises(ts.InputError, match="input 's' is no tensor of known rank"):
        ts.load_model(builder.get())


def test_several_functions_need_a_main() -> None:
    func = Scripted["main"]
    mod = tvm.IRModule({n: func.with_attr("global_symbol", n) for n in ("first", "second")})
    with pytest.raises(ts.InputError, match="needs a function 'main': it has first, second"):
        ts.load_model(mod)
