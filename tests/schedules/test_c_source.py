import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.arrays import aligned_copy, aligned_empty
from tunesmith.machine.errors import InputError
from tunesmith.schedules import rules_for
from tunesmith.schedules.c_expressions import Expressions
from tunesmith.schedules.c_scalars import identifier
from tunesmith.schedules.c_source import c_source
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import (
    expected_output,
    fill_untouched,
    inputs_of,
    workload_tolerance,
)
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

CONV = {"n": 1, "h": 9, "w": 9, "ci": 5, "co": 33, "kh": 3, "kw": 3, "stride": 2, "padding": 1}
POOL = {"n": 1, "h": 14, "w": 14, "c": 4, "kernel": 3, "stride": 2, "layout": "NCHW"}
CASES = [
    ("matmul", {"m": 130, "n": 97, "k": 120}, "float32"),
    ("matmul", {"m": 33, "n": 64, "k": 17}, "int8"),
    ("matmul", {"m": 8, "n": 32, "k": 5}, "float64"),
    ("linear_relu", {"m": 9, "n": 70, "k": 31}, "float32"),
    ("linear_relu", {"m": 64, "n": 256, "k": 128}, "float32"),
    ("conv2d", CONV, "float32"),
    ("conv2d", {**CONV, "layout": "NCHW"}, "float32"),
    ("relu", {"m": 7, "n": 333}, "float32"),
    ("relu", {"m": 7, "n": 333}, "int8"),
    ("add", {"m": 64, "n": 256}, "float32"),
    ("add", {"m": 5, "n": 37}, "int8"),
    ("attention", {"heads": 2, "m": 96, "n": 512, "d": 16}, "float32"),
    ("resize2d", {"n": 1, "h": 13, "w": 13, "c": 4, "scale": 2, "layout": "NCHW"}, "float32"),
    (
        "resize2d",
        {"n": 1, "h": 5, "w": 13, "c": 4, "scale": 2, "mode": "bilinear", "layout": "NCHW"},
        "float32",
    ),
    ("max_pool2d", {**POOL, "padding": 1}, "float32"),
    ("max_pool2d", POOL, "int8"),
    ("avg_pool2d", POOL, "float32"),
    ("softmax", {"m": 37, "n": 3}, "float32"),
    ("log_softmax", {"m": 37, "n": 5}, "float64"),
    ("matmul", {"m": 20, "n": 24, "k": 36864}, "float32"),
    ("conv2d", {**CONV, "h": 16, "w": 16, "ci": 64, "co": 3, "groups": 1, "layout": "NHWC"}, "float32"),
]


@pytest.fixture
def check(compiled_c):
    """Compile C that a workload's schedule has become, and compare what it computes."""

    def checked(source, workload, name, *flags):
        function, _ = compiled_c(source, name, *flags)
        inputs = [aligned_copy(each) for each in inputs_of(workload, seed=1)]
        output = aligned_empty(workload.output.shape, workload.output.dtype)
        fill_untouched(output, 0)
        before = [each.copy() for each in inputs]
        function(*inputs, output)
        assert all(np.array_equal(one, other) for one, other in zip(inputs, before, strict=True))
        verdict = compare(output, expected_output(workload, inputs), workload_tolerance(workload))
        assert verdict.ok, verdict.message

    return checked


@pytest.mark.parametrize(("operator", "shape", "dtype"), CASES)
def test_it_compiles_alone_and_computes_the_same(operator, shape, dtype, check):
    workload = ts.workload(operator, dtype=dtype, **shape)
    schedule, _ = ts.apply_default(workload.func, ts.host_target())
    check(c_source(schedule, operator), workload, operator)


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("relu", {"m": 9, "n": 64}),
        ("relu", {"m": 16, "n": 33}),
        ("softmax", {"m": 5, "n": 104}),
        ("softmax", {"m": 32, "n": 3}),
        ("layer_norm", {"m": 5, "n": 102}),
        ("transpose", {"c": 32, "d": 48, "order": "abdc"}),
        ("transpose", {"b": 3, "c": 32, "d": 48, "order": "adbc"}),
    ],
)
def test_stores_past_the_caches_are_stores(operator, shape, check):
    workload, target = ts.workload(operator, **shape), ts.host_target()
    schedule = rules_for(workload.func, target)[0].scheduled(workload.func, target, {"stream": 1})
    source = c_source(schedule, operator)
    assert "stream" not in source
    check(source, workload, operator)


