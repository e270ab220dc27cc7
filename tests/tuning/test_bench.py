import builtins

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels import OPERATORS
from tunesmith.kernels.elementwise import ELEMENTWISE
from tunesmith.machine import flush
from tunesmith.tuning.benchmark import turn_tasks
from tunesmith.tuning.benchmark.baselines import LIBRARIES, Unavailable, multiplies_bytes_exactly, variants
from tunesmith.tuning.benchmark.turn_tasks import TurnJob, make_ready, time_turn
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import expected_output, inputs_of, workload_tolerance

CONV = {"n": 2, "h": 9, "w": 8, "ci": 4, "co": 6, "kh": 3, "kw": 2, "stride": 2, "padding": 1, "dilation": 1}
CONV_BYTES = {key: extent for key, extent in CONV.items() if key != "dilation"} | {"zero": 5, "data_zero": 90}
RELU, MATMUL = (OPERATORS[name].libraries for name in ("relu", "matmul"))
WORKLOADS = [
    ts.workload("matmul", m=17, n=19, k=23),
    ts.workload("linear_relu", m=17, n=19, k=23),
    ts.workload("relu", m=17, n=19),
    ts.workload("add", m=17, n=19),
    ts.workload("softmax", m=17, n=19),
    ts.workload("log_softmax", m=17, n=19),
    ts.workload("layer_norm", m=17, n=19),
    ts.workload("rms_norm", m=17, n=19),
    ts.workload("group_norm", n=2, c=6, h=5, w=4, groups=3),
    ts.workload("batch_norm", n=2, h=5, w=4, c=6),
    ts.workload("batch_norm", n=2, h=5, w=4, c=6, layout="NCHW"),
    *(ts.workload("sum", a=3, b=4, c=5, d=6, axes=axes) for axes in ("b", "ad", "abcd")),
    *(ts.workload("mean", a=3, b=4, c=5, d=6, axes=axes) for axes in ("d", "bc", "abcd")),
    *(ts.workload("max", a=3, b=4, c=5, d=6, axes=axes) for axes in ("c", "bd", "abcd")),
    *(ts.workload("argmax", a=3, b=4, c=5, d=6, axes=axes) for axes in "abcd"),
    ts.workload("conv2d", **CONV),
    ts.workload("conv2d", **CONV, bias=1, relu=1),
    ts.workload("conv2d", **CONV, residual=1, relu=1),
    ts.workload("conv2d", **CONV, bias=1, residual=1, layout="NCHW"),
    *(
        ts.workload("linear", m=5, n=6, k=7, activation=f, bias=b, residual=1 - b)
        for f, b in (("none", 1), ("relu", 0), ("gelu", 1), ("gelu_tanh", 0), ("silu", 1))
    ),
    ts.workload("conv2d", **{**CONV, "dilation": 2}, bias=1, layout="NCHW"),
    ts.workload("conv2d", **{**CONV, "ci": 16, "co": 24}, bias=1, residual=1, relu=1, layout="NCHW8c"),
    ts.workload("conv2d", **CONV, groups=2, layout="NCHW", relu=1),
    *(
        ts.workload(name, n=2, h=9, w=8, c=5, kernel=3, stride=2, padding=1, layout=layout)
        for name in ("max_pool2d", "avg_pool2d")
        for layout in ("NHWC", "NCHW")
    ),
    *(ts.workload("transpose", a=3, b=4, c=5, d=6, order=order) for order in ("abdc", "acbd", "dbac")),
    *(op.workload({"m": 17, "n": 19}) for op in ELEMENTWISE),
    *(ts.workload("concat", a=3, b=4, c=5, d=6, more=7, axis=axis) for axis in "acd"),
    ts.workload("pad", n=2, h=5, w=6, c=3, before=1, after=2, value=-3),
    *(ts.workload("gather", v=11, d=6, m=17, index=index) for index in ("int64", "int32")),
    *(
        ts.workload("resize2d", n=2, h=5, w=6, c=3, scale=scale, mode=mode, layout=layout)
        # Others round where pixels lie to float32: with a factor of three that shows.
        for scale, mode in ((2, "nearest"), (3, "nearest"), (2, "bilinear"), (4, "bilinear"))
        for layout in ("NHWC", "NCHW")
    ),
    *(
        ts.workload("conv1d", n=2, l=13, ci=3, co=4, kernel=3, stride=2, padding=1, dilation=2, **more)
        for more in ({}, {"bias": 1, "relu": 1})
    ),
    *(
        ts.workload("conv2d_transpose", n=2, h=4, w=5, ci=3, co=4, kh=3, kw=4, stride=2, padding=1, **more)
        for more in ({}, {"bias": 1, "relu": 1})
    ),
    ts.workload("quantized_matmul", m=17, n=19, k=23),
    ts.workload("quantized_linear", m=17, n=19, k=23, zero=7),
    ts.workload("quantized_conv2d", **CONV_BYTES),
    *(ts.workload("global_avg_pool2d", n=2, h=9, w=8, c=5, layout=layout) for layout in ("NHWC", "NCHW")),
]


def unavailable(library, workload):
    """What is said where a library has no twin; NumPy has no error function."""
    if workload.name in ("quantized_linear", "quantized_conv2d") and library == "torch":
        return "does not say how torch computes it"
    if workload.name.startswith("quantized") and library == "onnxruntime" and not multiplies_bytes_exactly():
        return "without VNNI it adds two products of bytes in 16 bits"
    if library != "numpy":
        return None
    if workload.name == "bias_gelu" or workload.name.startswith("quantized"):
        return "does not say how numpy computes it"
    grouped = workload.name == "conv2d" and workload.shape["groups"] != 1
    activated = workload.name == "linear" and workload.shape["activation"] not in ("none", "relu")
    return "numpy is not compared on this shape" if grouped or activated else None


