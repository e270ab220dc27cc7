"""A user's own operator, FILE.py:NAME, and every way to get it wrong."""

import pickle
import subprocess
import sys

import pytest
import tunesmith as ts
from tunesmith.kernels import operator

DOUBLE = """
from tvm import te
from tunesmith.kernels.operator import Dim, Operator

def define(n, dtype):
    x = te.placeholder((n,), dtype, name="x")
    return [x, te.compute((n,), lambda i: x[i] + x[i], name="double")]

DOUBLE = Operator(
    name="double", dims=(Dim("n"),), define=define,
    reference=lambda x, n: x + x, flops=lambda n: n, examples=(),
)
OTHER = 3
"""

SCRIPTED = """
import tvm
from tvm.script import tirx as T
from tunesmith.kernels.operator import Dim, Operator

def define(n, dtype):
    extent = tvm.tirx.IntImm("int64", n)

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (extent,), dtype)
        B = T.match_buffer(b, (extent,), dtype)
        for i in T.serial(extent):
            with T.sblock("double"):
                vi = T.axis.spatial(extent, i)
                B[vi] = A[vi] + A[vi]
    return main

DOUBLE = Operator("double", (Dim("n"),), define, lambda x, n: x + x, lambda n: n, ())
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(DOUBLE)
    yield path
    for name in [name for name in sys.modules if name.startswith("tunesmith_user_mine")]:
        del sys.modules[name]


@pytest.mark.parametrize("text", [DOUBLE, SCRIPTED], ids=["te", "tvmscript"])
def test_an_operator_from_a_file(file, text, draw, run, assert_close):
    file.write_text(text)
    workload = ts.workload(f"{file}:DOUBLE", n=5)
    inputs = draw(workload)
    assert workload.label == "double n=5"
    assert_close(workload, run(workload, inputs), inputs[0] * 2)


def test_what_a_file_defines_can_be_found_by_its_module(file):
    define = operator(f"{file}:DOUBLE").define
    assert pickle.loads(pickle.dumps(define)) is define


def test_a_file_may_use_tvms_other_back_ends(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text("from tvm.backend.loader import is_loaded\nvalue = is_loaded('cuda')\n")
    code = f"""
from tunesmith.machine.process import import_tvm
import_tvm()
from tunesmith.kernels.user_file import _names_in
print(_names_in("{path}")["value"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_file_is_read_anew(file):
    ts.workload(f"{file}:DOUBLE", n=5)
    file.write_text(DOUBLE.replace('name="double", dims', 'name="twice", dims'))
    assert ts.workload(f"{file}:DOUBLE", n=5).name == "twice"


def refusal(place):
    with pytest.raises(ts.InputError) as caught:
        ts.workload(str(place), n=5)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_such_file(tmp_path):
    assert refusal(f"{tmp_path}/none.py:DOUBLE").startswith(f"no such file: {tmp_path}/none.py")


def test_no_such_name(file):
    assert refusal(f"{file}:DUBLE") == f"unknown name in {file} 'DUBLE'; did you mean DOUBLE?"


def test_not_an_operator(file):
    assert refusal(f"{file}:OTHER") == f"{file}:OTHER must be a tunesmith.Operator: it is a int"


@pytest.mark.parametrize("end", ["", ":", ":A.B", ":3"])
def test_a_place_that_is_not_file_and_name(file, end):
    assert "is written FILE.py:NAME" in refusal(f"{file}{end}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = (\n", "line 2: SyntaxError: '(' was never closed"),
        ("x = 1\n\nlen(3)\n", "line 3: TypeError: object of type 'int' has no len()"),
        ("def f():\n    return 1 / 0\n\nf()\n", "line 2: ZeroDivisionError: division by zero"),
        ("import no_such_package\n", "line 1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise ValueError\n", "line 1: ValueError: no message"),
        ("raise ValueError('two\\nlines')\n", "line 1: ValueError: two"),
    ],
)
def test_a_file_that_fails_is_named_with_its_line(file, text, message):
    file.write_text(text)
    assert refusal(f"{file}:DOUBLE") == f"{file}, {message}"
    assert not [name for name in sys.modules if name.startswith("tunesmith_user_mine")]


def test_a_dimension_of_a_users_operator_is_checked_too(file):
    with pytest.raises(ts.InputError, match="n must be an integer of at least 1: n=0"):
        ts.workload(f"{file}:DOUBLE", n=0)
