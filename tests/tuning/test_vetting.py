import json

import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels import OPERATORS
from tunesmith.machine.target import target_text
from tunesmith.tuning.records.plain_text import require_plain
from tunesmith.tuning.records.vetting import Vetting


@pytest.fixture(scope="module")
def vetting():
    with Vetting() as vetting:
        yield vetting


@pytest.fixture(scope="module")
def matmul():
    return ts.workload("matmul", m=16, n=16, k=16)


def graph(*nodes, root=1):
    return json.dumps({"root_index": root, "nodes": [{"type": "None"}, *nodes]})


def test_every_operators_program_is_plain():
    for operator in OPERATORS.values():
        workload = operator.workload(operator.examples[0].shape, operator.dtypes[0])
        require_plain(tvm.ir.save_json(workload.func))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (graph({"type": "ffi.Module", "data": "AAAA"}), "it holds a ffi.Module, which is no part"),
        (graph({"type": "ffi.Function", "data": "os.system"}), "it holds a ffi.Function"),
        (graph({"type": "ffi.Tensor", "data": "AAAA"}), "it holds a ffi.Tensor"),
        (graph({"type": "ffi.String", "data": "pragma_import_llvm"}), "foreign code"),
        (json.dumps([[["Annotate", ["b0"], ["pragma_import_c"], []]], []]), "foreign code"),
        (json.dumps([["TransformLayout", graph({"type": "ffi.Module"})]]), "it holds a ffi.Module"),
        (json.dumps([json.dumps(json.dumps("pragma_import_c"))]), "foreign code"),
        ('{"root_index": 1, "nodes": [{"type": "ffi.Module", "type": "None"}]}', "has a key twice"),
        (json.dumps(['{"type": "ffi.Module", "type": "None"}']), "has a key twice"),
        (json.dumps(['{"type": "ffi.Module", }']), "no valid JSON"),
        ('{"root_index"', "it is no valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        (graph({"type": "ffi.Array", "data": [1]}), "part of themselves"),
        (graph(*({"type": "ffi.Array", "data": [n % 3 + 1]} for n in (1, 2, 3))), "part of themselves"),
        (json.dumps([graph({"type": "ffi.Map", "data": [0, 1]})]), "part of themselves"),
        (graph(*({"type": "ffi.Array", "data": [n]} for n in range(600))), "more than 500 levels deep"),
    ],
)
def test_what_is_no_plain_program_is_refused(text, reason):
    with pytest.raises(ts.InputError, match=reason):
        require_plain(text)


def test_numbers_are_no_references_and_many_may_refer_to_one_node():
    twice = [{"type": "ffi.Array", "data": [n, n]} for n in range(400)]
    size = {"type": "ir.IntImm", "data": {"span": 0, "ty": 0, "value": 401}}
    buffer = {"type": "tirx.BufferType", "data": {"shape": 401, "data_alignment": 402, "offset_factor": 402}}
    require_plain(graph(*twice, size, buffer))


def test_a_program_is_read_with_its_hash_whatever_its_name(vetting, matmul):
    renamed = matmul.func.with_attr("global_symbol", "fused_matmul")
    for found in (matmul.func, renamed, tvm.IRModule({"fused_matmul": renamed})):
        program = vetting.program(tvm.ir.save_json(found))
        assert (program.hash, program.dtype) == (matmul.hash, "float32")
    assert program.name == "fused_matmul"


def test_what_tvm_crashes_on_costs_a_line_and_no_process(vetting, matmul, monkeypatch):
    monkeypatch.setattr("tunesmith.tuning.records.vetting.require_plain", lambda text: None)
    # TVM follows the array into itself.
    with pytest.raises(ts.InputError, match=r"TVM crashes on it \(SIGSEGV\)"):
        vetting.program(graph({"type": "ffi.Array", "data": [1]}))
    assert vetting.program(tvm.ir.save_json(matmul.func)).hash == matmul.hash


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (graph({"type": "ffi.Array", "data": [7]}), "TVM cannot read it: ValueError"),
        (graph({"type": "tirx.PrimFunc", "data": {}}), "TVM cannot read it: TypeError"),
        (graph({"type": "ffi.Array", "data": []}), "it is a Array, not a PrimFunc"),
        (tvm.ir.save_json(tvm.IRModule({})), "it is a module of 0 functions; expected one"),
    ],
)
def test_what_tvm_cannot_read_costs_a_line_and_no_process(vetting, matmul, text, reason):
    with pytest.raises(ts.InputError, match=reason):
        vetting.program(text)
    assert vetting.program(tvm.ir.save_json(matmul.func)).hash == matmul.hash


@pytest.mark.parametrize(
    "trace",
    ['[[["GetSBlock", [], ["none", "main"], ["b0"]]], []]', '[[["NoSuchStep", [], [], []]], []]', "[]", "7"],
)
def test_a_trace_that_does_not_fit_is_told(vetting, matmul, trace):
    with pytest.raises(ts.InputError, match="the trace does not fit this function"):
        vetting.require_replays(tvm.ir.save_json(matmul.func), trace)


def test_a_trace_that_fits_passes(vetting, matmul):
    vetting.require_replays(
        tvm.ir.save_json(matmul.func), '[[["GetSBlock", [], ["matmul", "main"], ["b0"]]], []]'
    )


def test_a_target_is_completed_or_refused(vetting):
    here = json.loads(target_text(ts.host_target()))
    given = {name: value for name, value in here.items() if name not in ("mtriple", "tag", "keys")}
    assert vetting.target(given) == target_text(ts.host_target())
    for config, reason in (({"kind": "none"}, "TVM refuses"), ({"kind": "llvm", "mcpu": "z80"}, "z80")):
        with pytest.raises(ts.InputError, match=reason):
            vetting.target(config)