# PyTorch computes these in two memory formats.
IMAGES = ("conv2d", "max_pool2d", "avg_pool2d", "global_avg_pool2d", "resize2d", "conv2d_transpose")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.label)
def test_baselines_compute_the_operator(library, workload):
    pytest.importorskip(library)
    inputs = inputs_of(workload, 0)
    missing = unavailable(library, workload)
    if missing:
        with pytest.raises(Unavailable, match=missing):
            variants(library, workload.libraries, workload.shape, inputs)
        return
    want = workload.reference(*inputs)
    found = variants(library, workload.libraries, workload.shape, inputs)
    assert len(found) == (2 if library == "torch" and workload.name in IMAGES else 1)
    for variant in found:
        for _ in range(2):
            got = variant.to_array(variant.call())
            assert got.shape == want.shape
            assert compare(np.asarray(got), want, workload_tolerance(workload)).ok


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("matmul", {"m": 17, "n": 19, "k": 23, "transpose": "NT"}),
        ("linear", {"m": 17, "n": 19, "k": 23, "activation": "silu"}),
        ("conv2d", {"n": 1, "h": 9, "w": 8, "ci": 3, "co": 5, "kh": 3, "kw": 3, "padding": 1}),
    ],
)
def test_pytorch_computes_bfloat16(operator, shape):
    """Which NumPy has no name for: its bits are handed over."""
    pytest.importorskip("torch")
    workload = ts.workload(operator, dtype="bfloat16", **shape)
    inputs = inputs_of(workload, 0)
    for variant in variants("torch", workload.libraries, workload.shape, inputs):
        got = variant.to_array(variant.call())
        assert got.dtype == inputs[0].dtype
        assert compare(got, expected_output(workload, inputs), workload_tolerance(workload)).ok


def test_missing_library_is_one_line(monkeypatch):
    real = builtins.__import__

    def without_torch(name, *rest):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(Unavailable, match=r"^torch is not installed; install it with: pip install [^\n]*$"):
        variants("torch", RELU, {}, [np.ones((2, 2), np.float32)])


def test_unsupported_dtype_is_one_line():
    with pytest.raises(Unavailable, match=r"numpy is compared on float32, float64, .*: dtype=int8"):
        variants("numpy", MATMUL, {}, [np.ones((2, 2), np.int8)] * 2)


def test_rows_are_complete_and_in_order(small):
    names = ["default", "unscheduled", "numpy", "general"]
    rows = ts.bench([small, ts.workload("relu", m=8, n=9)], names, rounds=3, min_repeat_ms=0.1)
    assert [(r["operator"], r["implementation"]) for r in rows] == [
        (op, name) for op in ("matmul", "relu") for name in names
    ]
    for row in rows:
        assert row["verified"] and row["p20_s"] <= row["median_s"] <= row["p80_s"]
        assert row["noise"] >= 0 and row["cache"] == "warm"
        assert row["gflops"] > 0 and row["gbps"] > 0 and row["roofline_fraction"] > 0 and row["threads"] >= 1
    assert rows[0]["ratio"] == 1 and rows[1]["ratio"] == rows[1]["median_s"] / rows[0]["median_s"]
    assert rows[0]["note"] == "default schedule (matmul)"


def test_constant_weights_are_packed_before_the_clock_starts():
    said = []
    workloads = [ts.workload("linear", m=48, n=64, k=40, activation="relu"), ts.workload("relu", m=8, n=9)]
    rows = ts.bench(workloads, ["default", "prepacked"], rounds=1, min_repeat_ms=0.1, say=said.append)
    assert [r["implementation"] for r in rows] == ["default", "prepacked", "default"]
    assert rows[1]["verified"] and rows[1]["note"] == "matmul, the weight packed beforehand"
    why = "relu m=8,n=9: prepacked is left out: its default schedule packs no constant weight"
    assert why in said


def test_caches_are_emptied_before_each_call(monkeypatch):
    done = []
    monkeypatch.setattr(turn_tasks, "_ready", None)
    make_ready(lambda: done.append("call"))
    monkeypatch.setattr(flush, "cache_flush", lambda: lambda: done.append("flush"))
    assert time_turn(TurnJob(2, cold_cache=True)) > 0
    # The first call wakes threads and does not count.
    assert done == ["call", "flush", "call", "flush", "call"]
    done.clear()
    time_turn(TurnJob(2))
    assert done == ["call"] * 3


def test_what_cannot_run_is_left_out_with_a_line(small, tmp_path):
    said = []
    with ts.Database(tmp_path / "t.db") as database:
        rows = ts.bench(small, ["tuned", "conv2d"], database, rounds=1, min_repeat_ms=0.1, say=said.append)
    assert [r["implementation"] for r in rows] == ["tuned"] and rows[0]["note"] == "default schedule (matmul)"
    left_out, peak = said
    why = "conv2d is left out: the schedule 'conv2d' does not apply"
    assert left_out == f"matmul m=64,n=64,k=64,transpose=NN: {why}"
    assert "multiply-adds alone" in peak and "measured in turns" in peak


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["defualt"], "unknown implementation 'defualt'; did you mean default"),
        (["tuned"], "'tuned' needs a database"),
        ([], "name at least one implementation"),
    ],
)
def test_bad_input_is_one_line(small, names, message):
    with pytest.raises(ts.InputError, match=message):
        ts.bench(small, names)


def test_wrong_numbers_are_one_line(small):
    with pytest.raises(ts.InputError, match="rounds must be at least 1: rounds=0"):
        ts.bench(small, rounds=0)
    with pytest.raises(ts.InputError, match="min_repeat_ms must be at least 0 milliseconds, and finite"):
        ts.bench(small, min_repeat_ms=-1)