def test_what_a_form_fetches_is_fetched(check):
    workload, target = ts.workload("transpose", c=1030, d=200, order="abdc"), ts.host_target()
    knobs = {"stream": 1, "buffered": 1, "squares": 16, "stretch": 4, "ahead": 1}
    (rule,) = (each for each in rules_for(workload.func, target) if each.name == "transpose")
    source = c_source(rule.scheduled(workload.func, target, knobs), "kernel")
    # Beside each line that is written, and before the first what the next block reads more.
    assert source.count("__builtin_prefetch(&x[") == 2
    check(source, workload, "kernel")


@pytest.mark.parametrize("rule", ["unscheduled", "general"])
def test_any_schedule_of_it(rule, check):
    workload = ts.workload("conv2d", **CONV)
    func, target = workload.func, ts.host_target()
    rules = {each.name: each for each in rules_for(func, target)}
    schedule = func if rule == "unscheduled" else rules[rule].scheduled(func, target)
    check(c_source(schedule, "kernel"), workload, "kernel")


def test_threads_of_openmp(check):
    workload = ts.workload("matmul", m=256, n=256, k=64)
    schedule, _ = ts.apply_default(workload.func, ts.host_target())
    source = c_source(schedule, "kernel")
    if "#pragma omp parallel for" not in source:
        pytest.skip("one thread is best on this machine")
    check(source, workload, "kernel", "-fopenmp")


def test_it_reads_as_written_by_hand():
    workload = ts.workload("matmul", m=8, n=8, k=4)
    sch = s_tir.Schedule(workload.func)
    block = sch.get_sblock("matmul")
    i, j, k = sch.get_loops(block)
    sch.parallel(i)
    sch.reorder(k, j)
    sch.vectorize(j)
    sch.decompose_reduction(block, k)
    assert c_source(sch, "matmul").partition("\n\n")[2].splitlines() == [
        "void matmul(const float *restrict A, const float *restrict B, float *restrict matmul) {",
        "#pragma omp parallel for",
        "    for (int32_t i = 0; i < 8; ++i) {",
        "#pragma GCC ivdep",
        "        for (int32_t j_init = 0; j_init < 8; ++j_init) {",
        "            matmul[i * 8 + j_init] = 0.0f;",
        "        }",
        "        for (int32_t k = 0; k < 4; ++k) {",
        "#pragma GCC ivdep",
        "            for (int32_t j = 0; j < 8; ++j) {",
        "                matmul[i * 8 + j] += A[i * 4 + k] * B[k * 8 + j];",
        "            }",
        "        }",
        "    }",
        "}",
    ]


def element_wise(function, dtype="float32", n=64):
    x = te.placeholder((n,), dtype, name="x")
    return te.create_prim_func([x, te.compute((n,), lambda i: function(x[i], i), name="double")])


