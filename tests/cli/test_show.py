import json

import pytest
import tvm
from tunesmith.cli.steps import gain

SHAPE = "m=8,n=16,k=4"


@pytest.mark.parametrize(
    ("form", "sign"),
    [
        ("tir", "T.prim_func"),
        ("trace", "sch.get_sblock"),
        ("llvm", "target triple"),
        ("asm", ".text"),
        ("c", "void matmul("),
    ],
)
def test_each_form_shows_its_text(run, form, sign):
    outcome = run("show", "matmul", "--shape", SHAPE, "--as", form)
    assert outcome.status == 0 and sign in outcome.stdout
    assert outcome.stderr.startswith("matmul m=8,n=16,k=4")
    assert " float32, schedule matmul: " in outcome.stderr


@pytest.mark.parametrize(
    ("operator", "shape", "line"),
    [
        ("matmul", "m=64,n=64,k=64", "inner loop .LBB"),
        ("relu", "m=64,n=64", "no inner loop multiplies and adds in one instruction"),
    ],
)
def test_assembly_comes_with_a_line_about_its_inner_loop(run, operator, shape, line):
    outcome = run("show", operator, "--shape", shape, "--as", "asm")
    assert outcome.stderr.splitlines()[1].startswith(line)
    assert run("show", operator, "--shape", shape, "--as", "asm", "--json").stderr == ""


def test_a_knob_changes_the_schedule(run):
    texts = {run("show", "matmul", "--shape", SHAPE, "--knob", f"mr={mr}").stdout for mr in (1, 2, 4)}
    assert len(texts) == 3


def test_the_json_row_has_all_knobs(run):
    (row,) = run("show", "matmul", "--shape", SHAPE, "--knob", "mr=2", "--json").rows
    assert row["knobs"]["mr"] == 2 and len(row["knobs"]) > 1
    assert row["schedule"] == "matmul" and "T.prim_func" in row["text"]


def test_unscheduled_is_the_definition(run, matmul):
    outcome = run("show", "matmul", "--shape", SHAPE, "--schedule", "unscheduled", "--json")
    assert outcome.rows[0]["knobs"] == {}
    shown = tvm.script.from_source(outcome.rows[0]["text"])
    tvm.ir.assert_structural_equal(shown["main"], matmul.func)


def test_the_steps_are_told_with_their_loops_and_times(run):
    outcome = run("show", "matmul", "--shape", SHAPE, "--steps")
    assert outcome.status == 0
    for sign in (
        "unscheduled: ",
        "1. ",
        "   # ",
        "x the step before, ",
        "     + ",
        "after all steps:",
        "verdict",
    ):
        assert sign in outcome.stdout
    assert "schedule matmul: " in outcome.stderr
    rows = run("show", "relu", "--shape", "m=64,n=256", "--steps", "--json").rows
    assert [row["step"] for row in rows] == list(range(len(rows))) and len(rows) > 2
    assert all(row["schedule"] == "general" and row["median_s"] > 0 for row in rows)


def test_unscheduled_has_no_steps(run):
    rows = run("show", "matmul", "--shape", SHAPE, "--schedule", "unscheduled", "--steps", "--json").rows
    assert [row["step"] for row in rows] == [0]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, ""),
        (0.994, "0.99x"),
        (0.999, "1.0x"),
        (1.04, "1.0x"),
        (9.97, "10x"),
        (12.6, "13x"),
        (118, "120x"),
    ],
)
def test_gains_have_two_digits(ratio, text):
    assert gain(ratio) == text


def test_a_file_of_ones_own(run, user_file):
    assert "double" in run("show", f"{user_file}:DOUBLE", "--shape", "n=7").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmull", "--shape", SHAPE], "unknown operator 'matmull'; did you mean matmul"),
        (["matmul"], "matmul needs m, n, k: missing m, n, k"),
        (["matmul", "--shape", "m=8,n=8"], "missing k"),
        (["matmul", "--shape", "m=0,n=8,k=8"], "m must be an integer of at least 1: m=0"),
        (["matmul", "--shape", "m=-3,n=8,k=8"], "m must be an integer of at least 1: m=-3"),
        (["matmul", "--shape", "m=8,n=8,kk=8"], "unknown dimension of matmul 'kk'; did you mean k?"),
        (["matmul", "--shape", "8,8,8"], "a shape is written NAME=VALUE"),
        (["matmul", "--shape", SHAPE, "--dtype", "int4"], "matmul supports dtype float32"),
        (["matmul", "--shape", SHAPE, "--target", "llvmm"], "unknown target 'llvmm'; did you mean llvm?"),
        (["matmul", "--shape", SHAPE, "--schedule", "matmull"], "unknown schedule 'matmull'"),
        (["matmul", "--shape", SHAPE, "--schedule", "conv2d"], "those that do: matmul, general"),
        (["matmul", "--shape", SHAPE, "--knob", "block_row=3"], "did you mean block_rows"),
        (["matmul", "--shape", SHAPE, "--knob", "mr=x"], "a knob is written NAME=VALUE"),
        (["matmul", "--shape", SHAPE, "--knob", "mr=-4"], "an integer from 0 on, as in mr=8: 'mr=-4'"),
        (["matmul", "--shape", SHAPE, "--knob", "mr=1", "--knob", "mr=2"], "mr is given twice"),
        (["matmul", "--shape", SHAPE, "--knob", "lanes=3"], "knobs must keep the rule"),
        (["matmul", "--shape", SHAPE, "--schedule", "unscheduled", "--knob", "mr=1"], "has no knobs"),
        (
            ["matmul", "--shape", SHAPE, "--steps", "--as", "asm"],
            "--steps prints loop nests: leave --as asm out",
        ),
        (["nowhere.py:X"], "no such file: nowhere.py"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("show", *words)


def test_a_model_is_shown_before_anything_is_compiled(run, onnx_file):
    outcome = run("show", str(onnx_file))
    assert outcome.status == 0
    assert outcome.stdout.startswith("two: ") and "output  output_0" in outcome.stdout
    (row,) = map(json.loads, run("show", str(onnx_file), "--json").stdout.splitlines())
    assert [spec["name"] for spec in row["inputs"]] == ["x"]
    assert sum(function["share"] for function in row["functions"]) == pytest.approx(1)


@pytest.mark.parametrize(
    "options", [("--shape", "m=1"), ("--dtype", "float32"), ("--schedule", "x"), ("--steps",), ("--as", "c")]
)
def test_options_of_operators_are_refused_for_a_model(run, onnx_file, options):
    outcome = run("show", str(onnx_file), *options)
    assert outcome.status == 2 and f"{options[0]} is not for a model" in outcome.stderr
