"""Graphs as exporters write them: shapes computed inside, symbolic dimensions, operators TVM lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tunesmith as ts
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from tunesmith.integrate.importing import onnx_rewriting
from tunesmith.integrate.importing.onnx_file import read_onnx
from tunesmith.integrate.importing.onnx_folding import specialize

VIEW = """
    n = Shape(x)
    i = Constant<value_int = 0>()
    b = Gather(n, i)
    axes = Constant<value_ints = [0]>()
    bs = Unsqueeze(b, axes)
    rest = Constant<value_ints = [2, -1]>()
    to = Concat<axis = 0>(bs, rest)
    y = Reshape(x, to)
"""
MASK = """
    n = Shape<start = 1>(x)
    axis = Constant<value_ints = [0]>()
    l = Squeeze(n, axis)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    r = Range(zero, l, one)
    ones = Constant<value_ints = [1]>()
    column = Unsqueeze(r, ones)
    keep = Less(r, column)
    low = Constant<value_float = -2.0>()
    y = Where(keep, x, low)
"""
PAD = """
    n = Shape(x)
    four = Constant<value_ints = [4, 4]>()
    over = Mod(n, four)
    missing = Sub(four, over)
    none = ConstantOfShape<value = int64[1] {0}>(two)
    pads = Concat<axis = 0>(none, missing)
    y = Pad(x, pads)
