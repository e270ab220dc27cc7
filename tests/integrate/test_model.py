from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tunesmith as ts
import tvm
from onnx import helper
from tvm import relax

from .conftest import conv_net, write_onnx


def _add(path: Path, shapes: dict[str, list[int | str]]) -> Path:
    return write_onnx(path, [helper.make_node("Add", list(shapes), ["y"])], shapes, {"y": ["n", 4]})


def _module(shape: tuple[Any, ...]) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(result)
    return builder.get()


def test_describes_inputs_and_outputs(net: Any) -> None:
    assert net.name == "net"
    assert [(s.name, s.shape, s.dtype) for s in net.inputs] == [("x", (1, 3, 12, 12), "float32")]
    assert [(s.name, s.shape, s.dtype) for s in net.outputs] == [("output_0", (1, 10), "float32")]


def test_names_every_unsupported_operator_with_its_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("Foo", ["x"], ["z"], name="first"), helper.make_node("Bar", ["z"], ["y"])]
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": [1]}, {"y": [1]})
    with pytest.raises(
        ts.InputError, match=r"unsupported ONNX operators: Bar \(node 'y'\), Foo \(node 'first'\)"
    ):
        ts.load_model(path)


def test_what_the_importer_cannot_convert_is_an_input_error(tmp_path: Path, capsys: Any) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="NONSENSE")
    path = write_onnx(
        tmp_path / "m.onnx", [node], {"x": [1, 3, 8, 8], "w": [4, 3, 3, 3]}, {"y": [1, 4, 6, 6]}
    )
    with pytest.raises(
        ts.InputError, match=r"cannot import this ONNX model: Conv \(node 'y'\): Value NONSENSE"
    ) as caught:
        ts.load_model(path)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x08\x07"])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ts.InputError, match=r"not an ONNX model: .*m\.onnx"):
        ts.load_model(tmp_path / "m.onnx")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ts.InputError, match=r"no such model file: .*none\.onnx"):
        ts.load_model(tmp_path / "none.onnx")


def test_an_unbound_dimension_is_named_with_the_option_that_binds_it(tmp_path: Path) -> None:
    path = _add(tmp_path / "m.onnx", {"a": ["batch", 4], "b": [1, 4]})
    with pytest.raises(ts.InputError, match=r"""'batch' of input 'a' .* --input-shapes "a:\[1,4\]"$"""):
        ts.load_model(path)


def test_binding_one_input_binds_the_same_dimension_of_another(tmp_path: Path) -> None:
    path = _add(tmp_path / "m.onnx", {"a": ["batch", 4], "b": ["batch", 4]})
    model = ts.load_model(path, {"a": (3, 4)})
    assert [s.shape for s in model.inputs] == [(3, 4), (3, 4)]
    inputs = {n: np.random.default_rng(0).random((3, 4), np.float32) for n in "ab"}
    got = ts.compile_model(model).run(inputs)["output_0"]
    np.testing.assert_allclose(got, inputs["a"] + inputs["b"])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"c": (3, 4)}, "unknown input 'c'"),
        ({"a": (3, 5)}, r"input 'a' has the shape \[3,4\] in this model, not \[3, 5\]"),
        ({"a": (3, 4, 1)}, "input 'a' has the shape"),
        ({"a": (3, 4), "b": (2, 4)}, r"input 'b' has the shape \[3,4\] in this model, not \[2, 4\]"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    path = _add(tmp_path / "m.onnx", {"a": ["batch", 4], "b": ["batch", 4]})
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(path, shapes)


def test_sums_are_imported_as_additions(tmp_path: Path) -> None:
    shapes: dict[str, list[int | str]] = {"a": [2, 4], "b": [2, 4], "c": [1, 4]}
    path = write_onnx(
        tmp_path / "m.onnx", [helper.make_node("Sum", list(shapes), ["y"])], shapes, {"y": [2, 4]}
    )
    model = ts.load_model(path)
    assert model.mod.script().count("R.add(") == 2
    inputs = {n: np.random.default_rng(0).random(s, np.float32) for n, s in shapes.items()}  # type: ignore[arg-type]
    np.testing.assert_allclose(ts.compile_model(model).run(inputs)["output_0"], sum(inputs.values()))


def test_loading_leaves_the_file_alone(tmp_path: Path) -> None:
    path = conv_net(tmp_path / "net.onnx")
    before = path.read_bytes()
    ts.load_model(path)
    assert path.read_bytes() == before
    onnx.checker.check_model(onnx.load(path))


def test_a_relax_module_with_a_symbolic_dimension() -> None:
    n = tvm.tirx.Var("n", "int64")
    with pytest.raises(
        ts.InputError, match=r"""'n' of input 'x' is not bound; give --input-shapes "x:\[1,4\]"$"""
    ):
        ts.load_model(_module((n, 4)))
    model = ts.load_model(_module((n, 4)), {"x": (3, 4)})
    assert model.outputs[0].shape == (3, 4)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(ts.compile_model(model).run({"x": x})["output_0"], np.maximum(x, 0))


def test_a_relax_module_needs_a_main() -> None:
    with pytest.raises(ts.InputError, match="needs a function 'main'"):
        ts.load_model(tvm.IRModule({}))
