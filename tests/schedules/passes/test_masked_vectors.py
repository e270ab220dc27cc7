"""Vectors that end beyond their array: masked where the CPU has masks, right wherever they run."""

import json
import math
import re

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith import schedules
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.arrays import array_dtype
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import code_generation
from tunesmith.schedules.passes.masked_vectors import mask_vectors
from tvm import s_tir, te, tirx
from tvm.script import tirx as T
from tvm_ffi import structural_walk

WITH_MASKS = as_target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
WITHOUT = as_target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver3"})
ARM = as_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"})
ROWS, COLUMNS, LANES = 5, 37, 16


def vectorized(element, dtype="float32", columns=COLUMNS, lanes=LANES):
    """Return a module that computes rows of 37 elements in vectors of 16."""
    x = te.placeholder((ROWS, columns), dtype, name="x")
    sch = s_tir.Schedule(as_prim_func([x, te.compute(x.shape, lambda i, j: element(x, i, j), name="y")]))
    _, lane = sch.split(sch.get_loops(sch.get_sblock("y"))[-1], [None, lanes])
    sch.vectorize(lane)
    return sch.mod


def calls(mod):
    """Count the masked loads and stores of a module."""
    names = []
    structural_walk(mod["main"].body, (tvm.ir.Call, lambda call: names.append(getattr(call.op, "name", ""))))
    return [names.count(f"tirx.masked_{what}") for what in ("load", "store")]


def computed(mod, target, x, dtype=None):
    """Run a masked module here: LLVM writes masks as branches on CPUs that have none."""
    room = np.full(x.size + LANES, 99, dtype or x.dtype)
    y = tvm.runtime.tensor(room)
    tvm.compile(mod, target=target)["main"](tvm.runtime.tensor(x), y._create_view(x.shape))
    room = y.numpy()
    assert (room[x.size :] == 99).all(), "written behind the output"
    return room[: x.size].reshape(x.shape)


def assert_cut(masked):
    """Check that vectors that are not masked are whole ones, with single elements where one would not be."""
    assert calls(masked) == [0, 0]
    loops, branches = [], []
    structural_walk(masked["main"].body, (tirx.For, loops.append))
    structural_walk(masked["main"].body, (tirx.IfThenElse, branches.append))
    assert [loop.kind for loop in loops].count(tirx.ForKind.VECTORIZED) == 1
    assert sorted(int(loop.extent) for loop in loops) == [3, ROWS, LANES, LANES]
    assert sorted(branch.else_case is not None for branch in branches) == [False, True]


def random_rows(dtype="float32", columns=COLUMNS):
    return (np.random.default_rng(0).random((ROWS, columns)) * 100 - 50).astype(dtype)


def test_the_rest_of_a_row_is_a_masked_vector(target):
    mod = mask_vectors(vectorized(lambda x, i, j: x[i, j] * 2.0 + 1.0), WITH_MASKS)
    assert calls(mod) == [1, 1]
    x = random_rows()
    np.testing.assert_array_equal(computed(mod, target, x), x * 2 + 1)
    code = tvm.compile(mod, target=WITH_MASKS).mod.inspect_source("asm")
    assert "{%k" in code and "vgather" not in code


@pytest.mark.parametrize("columns", range(LANES + 1, 2 * LANES))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_of_any_type_and_length(dtype, columns, target):
    mod = mask_vectors(vectorized(lambda x, i, j: x[i, j] + x[0, j], dtype, columns), WITH_MASKS)
    assert calls(mod) == [2, 1]
    x = random_rows("int32", columns).astype(dtype)
    np.testing.assert_array_equal(computed(mod, target, x), x + x[:1])


@pytest.mark.parametrize(
    ("dtype", "element"),
    [
        ("int8", lambda x, i, j: x[i, j]),
        ("bfloat16", lambda x, i, j: x[i, j] * x[i, j]),
        ("float32", lambda x, i, j: (x[i, j].astype("float64") * 3.0).astype("float32")),
    ],
)
def test_what_is_computed_with_more_bits_is_not_masked(dtype, element, target):
    """LLVM 22 stores one lane of it with all these bits."""
    mod = vectorized(element, dtype)
    masked = mask_vectors(mod, WITH_MASKS)
    assert_cut(masked)
    x = random_rows().astype(array_dtype(dtype))
    wanted = {"int8": x, "bfloat16": x * x}.get(dtype, (x.astype("float64") * 3).astype("float32"))
    np.testing.assert_array_equal(computed(masked, target, x), wanted)