"""

OWN = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'


def model(
    path: Path, body: str, x: str = "float[b, l] x", y: str = "float[n, m] y", weights: str = ""
) -> Path:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({x}) => ({y}) {weights} {{ {body} }}'
    onnx.save(parser.parse_model(text), path)
    return path


def check(path: Path, **inputs: np.ndarray) -> None:
    """Compile a model for the shapes of the inputs and compare it with onnx's reference."""
    package = ts.compile_model(ts.load_model(path, {name: a.shape for name, a in inputs.items()}))
    expected = ReferenceEvaluator(str(path)).run(None, inputs)
    for got, wanted in zip(package.run(inputs).values(), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def operators(path: Path, **shapes: tuple[int, ...]) -> list[str]:
    proto = read_onnx(path)
    specialize(proto, shapes)
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize(
    ("body", "weights"), [(VIEW, ""), (MASK, ""), (PAD, "<int64[1] two = {2}>")], ids=["view", "mask", "pad"]
)
def test_shapes_computed_in_the_graph(tmp_path: Path, body: str, weights: str) -> None:
    path = model(
        tmp_path / "m.onnx", body, weights=weights, y="float[n, m] y" if body != VIEW else "float[n, m, k] y"
    )
    assert len(operators(path, x=(6, 6))) == 1
    check(path, x=values(6, 6))


def test_a_resize_to_a_computed_size(tmp_path: Path) -> None:
    body = 'n = Shape(other) y = Resize<mode = "linear">(x, , , n)'
    path = model(
        tmp_path / "m.onnx", body, "float[1, 2, h, w] x, float[1, 2, p, q] other", "float[1, 2, p, q] y"
    )
    check(path, x=values(1, 2, 3, 4), other=values(1, 2, 6, 5))


def test_a_branch_chosen_by_the_shape_takes_the_place_of_the_if(tmp_path: Path) -> None:
    body = """
        n = Size(x)
        few = Constant<value_int = 10>()
        small = Less(n, few)
        y = If(small) <
            then_branch = small_graph () => (float[b, l] u) { u = Neg(x) },
            else_branch = large_graph () => (float[b, l] v) { v = Abs(x) }
        >
    """
    path = model(tmp_path / "m.onnx", body)
    assert operators(path, x=(3, 3)) == ["Neg", "Identity"]
    assert operators(path, x=(4, 4)) == ["Abs", "Identity"]
    check(path, x=values(4, 4))


def test_an_operator_that_the_standard_defines_in_simpler_ones(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "y = Celu<alpha = 2.0>(x)")
    assert "Celu" not in operators(path, x=(2, 3))
    check(path, x=values(2, 3))


def test_local_functions_are_written_out(tmp_path: Path) -> None:
    text = f"""{OWN} g (float[2] x) => (float[2] y) {{ y = own.twice(x) }}
        <domain: "own", opset_import: ["" : 17]> twice (a) => (b) {{ b = Add(a, a) }}"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    got = ts.compile_model(ts.load_model(tmp_path / "m.onnx")).run({"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(got["output_0"], [2, 2])


def test_an_operator_of_another_domain_is_another_operator(tmp_path: Path) -> None:
    text = f"""{OWN} g (float[2] x) => (float[2] y) {{ y = own.Add(x, x) }}"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(ts.InputError, match=r"unsupported ONNX operator: own\.Add \(node 'y'\)"):
        ts.load_model(tmp_path / "m.onnx")


def test_random_numbers_and_large_results_are_not_folded(tmp_path: Path) -> None:
    body = """shape = Constant<value_ints = [4096, 4096]>() big = ConstantOfShape(shape)
        some = RandomNormal<shape = [2]>() y = Slice(big, zero, one) z = Add(some, some)"""
    path = model(
        tmp_path / "m.onnx",
        body,
        y="float[1, 4096] y, float[2] z",
        weights="<int64[1] zero = {0}, int64[1] one = {1}>",
    )
    assert operators(path, x=(2, 3)) == ["ConstantOfShape", "RandomNormal", "Slice", "Add"]


def test_what_no_output_depends_on_is_left_out(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "unused = Det(x) y = Neg(x)")
    check(path, x=values(3, 3))


def test_an_output_that_is_constant(tmp_path: Path) -> None:
    check(
        model(tmp_path / "m.onnx", "y = Shape(x) z = Neg(x)", y="int64[2] y, float[b, l] z"), x=values(2, 3)
    )


def test_weights_that_are_also_listed_as_inputs(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "t = Neg(w) y = Add(x, t)", "float[b, 2] x, float[2] w")
    proto = onnx.load(path)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    onnx.save(proto, path)
    assert operators(path, x=(3, 2)) == ["Add"]
    assert [spec.name for spec in ts.load_model(path, {"x": (3, 2)}).inputs] == ["x"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ("seq(float[2]) x", r"input 'x' is no tensor of numbers \(sequence\)"),
        ("string[2] x", r"input 'x' is no tensor of numbers \(strings\)"),
        ("float[] x", "has no shape"),
    ],
)
def test_inputs_that_are_no_tensors(tmp_path: Path, x: str, message: str) -> None:
    path: Any = tmp_path / "m.onnx"
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(model(path, "y = Identity(x)", x))


def test_a_scatter_has_nothing_to_pack(tmp_path: Path) -> None:
    body = "z = ScatterElements<axis = 1>(x, at, to) y = MatMul(z, w)"
    weights = "<int64[1, 2] at = {1, 3}, float[1, 2] to = {1.5, 2.5}, float[4, 1] w = {1, 2, 3, 4}>"
    check(model(tmp_path / "m.onnx", body, "float[1, 4] x", "float[1, 1] y", weights), x=values(1, 4))


def whole(path: Path, text: str, version: int = 17) -> Path:
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : {version}]> g {text}'), path)
    return path


