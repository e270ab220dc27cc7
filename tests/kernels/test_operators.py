"""The contract that every operator keeps: the function equals its reference, TE equals TVMScript."""

import onnx
import pytest
import tunesmith as ts
import tvm
import tvm_ffi
from onnx import helper, shape_inference
from tunesmith.kernels import OPERATORS, by_name
from tunesmith.kernels.operator import as_prim_func
from tunesmith.tuning.processes.worker_group import WorkerGroup

SIZES = ((1, 1, 1), (1, 9, 4), (5, 3, 7), (16, 16, 16), (17, 33, 31))


def shapes_of(op):
    """Rows, columns and the length of a sum where these are all dimensions, else the examples called odd."""
    odd = [example.shape for example in op.examples if example.source.startswith("odd")]
    names = {d.name for d in op.dims}
    if names <= {*"mnk", "transpose"}:
        extents = [dict(zip("mnk", size, strict=True)) for size in SIZES]
        sized = [{name: each[name] for name in "mnk" if name in names} for each in extents]
        return [*sized, *(shape for shape in odd if "transpose" in shape)]
    return odd


CASES = [
    pytest.param(op, shape, dtype, id=f"{op.name}-{','.join(map(str, shape.values()))}-{dtype}")
    for op in OPERATORS.values()
    if op.name != "conv2d"  # see test_references
    for dtype in op.dtypes
    for shape in (shapes_of(op) if dtype == op.dtypes[0] else shapes_of(op)[:2])
]


@pytest.mark.parametrize(("op", "shape", "dtype"), CASES)
def test_the_unscheduled_function_equals_the_reference(op, shape, dtype, draw, run, assert_close):
    workload = op.workload(shape, dtype)
    inputs = draw(workload)
    assert_close(workload, run(workload, inputs), workload.reference(*inputs))


@pytest.mark.parametrize(("op", "shape", "dtype"), [c for c in CASES if c.values[0].script])
def test_te_and_tvmscript_are_the_same_function(op, shape, dtype):
    workload = op.workload(shape, dtype)
    twin = as_prim_func(op.script(dtype=dtype, **workload.shape))
    tvm.ir.assert_structural_equal(workload.func, twin)
    assert tvm_ffi.structural_hash(twin) == tvm_ffi.structural_hash(workload.func)


def test_matmul_linear_relu_and_add_have_a_tvmscript_twin():
    assert {op.name for op in OPERATORS.values() if op.script} == {"matmul", "linear_relu", "add"}


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
def test_a_printed_function_parses_back_to_the_same_hash(op):
    workload = op.workload(op.examples[-1].shape)
    parsed = tvm.script.from_source(workload.func.script(show_meta=True))
    assert tvm_ffi.structural_hash(parsed) == tvm_ffi.structural_hash(workload.func)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
def test_examples_are_valid_distinct_and_say_where_they_come_from(op):
    workloads = [op.workload(example.shape) for example in op.examples]
    assert len({w.label for w in workloads}) == len(workloads)
    assert all(len(example.source) > 5 for example in op.examples)
    assert all(w.flops > 0 for w in workloads)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
def test_no_example_reads_outside_its_buffers(op, reads_outside):
    for example in op.examples:
        workload = op.workload(example.shape)
        assert not reads_outside(workload.func), workload.label


@pytest.mark.parametrize("op", OPERATORS.values(), ids=lambda op: op.name)
def test_extents_are_int64_throughout(op):
    sch = tvm.s_tir.Schedule(op.workload(op.examples[0].shape).func)
    blocks = [sch.get(b) for b in sch.get_child_blocks(sch.get_sblock("root"))]
    bounds = [bound for b in blocks for v in b.iter_vars for bound in (v.dom.min, v.dom.extent)]
    extents = [extent for p in sch.mod["main"].params for extent in p.shape]
    assert {str(e.ty.dtype) for e in (*bounds, *extents)} == {"int64"}


@pytest.mark.parametrize(
    ("name", "shape", "blocks"),
    [
        ("matmul", {"m": 2, "n": 3, "k": 4}, ["matmul"]),
        ("linear_relu", {"m": 2, "n": 3, "k": 4}, ["matmul", "bias_add", "relu"]),
        ("relu", {"m": 2, "n": 3}, ["relu"]),
        ("add", {"m": 2, "n": 3}, ["add"]),
    ],
)
def test_blocks_are_named_and_narrow_types_are_cast_once(name, shape, blocks):
    def found(dtype):
        sch = tvm.s_tir.Schedule(ts.workload(name, dtype=dtype, **shape).func)
        return [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]

    assert found("float32") == found("int8") == blocks
    assert found("bfloat16") == (blocks if name in ("relu", "add") else [*blocks, "cast"])


@pytest.mark.parametrize(
    ("name", "shape", "flops", "bytes_moved"),
    [
        ("matmul", {"m": 2, "n": 3, "k": 5}, 60, 4 * (10 + 15 + 6)),
        ("linear_relu", {"m": 2, "n": 3, "k": 5}, 60 + 12, 4 * (10 + 15 + 3 + 6)),
        ("relu", {"m": 2, "n": 3}, 6, 48),
        ("add", {"m": 2, "n": 3}, 6, 72),
    ],
)
def test_cost(name, shape, flops, bytes_moved):
    workload = ts.workload(name, **shape)
    assert workload.flops == flops
    assert workload.bytes_moved == bytes_moved
    assert ts.workload(name, dtype="float16", **shape).bytes_moved == bytes_moved // 2


def test_int8_products_are_summed_and_returned_in_int32():
    workload = ts.workload("linear_relu", dtype="int8", m=2, n=3, k=5)
    assert [a.dtype for a in workload.args] == ["int8", "int8", "int32", "int32"]
    assert workload.bytes_moved == 10 + 15 + 4 * 3 + 4 * 6


def test_the_hash_is_the_same_in_every_process():
    here = ts.workload("linear_relu", m=2, n=3, k=5).hash
    code = f"import tunesmith as ts; assert ts.workload('linear_relu', m=2, n=3, k=5).hash == {here!r}"
    with WorkerGroup(1) as group:
        group.workers[0].call(exec, code, 60)


def test_two_operators_of_one_name_are_refused():
    with pytest.raises(ts.InputError, match="already an operator named 'add'"):
        by_name(OPERATORS["add"], OPERATORS["add"])


def test_the_table_of_shapes_holds_every_convolution_of_the_onnx_packages_resnet50():
    path = f"{onnx.__path__[0]}/backend/test/data/light/light_resnet50.onnx"
    graph = shape_inference.infer_shapes(onnx.load(path)).graph
    shapes = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*graph.value_info, *graph.input)
    } | {i.name: tuple(i.dims) for i in graph.initializer}
    op = OPERATORS["conv2d"]
    known = {op.workload(e.shape).label for e in op.examples}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 53
    for node in convolutions:
        n, ci, h, w = shapes[node.input[0]]
        co, _, kh, kw = shapes[node.input[1]]
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        shape = {"n": n, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw}
        shape |= {"stride": attrs["strides"][0], "padding": attrs.get("pads", [0])[0]}
        assert op.workload(shape).label in known, node.name