@pytest.mark.parametrize("rows", [4, 5])
def test_conditions_of_whole_vectors_are_around_them(rows, target):
    """Tiles of rows and columns that the sizes do not divide: of bfloat16, which is not masked."""
    x = te.placeholder((rows, COLUMNS), "bfloat16", name="x")
    sch = s_tir.Schedule(as_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + x[i, j], name="y")]))
    row, column = sch.get_loops(sch.get_sblock("y"))
    (rows_of, row), (columns_of, lane) = sch.split(row, [None, 3]), sch.split(column, [None, LANES])
    sch.reorder(rows_of, columns_of, row, lane)
    sch.vectorize(lane)
    masked = mask_vectors(sch.mod, WITH_MASKS)
    branches = []
    structural_walk(masked["main"].body, (tirx.IfThenElse, branches.append))
    assert sorted(branch.else_case is not None for branch in branches) == [False, False, True]
    values = random_rows().astype(array_dtype("bfloat16"))[:rows]
    np.testing.assert_array_equal(computed(masked, target, values), values + values)


def test_the_number_of_an_iteration_may_be_of_more_bits(target):
    """It is no vector of them: where the largest of a column is found, its row is stored."""
    mod = vectorized(
        lambda x, i, j: te.if_then_else(x[i, j] > 0, i.astype("int64").astype("int32"), 7), "int32"
    )
    assert mask_vectors(mod, WITH_MASKS) is not mod
    x = random_rows("int32")
    wanted = np.where(x > 0, np.arange(ROWS, dtype="int32")[:, None], np.int32(7))
    np.testing.assert_array_equal(computed(mask_vectors(mod, WITH_MASKS), target, x), wanted)


def test_a_rest_that_is_not_masked_has_no_condition(run, target):
    """LLVM would mask 17 lanes of 32 by itself, and of the second vector store one lane with 32 bits."""
    workload = ts.workload("silu", m=1, n=1009, dtype="bfloat16")
    schedule = schedules.rule("general").scheduled(workload.func, target, {"lanes": 32})
    rest = code_generation.finished(schedule.mod, WITH_MASKS)["main"].body[-1]
    assert (rest.kind, int(rest.extent)) == (tirx.ForKind.SERIAL, 17)
    (found,) = run(schedule, [np.ones((1, 1009), array_dtype("bfloat16"))])  # it looks behind the output
    assert (found.astype("float32") == found.astype("float32")[0, 0]).all()