@pytest.mark.parametrize("version", [11, 17])
@pytest.mark.parametrize(
    ("operator", "gates", "attributes"),
    [
        ("LSTM", 4, 'direction = "bidirectional"'),
        ("GRU", 3, "linear_before_reset = 1"),
        ("GRU", 3, 'direction = "reverse"'),
        ("RNN", 1, ""),
    ],
)
def test_recurrent_layers_become_their_steps(
    tmp_path: Path, operator: str, gates: int, attributes: str, version: int
) -> None:
    d = 2 if "bi" in attributes else 1
    path = tmp_path / "m.onnx"
    text = f"""(float[t, 2, 3] x, float[{d}, {4 * gates}, 3] w, float[{d}, {4 * gates}, 4] r,
        float[{d}, {8 * gates}] b) => (float[t, {d}, 2, 4] y, float[{d}, 2, 4] last)
        {{ y, last = {operator}<hidden_size = 4{", " * bool(attributes)}{attributes}>(x, w, r, b) }}"""
    whole(path, text, version)
    inputs = {"x": values(3, 2, 3), "w": values(d, 4 * gates, 3), "r": values(d, 4 * gates, 4)}
    check(path, **inputs, b=values(d, 8 * gates))


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_sequences_of_a_recurrent_layer_have_lengths(tmp_path: Path, operator: str) -> None:
    """Each sequence alone, of its length, gives the same; ONNX's reference takes no lengths."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    shapes = {"w": (2, 4 * gates, 3), "r": (2, 4 * gates, 4), "b": (2, 8 * gates)}
    weights = {name: values(*shape) for name, shape in shapes.items()}
    states = "y, last, cell" if operator == "LSTM" else "y, last"

    def run(x: np.ndarray, lengths: np.ndarray | None) -> list[np.ndarray]:
        declared = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
        steps, batch, _ = x.shape
        outputs = f"float[{steps}, 2, {batch}, 4] y" + "".join(
            f", float[2, {batch}, 4] {name}" for name in states.split(", ")[1:]
        )
        given = {**weights, "x": x} | ({} if lengths is None else {"lengths": lengths})
        kind, more = (", int32[2] lengths", ", lengths") if lengths is not None else ("", "")
        text = f"""(float[{steps}, {batch}, 3] x, {declared}{kind}) => ({outputs})
            {{ {states} = {operator}<hidden_size = 4, direction = "bidirectional">(x, w, r, b{more}) }}"""
        return list(ts.compile_model(ts.load_model(whole(tmp_path / "m.onnx", text))).run(given).values())

    x, lengths = values(4, 2, 3), np.array([2, 4], np.int32)
    y, *last = run(x, lengths)
    for i, n in enumerate(lengths):
        alone, *ends = run(np.ascontiguousarray(x[:n, i : i + 1]), None)
        np.testing.assert_allclose(y[:n, :, i : i + 1], alone, rtol=1e-5, atol=1e-6)
        assert not y[n:, :, i].any()
        for got, want in zip(last, ends, strict=True):
            np.testing.assert_allclose(got[:, i : i + 1], want, rtol=1e-5, atol=1e-6)


def test_unknown_extents_may_be_negative(tmp_path: Path) -> None:
    """As Paddle's exporter writes them."""
    path = model(tmp_path / "m.onnx", "y = Relu(x)")
    proto = onnx.load(path)
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(proto, path)
    rank = len(proto.graph.input[0].type.tensor_type.shape.dim)
    assert ts.load_model(path, {"x": (3,) * rank}).outputs[0].shape == (3,) * rank


def test_the_input_that_chooses_a_branch_is_named(tmp_path: Path) -> None:
    """A value for it leaves one branch, which may have all that is unsupported, or nothing of it."""
    text = """(float[2] x, int64 rate) => (float[2] y) {
        high = Constant<value = int64 {16000}>() equal = Equal(rate, high)
        y = If(equal) <then_branch = a () => (float[2] p) { p = Relu(x) },
                       else_branch = b () => (float[2] q) { q = Loop(x) <body = c () => () {}> }> }"""
    path = whole(tmp_path / "m.onnx", text)
    message = r"Loop .*depends at If \(node 'y'\) on the value of input 'rate': give it with input_values"
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(path)
    assert [s.name for s in ts.load_model(path, input_values={"rate": 16000}).inputs] == ["x"]


