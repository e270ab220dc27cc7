from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from onnx import helper
from tunesmith.integrate.lowering.choice import Choice
from tunesmith.integrate.running.inputs import filled
from tunesmith.integrate.running.package import Package
from tunesmith.integrate.running.profiling import profile
from tunesmith.machine.arrays import aligned_copy
from tunesmith.machine.signature import ArgSpec

from ..conftest import write_onnx

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def package_file(net_package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return net_package.export(tmp_path_factory.mktemp("packages") / "net.package")


def test_computes_what_the_model_computes(
    net_package: Any, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    before = net_input.copy()
    outputs = net_package.run({"x": net_input})
    assert list(outputs) == ["output_0"]
    np.testing.assert_allclose(outputs["output_0"], net_output, **CLOSE)
    np.testing.assert_array_equal(net_input, before)


def test_results_are_the_callers_own(net_package: Any, net_input: np.ndarray, tmp_path: Path) -> None:
    first = net_package.run({"x": net_input})["output_0"]
    kept = first.copy()
    net_package.run({"x": -net_input})
    np.testing.assert_array_equal(first, kept)
    # What a model passes through is the input itself: writing to the result must not reach it.
    node = helper.make_node("Identity", ["x"], ["y"])
    path = write_onnx(tmp_path / "same.onnx", [node], {"x": [2, 3, 4]}, {"y": [2, 3, 4]})
    x = aligned_copy(np.ones((2, 3, 4), np.float32))
    ts.compile_model(ts.load_model(path)).run({"x": x})["output_0"][...] = 0
    assert x.min() == 1


def test_takes_arrays_that_compiled_code_could_not_read(
    net_package: Any, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    room = np.empty(net_input.size + 1, np.float32)
    for start in (0, 1):
        shifted = room[start : start + net_input.size].reshape(net_input.shape)
        shifted[...] = net_input
        np.testing.assert_allclose(net_package.run({"x": shifted})["output_0"], net_output, **CLOSE)
    strided = np.repeat(net_input, 2, axis=3)[..., ::2]
    strided.flags.writeable = False
    np.testing.assert_allclose(net_package.run({"x": strided})["output_0"], net_output, **CLOSE)


def test_runs_in_a_new_process_without_anything_else(
    package_file: Path, tmp_path: Path, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    np.save(tmp_path / "x.npy", net_input)
    code = (
        "import sys, numpy as np, tunesmith as ts\n"
        "package = ts.load_package(sys.argv[1])\n"
        "np.save('y.npy', package.run({'x': np.load('x.npy')})['output_0'])\n"
    )
    alone = tmp_path / "moved.package"
    alone.write_bytes(package_file.read_bytes())
    subprocess.run([sys.executable, "-c", code, str(alone)], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), net_output, **CLOSE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moved.package", "x.npy", "y.npy"]


def test_the_manifest_survives_the_file(net_package: Any, package_file: Path) -> None:
    loaded = ts.load_package(package_file)
    assert loaded.manifest == net_package.manifest
    assert {c.origin for c in loaded.choices} == {"default"}
    assert json.loads(loaded.manifest.target)["kind"] == "llvm"


def test_an_export_leaves_nothing_else_behind(package_file: Path) -> None:
    assert [p.name for p in package_file.parent.iterdir()] == [package_file.name]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "needs all of its inputs: x missing"),
        ({"y": np.zeros((1, 3, 12, 12), np.float32)}, "unknown input 'y'"),
        (
            {"x": np.zeros((1, 3, 12), np.float32)},
            r"input x must be float32 of shape \(1, 3, 12, 12\): found ",
        ),
        ({"x": np.zeros((1, 3, 12, 12))}, "input x must be float32 .*: found float64"),
        ({"x": "text"}, "must be a NumPy array"),
    ],
)
def test_wrong_inputs(net_package: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ts.InputError, match=message):
        net_package.run(inputs)


def test_fill_modes(net_package: Any) -> None:
    results = {fill: net_package.run(fill=fill)["output_0"] for fill in ("random", "zeros", "ones")}
    zeros = {"x": np.zeros((1, 3, 12, 12), np.float32)}
    np.testing.assert_array_equal(results["zeros"], net_package.run(zeros)["output_0"])
    assert len({r.tobytes() for r in results.values()}) == 3
    np.testing.assert_array_equal(results["random"], net_package.run()["output_0"])
    with pytest.raises(ts.InputError, match="fill must be one of random, zeros, ones: 'noise'"):
        net_package.run(fill="noise")


def test_times(net_package: Any) -> None:
    row = net_package.time(number=2, repeat=3)
    assert list(row) == "package repeat number mean_s median_s max_s min_s std_s threads".split()
    assert (row["package"], row["repeat"], row["number"]) == ("net", 3, 2)
    assert 0 < row["min_s"] <= row["median_s"] <= row["max_s"]
    with pytest.raises(ts.InputError, match="repeat at least 1: number=1, repeat=0"):
        net_package.time(repeat=0)


def test_the_profile_names_every_function(net_package: Any) -> None:
    rows = net_package.profile(repeat=2)
    names = {row["function"] for row in rows}
    assert {c.function for c in net_package.choices if c.flops} <= names
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert [row["seconds"] for row in rows] == sorted((row["seconds"] for row in rows), reverse=True)
    heaviest = net_package.choices[0]
    row = next(row for row in rows if row["function"] == heaviest.function)
    assert row["gflops"] == pytest.approx(heaviest.flops / row["seconds"] / 1e9)
    assert row["roofline_fraction"] > 0
    assert (row["origin"], row["schedule"]) == ("default", "conv2d")


def test_the_profile_does_not_count_its_own_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched call takes Python 2 s before and after it, a function 10 s, and what TVM itself calls 1 s."""
    now, vm = [0.0], {}
    monkeypatch.setattr("tunesmith.integrate.running.profiling.time.perf_counter", lambda: now[0])

    def watched(*_tensors: Any) -> None:
        for symbol, seconds in (("vm.builtin.null_value", 1.0), ("f", 10.0), ("f_prepacked", 10.0)):
            now[0] += 2.0
            vm["watch"](None, symbol, True, None)
            now[0] += seconds + 2.0
            vm["watch"](None, symbol, False, None)

    def unwatched(*_tensors: Any) -> None:
        now[0] += 21.0

    vm |= {"main": watched, "set_instrument": lambda watch: vm.update(watch=watch)}
    rows = profile(unwatched, vm, [], [Choice("f", "default", "general", "")], repeat=2)
    assert [(row["function"], row["calls"], row["seconds"]) for row in rows] == [
        ("f", 2, 20.0),
        ("(runtime)", 1, 1.0),
    ]
    assert rows[0]["share"] == pytest.approx(20 / 21)
    # A slow inference of a busy machine is not the runtime's fault.
    busy = profile(lambda *t: [unwatched() for _ in range(9)], vm, [], [Choice("f", "", "", "")], repeat=2)
    assert busy[1]["seconds"] == 3.0


def test_the_output_path_is_checked_before_the_work(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*_: Any) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr("tunesmith.integrate.packaging.build.apply_records", no_work)
    with pytest.raises(ts.InputError, match="there is no folder"):
        ts.compile_model(net, output=tmp_path / "none" / "net.package")


def test_compiles_straight_to_a_file(net: Any, tmp_path: Path) -> None:
    ts.compile_model(net, output=tmp_path / "net.package")
    assert ts.load_package(tmp_path / "net.package").inputs == net.inputs


def test_a_loaded_package_is_copied_not_exported(package_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ts.InputError, match="was loaded from a package file; copy that file"):
        ts.load_package(package_file).export(tmp_path / "again.package")


def test_a_call_takes_inputs_by_position_or_name(net_package: Any, net_input: np.ndarray) -> None:
    want = net_package.run({"x": net_input})["output_0"]
    for got in (net_package(net_input), net_package(x=net_input)):
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("arrays", "by_name", "message"),
    [
        ((1, 2), {}, r"the model takes 1 inputs \(x\): found 2"),
        ((1,), {"x": 1}, "input x is given twice"),
        ((), {}, "x missing"),
        ((), {"y": 1}, "unknown input 'y'"),
        (("text",), {}, "input x: an argument must be a NumPy array"),
    ],
)
def test_wrong_calls(net_package: Any, arrays: Any, by_name: Any, message: str) -> None:
    with pytest.raises(ts.InputError, match=message):
        net_package(*arrays, **by_name)


def test_several_outputs_are_a_tuple(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    path = write_onnx(tmp_path / "two.onnx", nodes, {"x": [4]}, {"a": [4], "b": [4]})
    package = ts.compile_model(ts.load_model(path))
    x = np.array([-1, 0, 1, 2], np.float32)
    a, b = package(x)
    np.testing.assert_array_equal(a, np.maximum(x, 0))
    np.testing.assert_array_equal(b, -x)


def test_random_integers_are_zero_or_one() -> None:
    specs = [ArgSpec(d, (100,), d) for d in ("int64", "uint8", "bool", "bfloat16")]
    *integers, floats = filled(specs)
    assert all(set(np.unique(array.astype(int))) == {0, 1} for array in integers)
    assert -1 <= floats.astype(np.float32).min() < -0.5


def test_calls_from_several_threads_give_right_results(net_package: Any) -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((1, 3, 12, 12)).astype(np.float32) for _ in range(8)]
    wanted = [net_package(x) for x in given]
    # Without turns, calls would find each other's frames within these rounds.
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for got, want in zip(pool.map(net_package, given), wanted, strict=True):
                np.testing.assert_array_equal(got, want)


def test_loading_and_running_imports_no_compiler(net_package: Any, tmp_path: Path) -> None:
    net_package.export(tmp_path / "net.package")
    code = (
        "import sys, tunesmith as ts\n"
        "package = ts.load_package('net.package')\n"
        "package.run(), package.time(repeat=1)\n"
        "print([n for n in ('tvm', 'torch', 'onnx', 'scipy', 'xgboost') if n in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_functions_that_are_not_there_are_named(net_package: Any, tmp_path: Path) -> None:
    class Library:
        def __getitem__(self, name: str) -> Any:
            raise ValueError("Cannot find PackedFunc my_relu")

    with pytest.raises(ts.InputError, match=r"net cannot run in this process: .*my_relu; register the func"):
        Package(Library(), [], net_package.manifest)