def test_what_is_not_taken_is_not_read(target):
    """Row 0 has nothing before it, and no row anything after its last element."""

    def neighbours(x, i, j):
        after = te.if_then_else(j < COLUMNS - 1, x[i, j + 1], 7.0)
        return after + te.if_then_else(te.all(i > 0, j > 2), x[i - 1, j - 3], 5.0)

    mod = mask_vectors(vectorized(neighbours), WITH_MASKS)
    assert calls(mod) == [2, 1]
    x = random_rows()
    wanted = np.full_like(x, 7)
    wanted[:, :-1] = x[:, 1:]
    wanted[1:, 3:] += x[:-1, :-3]
    wanted[0], wanted[1:, :3] = wanted[0] + 5, wanted[1:, :3] + 5
    np.testing.assert_array_equal(computed(mod, target, x), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_of_two_values_that_are_read_each_is_read_where_it_is_taken(dtype, target):
    """The second begins within a vector: there is nothing before its first element."""
    mod = mask_vectors(
        vectorized(lambda x, i, j: te.if_then_else(j < 20, x[i, j], x[i, j - 20]), dtype), WITH_MASKS
    )
    # Parts of narrow vectors are not stored.
    assert calls(mod) == ([2, 2] if dtype == "float32" else [0, 0])
    x = random_rows(dtype)
    np.testing.assert_array_equal(computed(mod, target, x), np.hstack([x[:, :20], x[:, : COLUMNS - 20]]))


def test_what_chooses_between_such_values_and_goes_on_is_not_masked(target):
    mod = vectorized(lambda x, i, j: te.if_then_else(j < 20, x[i, j], x[i, j - 20]) + 1.0)
    masked = mask_vectors(mod, WITH_MASKS)
    assert_cut(masked)
    x = random_rows()
    wanted = np.hstack([x[:, :20], x[:, : COLUMNS - 20]]) + 1
    np.testing.assert_array_equal(computed(masked, target, x), wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loads_of_a_choice_keep_their_masks(dtype, target):
    """TVM takes a choice's condition for true inside of it: a mask there would be of no use."""

    def next_element(x, i, j):
        return te.if_then_else(j < COLUMNS - 1, x[i, j + 1].astype("float32"), 7.0)

    mod = mask_vectors(vectorized(next_element, dtype), WITH_MASKS)
    unoptimized = {**json.loads(str(WITH_MASKS)), "opt-level": 0}
    code = tvm.compile(mod, target=as_target(unoptimized)).mod.inspect_source("ll")
    masks = re.findall(r"call .*@llvm.masked.load[^(]*\((.*)", code)
    assert masks and not any("splat (i1 true)" in mask for mask in masks)
    x = random_rows().astype(array_dtype(dtype))
    wanted = np.full(x.shape, 7, "float32")
    wanted[:, :-1] = x.astype("float32")[:, 1:]
    np.testing.assert_array_equal(computed(mod, target, x, "float32"), wanted)


@pytest.mark.parametrize(("lanes", "compared"), [(8, "int32"), (16, "int32"), (32, "int16"), (64, "int8")])
def test_lanes_are_compared_in_numbers_that_fit_a_register(lanes, compared, target):
    mod = vectorized(lambda x, i, j: te.if_then_else(j >= 3, x[i, j], 7.0), columns=131, lanes=lanes)
    mod, found = mask_vectors(mod, WITH_MASKS), []
    sides = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    structural_walk(mod["main"].body, [(each, lambda c: found.append(c.a.ty.dtype)) for each in sides])
    vectors = {str(dtype) for dtype in found if int(dtype.lanes) > 1}
    assert vectors <= {f"{compared}x{lanes}", f"int64x{lanes}"} and f"{compared}x{lanes}" in vectors
    x = random_rows(columns=131)
    wanted = np.where(np.arange(131) >= 3, x, 7)
    np.testing.assert_array_equal(computed(mod, target, x), wanted)


def test_functions_and_choices_by_value_are_vectors_too(target):
    mod = mask_vectors(
        vectorized(lambda x, i, j: te.exp(tirx.Select(x[i, j] > 0.0, tirx.const(0.0), x[i, j]))), WITH_MASKS
    )
    assert calls(mod) == [2, 1]
    x = random_rows()
    np.testing.assert_allclose(computed(mod, target, x), np.exp(np.minimum(x, 0)), rtol=1e-6)


def test_positions_and_values_are_compared(target):
    mod = vectorized(lambda x, i, j: tirx.Select(tirx.all(x[i, j] > 0, j % 64 < 20), x[i, j], 7), "int32")
    mod = mask_vectors(mod, WITH_MASKS)
    x, positions = random_rows("int32"), np.arange(COLUMNS)
    wanted = np.where((x > 0) & (positions < 20), x, 7)
    np.testing.assert_array_equal(computed(mod, target, x), wanted)
    assert calls(mod)[1] == 1


def test_an_element_for_all_lanes_is_read_once(target):
    mod = mask_vectors(vectorized(lambda x, i, j: x[i, j] * x[i, 0]), WITH_MASKS)
    assert calls(mod) == [1, 1]
    x = random_rows()
    np.testing.assert_array_equal(computed(mod, target, x), x * x[:, :1])


@pytest.mark.parametrize(
    ("element", "wanted"),
    [
        (lambda x, i, j: x[i, COLUMNS - 1 - j], lambda x: x[:, ::-1]),
        (lambda x, i, j: x[i, (j * 3) % COLUMNS], lambda x: x[:, np.arange(COLUMNS) * 3 % COLUMNS]),
        (lambda x, i, j: tirx.truncdiv(100, x[i, j]), lambda x: np.trunc(100 / x).astype("int32")),
        (
            lambda x, i, j: te.exp(x[i, j].astype("float64")).astype("int32"),
            lambda x: np.exp(x).astype("int32"),
        ),
    ],
    ids=["backwards", "in_steps", "quotient", "more_bits"],
)
def test_what_is_no_vector_operation_is_not_masked(element, wanted, target):
    """Elements not side by side, and divisions of integers, which lanes without a part would fail."""
    mod = vectorized(element, "int32")
    masked = mask_vectors(mod, WITH_MASKS)
    assert_cut(masked)
    x = np.random.default_rng(0).integers(1, 20, (ROWS, COLUMNS), dtype="int32")
    np.testing.assert_array_equal(computed(masked, target, x), wanted(x))


@pytest.mark.parametrize("function", [te.erf, te.tanh, te.sqrt])
def test_polynomials_of_vectors(function, target):
    mod = mask_vectors(vectorized(lambda x, i, j: function(te.abs(x[i, j]))), WITH_MASKS)
    assert calls(mod) == [1, 1]
    of = {te.erf: np.vectorize(math.erf), te.tanh: np.tanh, te.sqrt: np.sqrt}[function]
    x = random_rows()
    np.testing.assert_allclose(computed(mod, target, x), of(np.abs(x)), rtol=1e-6)


@pytest.mark.parametrize("other", [WITHOUT, ARM])
def test_a_cpu_without_masks_has_whole_vectors_and_single_elements(other, target):
    mod = vectorized(lambda x, i, j: x[i, j] * 2.0)
    masked = mask_vectors(mod, other)
    assert_cut(masked)
    x = random_rows()
    np.testing.assert_array_equal(computed(masked, target, x), x * 2)


def test_rows_of_whole_vectors_need_no_masks():
    x = te.placeholder((ROWS, 2 * LANES), "float32", name="x")
    sch = s_tir.Schedule(as_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")]))
    sch.vectorize(sch.split(sch.get_loops(sch.get_sblock("y"))[-1], [None, LANES])[1])
    mod = sch.mod
    assert mask_vectors(mod, WITH_MASKS) is mod


def test_a_condition_of_a_whole_row_stays_one(target):
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((5, 37), "float32"), y: T.Buffer((5, 37), "float32")):
        for i, o in T.grid(5, 3):
            for v in T.vectorized(16):
                if i < 4 and o * 16 + v < 37:
                    y[i, o * 16 + v] = x[i + 1, o * 16 + v]

    mod = mask_vectors(tvm.IRModule({"main": main.with_attr("global_symbol", "main")}), WITH_MASKS)
    assert calls(mod) == [1, 1]
    branches = []
    structural_walk(mod["main"].body, (tirx.IfThenElse, branches.append))
    assert len(branches) == 1
    x = random_rows()
    found = computed(mod, target, x)
    np.testing.assert_array_equal(found[:4], x[1:])
    assert (found[4] == 99).all()


def test_elements_apart_in_memory_stay_a_loop():
    @T.prim_func(s_tir=True)
    def main(a: T.handle, y: T.Buffer((5, 37), "float32")):
        x = T.match_buffer(a, (5, 37), "float32", strides=[200, 2])
        for i, o in T.grid(5, 3):
            for v in T.vectorized(16):
                if o * 16 + v < 37:
                    y[i, o * 16 + v] = x[i, o * 16 + v]

    assert calls(mask_vectors(tvm.IRModule({"main": main}), WITH_MASKS)) == [0, 0]


def test_what_all_lanes_share_is_not_read_where_none_takes_part():
    """The fourth vector is beyond the rows, and there is no fourth element of x."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((3,), "float32"), y: T.Buffer((37,), "float32")):
        for o in range(4):
            for v in T.vectorized(16):
                if o * 16 + v < 37:
                    y[o * 16 + v] = x[o] * 2.0

    assert calls(mask_vectors(tvm.IRModule({"main": main}), WITH_MASKS)) == [0, 0]


def test_code_generation_masks():
    mod = vectorized(lambda x, i, j: x[i, j] * 2.0)
    masked, plain = (
        code_generation.generate_code(mod, t).mod.inspect_source("ll") for t in (WITH_MASKS, WITHOUT)
    )
    assert "masked.store.v16f32" in masked and "masked.store.v16f32" not in plain


def test_whole_vectors_that_a_sum_reads_or_not_are_masked(assert_right):
    """Of 18 vectors one thread has 7 of 9: a branch in each step would keep sums out of registers."""
    depth = 2 * facts(WITH_MASKS).near_bytes // (4 * 250) // 4 * 4
    workload = ts.workload("matmul", m=2, n=250, k=depth)
    knobs = {"vectors": 3, "depth": 4, "mr": 2, "shares": 2}
    schedule = schedules.rule("few_rows").scheduled(workload.func, WITH_MASKS, knobs)
    script = code_generation.finished(schedule.mod, WITH_MASKS).script()
    assert "T.masked_load" in script and "T.if_then_else" not in script
    assert_right(workload, schedule)