def test_a_recurrent_layer_with_peepholes_is_unsupported(tmp_path: Path) -> None:
    text = """(float[2, 1, 1] x, float[1, 4, 1] w, float[1, 4, 1] r, float[1, 3] p) => (float[2, 1, 1, 1] y)
        { y = LSTM<hidden_size = 1>(x, w, r, , , , , p) }"""
    with pytest.raises(ts.InputError, match=r"unsupported ONNX operator: LSTM \(node 'y'\)"):
        ts.load_model(whole(tmp_path / "m.onnx", text))


@pytest.mark.parametrize("auto_pad", ["", 'auto_pad = "SAME_UPPER", ', 'auto_pad = "SAME_LOWER", '])
@pytest.mark.parametrize(("strides", "shape"), [([3, 2], [10, 8]), ([2, 2], [6, 6]), ([2, 2], [5, 4])])
def test_a_transposed_convolution_that_gives_its_output(
    tmp_path: Path, strides: list[int], shape: list[int], auto_pad: str
) -> None:
    x, w = values(1, 2, 3, 3), values(2, 1, 3, 3)
    body = f"y = ConvTranspose<{auto_pad}strides = {strides}, output_shape = {shape}>(x, w)"
    text = (
        f"(float[1, 2, 3, 3] x, float[2, 1, 3, 3] w) => (float[1, 1, {shape[0]}, {shape[1]}] y) {{ {body} }}"
    )
    (got,) = ts.compile_model(ts.load_model(whole(tmp_path / "m.onnx", text))).run({"x": x, "w": w}).values()
    # Each pixel adds the kernel at its place; ONNX's reference does not take all of these.
    whole_sum = np.zeros([s * 2 + 3 + 1 for s in strides])
    for i, j, c in np.ndindex(3, 3, 2):
        whole_sum[strides[0] * i : strides[0] * i + 3, strides[1] * j : strides[1] * j + 3] += (
            x[0, c, i, j] * w[c, 0]
        )
    crops = [max(0, s * 2 + 3 - n) for s, n in zip(strides, shape, strict=True)]
    begins = [c // 2 if "UPPER" in auto_pad else c - c // 2 for c in crops]
    rows, columns = (slice(b, b + n) for b, n in zip(begins, shape, strict=True))
    np.testing.assert_allclose(got[0, 0], whole_sum[rows, columns], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attributes",
    [
        'mode = "linear"',
        'mode = "nearest"',
        'mode = "cubic", cubic_coeff_a = -0.5',
        'mode = "linear", antialias = 1',
    ],
)
def test_a_resize_by_a_factor_that_gives_no_whole_size(tmp_path: Path, attributes: str) -> None:
    body = f"y = Resize<{attributes}>(x, , scales)"
    weights = "<float[4] scales = {1.0, 1.0, 1.5, 0.7}>"
    path = whole(
        tmp_path / "m.onnx", f"(float[1, 2, h, w] x) => (float[1, 2, p, q] y) {weights} {{ {body} }}", 18
    )
    check(path, x=values(1, 2, 5, 7))


def test_sequences_are_resolved(tmp_path: Path) -> None:
    body = """s = SequenceConstruct(x, z) u = SequenceInsert(s, x, minus) v = SequenceErase(u, zero)
        a = SequenceAt(v, minus) b = ConcatFromSequence<axis = 0, new_axis = 1>(v)
        parts = SplitToSequence<axis = 1, keepdims = 0>(x)
        c = SequenceAt(parts, zero) n = SequenceLength(parts)"""
    weights = "<int64 minus = {-1}, int64 zero = {0}>"
    outputs = "float[2, 3] a, float[2, 2, 3] b, float[2] c, int64 n"
    path = model(tmp_path / "m.onnx", body, "float[2, 3] x, float[2, 3] z", outputs, weights)
    check(path, x=values(2, 3), z=2 * values(2, 3))


def test_quantized_layers(tmp_path: Path) -> None:
    body = """y = QLinearConv<pads = [1, 1, 1, 1]>(x, s, zx, w, ws, zw, s, zx, b)
        n = ConvInteger(x, w, zx, zw) m = QLinearMatMul(x, s, zx, x, s, zx, s, zx)"""
    weights = """<float s = {0.5}, uint8 zx = {128}, float[2] ws = {0.25, 0.5}, int8[2] zw = {0, 0},
        int32[2] b = {10, -20},
        int8[2, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3, -4, -5, -6, -7, -8, -9}>"""
    outputs = "uint8[1, 2, 4, 4] y, int32[1, 2, 2, 2] n, uint8[1, 1, 4, 4] m"
    path = model(tmp_path / "m.onnx", body, "uint8[1, 1, 4, 4] x", outputs, weights)
    check(path, x=np.random.default_rng(0).integers(100, 156, (1, 1, 4, 4), np.uint8))


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_the_extremum_of_infinities_and_of_nothing(tmp_path: Path, operator: str) -> None:
    path = model(tmp_path / "m.onnx", f"y = {operator}<axes = [1], keepdims = 0>(x)", y="float[n] y")
    inf = np.float32(np.inf)
    check(path, x=np.array([[-inf, -inf], [inf, inf], [-inf, 1], [np.nan, -inf]], np.float32)[:3])
    check(path, x=np.zeros((2, 3), np.float32))


def test_values_that_shapes_depend_on_are_bound(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", "y = Reshape(x, to)", "float[2, 6] x, int64[2] to")
    with pytest.raises(ts.InputError, match=r"Reshape \(node 'y'\) gives depends on the value of input 'to'"):
        ts.load_model(path)
    loaded = ts.load_model(path, input_values={"to": np.array([3, -1])})
    assert [s.name for s in loaded.inputs] == ["x"] and loaded.outputs[0].shape == (3, 4)
    with pytest.raises(ts.InputError, match="unknown input 'too'"):
        ts.load_model(path, input_values={"too": np.array([3, -1])})
    for value in ([3.5, 4], [3], 3, "three", ["a", "b"], None, [1 << 70, 1], [np.nan, 1.0]):
        with pytest.raises(ts.InputError, match=r"input 'to' is int64\[2\] in this model, not "):
            ts.load_model(path, input_values={"to": value})
    assert ts.load_model(path, input_values={"to": [3.0, -1]}).outputs[0].shape == (3, 4)


@pytest.mark.parametrize(
    ("body", "outputs", "message"),
    [
        ("y = NonZero(x)", "int64[2, n] y", r"NonZero \(node 'y'\) gives depends on the data"),
        ("y = Cast<to = 17>(x)", "float8e4m3fn[2, 2] y", r"unsupported type .* of 'y'"),
        (
            "y, a, b = BatchNormalization<training_mode = 1>(x, s, s, s, s)",
            "float[2, 2] y",
            "is in training mode",
        ),
        ("y = SequenceConstruct(x)", "seq(float[2, 2]) y", "output 'y' is no tensor"),
    ],
)
def test_what_would_be_wrong_is_refused(tmp_path: Path, body: str, outputs: str, message: str) -> None:
    weights = "<float[2] s = {1, 2}>" if "s)" in body else ""
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(model(tmp_path / "m.onnx", body, "float[2, 2] x", outputs, weights))


def test_what_tvm_imports_with_another_shape_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with this one, if it is left to TVM."""
    body = "y = ConvTranspose<output_shape = [5, 5], strides = [2, 2]>(i, i)"
    path = model(tmp_path / "m.onnx", body, "float[1, 1, 2, 2] i", "float[1, 1, 5, 5] y")
    assert ts.load_model(path).outputs[0].shape == (1, 1, 5, 5)
    monkeypatch.setattr(onnx_rewriting, "with_padding", lambda *_: None)
    message = r"ConvTranspose \(node 'y'\) wrongly: output 'y' becomes float32 of shape \(1, 1, 4, 4\), not"
    with pytest.raises(ts.InputError, match=message):
        ts.load_model(path)
