"""A slice of the ONNX project's backend test suite; `tunesmith study onnx` runs all of it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from onnx import TensorProto, helper
from onnx.backend.test.case import node as node_tests
from onnx.backend.test.runner import Runner
from tunesmith.integrate.onnx_backend import TunesmithBackend
from tunesmith.integrate.onnx_report import report
from tunesmith.integrate.onnx_suite import (
    CRASHED,
    FAILED,
    KNOWN,
    OUTCOMES,
    PASSED,
    TIMEOUT,
    WRONG,
    SuiteRow,
    run_suite,
    unexplained,
)

# A file of onnx's node tests each, and tests in it.
TESTS = {
    "add": "add",
    "averagepool": "averagepool_2d_same_upper",
    "batch_normalization": "batchnorm_epsilon",
    "bitshift": "bitshift_right_uint8",
    "concat": "concat_2d_axis_1",
    "conv": "conv_with_strides_padding",
    "convinteger": "convinteger_with_padding",
    "cumsum": "cumsum_1d",
    "erf": "erf",
    "gather": "gather_1 gather_negative_indices",
    "gemm": "gemm_all_attributes",
    "gru": "gru_defaults",
    "isinf": "isinf_negative",
    "layernormalization": "layer_normalization_2d_axis1",
    "lstm": "lstm_defaults",
    "matmul": "matmul_3d",
    "mod": "mod_float_edge_cases_fmod_0_float32",
    "max": "max_two_inputs",
    "maxpool": "maxpool_2d_pads",
    "pad": "edge_pad",
    "pow": "pow_types_int32_int32",
    "qlinearconv": "qlinearconv",
    "qlinearmatmul": "qlinearmatmul_2D_uint8_float16",
    "reducemax": "reduce_max_keepdims_random",
    "reshape": "reshape_negative_dim",
    "resize": "resize_upsample_scales_linear resize_downsample_scales_cubic",
    "slice": "slice slice_negative_axes",
    "softmax": "softmax_axis_1",
    "topk": "top_k_uint64",
    "transpose": "transpose_all_permutations_0",
    "where": "where_example",
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    """Return the wanted tests; importing a file of onnx's makes the tests in it."""
    with np.errstate(all="ignore"):
        for file in TESTS:
            import_module(f"onnx.backend.test.case.node.{file}")
    made = {case.name.removeprefix("test_"): case for case in node_tests._NodeTestCases}
    return {name: made[name] for names in TESTS.values() for name in names.split()}


@pytest.mark.filterwarnings("ignore")
def test_node_tests_of_the_onnx_project(cases: dict[str, Any]) -> None:
    for case in cases.values():
        prepared = TunesmithBackend.prepare(case.model, "CPU")
        for inputs, outputs in case.data_sets:
            Runner.assert_similar_outputs(outputs, prepared.run(inputs), case.rtol, case.atol)


def test_one_node() -> None:
    x = np.array([[-1, 2]], np.float32)
    (got,) = TunesmithBackend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x])
    np.testing.assert_array_equal(got, [[0, 2]])


def test_other_devices_and_other_inputs_than_tensors() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [value], [result])
    with pytest.raises(ts.InputError, match="device is 'CUDA'"):
        TunesmithBackend.prepare(helper.make_model(graph), "CUDA")
    with pytest.raises(ts.InputError, match="input 'x' is no tensor"):
        TunesmithBackend.run_model(helper.make_model(graph), [[np.ones(2, np.float32)]])


def row(test: str, outcome: str, operator: str = "Add") -> SuiteRow:
    return SuiteRow(test, "NodeModel", operator, outcome, "because | of this")


def test_what_is_imported_and_fails_needs_an_explanation() -> None:
    known = "test_attention_4d_causal_fp16"
    assert any(part in known for part in KNOWN)
    rows = [row("test_a", PASSED), row("test_b", "not converted"), row(known, WRONG)]
    assert unexplained(rows) == []
    bad = [row(f"test_{outcome}", outcome) for outcome in (WRONG, FAILED, CRASHED, TIMEOUT)]
    assert unexplained([*rows, *bad]) == bad


def test_the_page_holds_counts_and_every_operator_that_fails() -> None:
    text = report([row("a", PASSED), row("b", "not converted", "Foo"), row("c", CRASHED, "Bar")])
    assert "**1 of 3 tests pass.**" in text
    assert OUTCOMES["not converted"] in text
    (line,) = [line for line in text.splitlines() if line.startswith("| Foo")]
    assert line.endswith("because \\| of this |")
    assert "| c " in text.partition("not as expected")[2]


def test_a_test_that_takes_its_process_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunesmith.integrate import onnx_suite

    monkeypatch.setattr(onnx_suite, "suite_tests", lambda: {"test_a": "NodeModel"})
    monkeypatch.setattr(onnx_suite, "_operators", lambda: {})
    monkeypatch.setattr(onnx_suite, "run_test", sys.exit)
    told: list[str] = []
    (found,) = run_suite(["test_a"], workers=1, say=told.append)
    assert found.outcome == CRASHED and told == [f"test_a: crashed: {found.reason}"]


def test_an_unknown_test(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunesmith.integrate import onnx_suite

    monkeypatch.setattr(onnx_suite, "suite_tests", lambda: {"test_a": "NodeModel"})
    with pytest.raises(ts.InputError, match="has no 'test_b'"):
        list(run_suite(["test_b"]))