@pytest.mark.parametrize(
    ("tir", "numpy"),
    [
        (lambda x, i: T.exp(x) - (x - T.float32(1.5)), lambda x, i: np.exp(x) - (x - 1.5)),
        (lambda x, i: T.sigmoid(x) * T.float32(2), lambda x, i: 2 / (1 + np.exp(-x))),
        (lambda x, i: T.min(x, -x) / T.float32(3), lambda x, i: -np.abs(x) / 3),
        (lambda x, i: x * T.Cast("float32", T.floormod(i - 20, 7)), lambda x, i: x * ((i - 20) % 7)),
        (lambda x, i: x * T.Cast("float32", T.floordiv(i - 20, 7)), lambda x, i: x * ((i - 20) // 7)),
        (lambda x, i: T.Select(T.Or(i < 9, T.Not(x > T.float32(0))), x, T.float32(-2)),
         lambda x, i: np.where((i < 9) | ~(x > 0), x, -2)),
        (lambda x, i: T.reinterpret("float32", T.bitwise_and(T.reinterpret("int32", x), 0x7FFFFFFF)),
         lambda x, i: np.abs(x)),
        (lambda x, i: T.Cast("float32", T.shift_left(i, 2) + (i ^ 3)), lambda x, i: (i * 4) + (i ^ 3)),
    ],
)  # fmt: skip
def test_expressions(tir, numpy, compiled_c):
    function, printed = compiled_c(c_source(element_wise(tir), "double"), "double_")
    assert "warning" not in printed
    x = np.random.default_rng(0).uniform(-3, 3, 64).astype(np.float32)
    out = np.full(64, np.nan, np.float32)
    function(x, out)
    np.testing.assert_allclose(out, numpy(x.astype(np.float64), np.arange(64)), rtol=1e-5, atol=1e-6)


def test_narrow_integers_wrap_around_inside_an_expression(compiled_c):
    func = element_wise(lambda x, i: T.Cast("int8", T.Cast("int32", x + x) >> 1), "int8")
    function, _ = compiled_c(c_source(func, "wrap"), "wrap")
    x = np.arange(-100, -36, dtype=np.int8)
    out = np.empty(64, np.int8)
    function(x, out)
    np.testing.assert_array_equal(out, ((x + x).astype(np.int32) >> 1).astype(np.int8))


def test_vectors_that_a_schedule_writes_itself(compiled_c):
    source = c_source(shuffling(), "kernel")
    # What has a name is not written out again.
    assert source.count("__builtin_shufflevector") == 3
    function, printed = compiled_c(source, "kernel")
    assert "warning" not in printed.replace("-Wpsabi", "")
    # Aligned to no vector.
    x, out = np.arange(-1, 8, dtype=np.float32)[1:], np.full(9, np.nan, np.float32)[1:]
    function(x, out)
    np.testing.assert_array_equal(out, [0, 5, 0, 5, 5, 2, 5, 2])


def shuffling():
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8,), "float32"), out: T.Buffer((8,), "float32")):
        with T.sblock("shuffle"):
            first: T.let[T.float32x4] = x[T.Ramp(0, 1, 4)]
            second: T.let[T.float32x4] = x[T.Ramp(4, 1, 4)]
            mixed: T.let[T.float32x4] = T.Shuffle([first, second], [0, 5, 2, 7])
            out[T.Ramp(0, 1, 4)] = T.Shuffle([mixed, mixed], [0, 1, 4, 5])
            out[T.Ramp(4, 1, 4)] = T.Shuffle([mixed, mixed], [1, 2, 5, 6])

    return main


def test_large_arrays_are_not_on_the_stack():
    func = ts.workload("matmul", m=256, n=256, k=256).func
    schedule = ts.schedule_rules()["matmul"].scheduled(
        func, ts.host_target(), {"split_columns": 1, "pack": 1}
    )
    source = c_source(schedule, "kernel")
    assert "B_global = alloc(" in source and source.count("free(B_global);") == 1
    assert "_Alignas(64) float matmul_" in source


def test_names_are_those_that_c_allows():
    assert [identifier(name) for name in ("a.b", "double", "expf", "3x", "matmul")] == [
        "a_b", "double_", "expf_", "_3x", "matmul",
    ]  # fmt: skip


def test_two_variables_of_one_name_have_two():
    names = Expressions()
    assert [names.name(tirx.Var(name, "int32")) for name in ("i", "i", "while")] == ["i", "i_1", "while_"]


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (lambda: element_wise(lambda x, i: T.erf(x), "float16"), "no C for Call in this schedule"),
        (lambda: element_wise(lambda x, i: x, "bfloat16"), "standard C has no type for bfloat16"),
        (lambda: element_wise(lambda x, i: T.popcount(x), "int32"), "popcount"),
    ],
)
def test_what_cannot_be_written_is_named_in_one_line(func, message):
    with pytest.raises(InputError, match=message) as caught:
        c_source(func(), "kernel")
    assert "\n" not in str(caught.value)
