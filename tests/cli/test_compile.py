from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import tunesmith as ts

SHAPE = "m=8,n=16,k=4"


def test_an_operator_becomes_a_package(package, matmul):
    path, outcome = package
    assert [row["origin"] for row in outcome.rows] == ["default"] and "wrote" in outcome.stderr
    loaded = ts.load_package(path)
    inputs = {s.name: np.random.default_rng(1).random(s.shape).astype(s.dtype) for s in loaded.inputs}
    expected = matmul.reference(*inputs.values())
    np.testing.assert_allclose(loaded.run(inputs)["output_0"], expected, rtol=1e-5)


def test_the_best_record_is_applied(run, tuned):
    for option in ("--db", "--tuning-records"):
        words = ["compile", "matmul", "--shape", SHAPE, "--output", "x.tsm", option, tuned[0], "--strict"]
        outcome = run(*words, "--json")
        assert outcome.status == 0
        assert tuned[1].rows[0]["record"] in outcome.rows[0]["reason"]


def test_strict_without_a_record_ends_with_status_1_and_writes_nothing(run):
    outcome = run("compile", "matmul", "--shape", SHAPE, "--output", "x.tsm", "--strict")
    assert outcome.status == 1 and outcome.stdout == "" and "have no record: matmul" in outcome.stderr
    assert not Path("x.tsm").exists()


def test_a_model_becomes_a_package(run, onnx_file):
    outcome = run("compile", onnx_file, "-o", "net.tsm")
    assert outcome.status == 0 and "function" in outcome.stdout
    assert run("run", "net.tsm").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmul", "--shape", SHAPE], "missing option '-o' / '--output'"),
        (
            ["matmul", "--shape", SHAPE, "-o", "none/x.tsm"],
            "cannot write none/x.tsm: there is no folder",
        ),
        (["matmul", "--shape", SHAPE, "-o", "."], "it is a folder"),
        (["matmul", "--shape", SHAPE, "-o", "x.tsm", "--db", "none.db"], "there is no database none.db"),
        (
            ["matmul", "--shape", SHAPE, "-o", "x.tsm", "--input-shapes", "x:[1]"],
            "is not for an operator",
        ),
        (["matmul", "-o", "x.tsm"], "missing m, n, k"),
        (["matmul", "--shape", SHAPE, "-o", "x.tsm", "--target", "c"], "cannot run on this machine"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("compile", *words)


def test_the_output_is_checked_before_anything_else(refused):
    Path("model.onnx").write_text("no model at all")
    assert "cannot write none/x.tsm" in refused("compile", "model.onnx", "-o", "none/x.tsm")


def test_a_file_that_is_no_model(refused):
    Path("model.onnx").write_text("no model at all")
    assert refused("compile", "model.onnx", "-o", "x.tsm").startswith("not an ONNX model: model.onnx")


def test_an_unsupported_operator_is_named(refused, write_model):
    path = write_model("StringNormalizer", [1, 4])
    assert "unsupported ONNX operator: StringNormalizer" in refused("compile", path, "-o", "x.tsm")


def test_a_symbolic_dimension_is_named_and_bound(run, refused, write_model):
    path = write_model("Relu", ["batch", 4])
    line = refused("compile", path, "-o", "x.tsm")
    assert "'batch' of input 'x' is not bound" in line and '--input-shapes "x:[1,4]"' in line
    assert run("compile", path, "-o", "x.tsm", "--input-shapes", "x:[3,4]").status == 0
    assert run("run", "x.tsm", "--json").rows[0]["shape"] == [3, 4]
    assert "input shapes are written" in refused("compile", path, "-o", "x.tsm", "--input-shapes", "x:3,4")


def test_an_input_that_is_a_setting_gets_its_value(run, refused):
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 6] x, int64[2] to) => (float[n, m] y) { y = Reshape(x, to) }"""
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    words = ["compile", "m.onnx", "-o", "x.tsm"]
    assert "'to': give it with input_values (--input-values NAME:VALUE)" in refused(*words)
    assert run(*words, "--input-values", "to:[3,-1]").status == 0
    assert run("run", "x.tsm", "--json").rows[0]["shape"] == [3, 4]
    assert run("show", "m.onnx", "--input-values", "to:[12, 1]").status == 0
    for wrong in ("to", "to:", "to:[3", "to:x", "to:[3,-1] x"):
        assert "input values are written" in refused(*words, "--input-values", wrong)
    assert "unknown input 'two'" in refused(*words, "--input-values", "two:[3,-1]")
    assert "is int64[2] in this model, not 3" in refused(*words, "--input-values", "to:3")
    words = ["compile", "matmul", "--shape", SHAPE, "-o", "x.tsm"]
    assert "--input-values is not for an operator" in refused(*words, "--input-values", "to:3")


def test_each_phase_of_lowering_can_be_dumped(run, onnx_file, refused):
    assert run("compile", onnx_file, "-o", "net.tsm", "--dump", "phases").status == 0
    assert sorted(p.name for p in Path("phases").iterdir())[0] == "01_imported.py"
    words = ["matmul", "--shape", SHAPE, "-o", "x.tsm", "--dump", "phases"]
    assert "--dump is not for an operator" in refused("compile", *words)


def test_the_table_has_workload_calls_time_and_share(run, onnx_file):
    outcome = run("compile", onnx_file, "-o", "net.tsm", "--json")
    assert sum(row["share"] for row in outcome.rows) == pytest.approx(1)
    assert all(row["timing"] == "predicted" and row["calls"] >= 1 and row["workload"] for row in outcome.rows)
    assert "expected: " in outcome.stderr and " ms an inference" in outcome.stderr
