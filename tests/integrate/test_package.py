from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from onnx import helper
from tunesmith.integrate.package_file import require_writable
from tunesmith.machine.arrays import aligned_copy

from .conftest import write_onnx

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def package_file(net_package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return net_package.export(tmp_path_factory.mktemp("packages") / "net.package")


def _rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Copy a package with its members changed."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def _with_manifest(source: Path, copy: Path, **fields: Any) -> Path:
    def change(members: dict[str, bytes]) -> None:
        manifest = {**json.loads(members["manifest.json"]), **fields}
        members["manifest.json"] = json.dumps(manifest).encode()

    return _rewritten(source, copy, change)


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


@pytest.mark.parametrize(
    ("path", "message"),
    [("", "it is a folder"), ("none/net.package", "there is no folder"), ("net.package", None)],
)
def test_where_a_package_may_be_written(tmp_path: Path, path: str, message: str | None) -> None:
    if message is None:
        assert require_writable(tmp_path / path) == tmp_path / path
        assert not any(tmp_path.iterdir())
    else:
        with pytest.raises(ts.InputError, match=rf"cannot write .*: {message}"):
            require_writable(tmp_path / path)


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ts.InputError, match="Permission denied; choose another folder"):
        require_writable(tmp_path / "net.package")


def test_the_output_path_is_checked_before_the_work(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*_: Any) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr("tunesmith.integrate.package.apply_records", no_work)
    with pytest.raises(ts.InputError, match="there is no folder"):
        ts.compile_model(net, output=tmp_path / "none" / "net.package")


def test_compiles_straight_to_a_file(net: Any, tmp_path: Path) -> None:
    ts.compile_model(net, output=tmp_path / "net.package")
    assert ts.load_package(tmp_path / "net.package").inputs == net.inputs


def test_a_loaded_package_is_copied_not_exported(package_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ts.InputError, match="was loaded from a package file; copy that file"):
        ts.load_package(package_file).export(tmp_path / "again.package")


def test_no_such_package(tmp_path: Path) -> None:
    with pytest.raises(ts.InputError, match=r"no such package: .*none"):
        ts.load_package(tmp_path / "none")


def test_another_file_is_no_package(tmp_path: Path, net_path: Path) -> None:
    with pytest.raises(ts.InputError, match="not a tunesmith package, or a damaged one"):
        ts.load_package(net_path)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ts.InputError, match=r"not a tunesmith package: .*: it holds 'readme.txt'"):
        ts.load_package(tmp_path / "other.zip")


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_package_is_found(package_file: Path, tmp_path: Path, kept: float) -> None:
    content = package_file.read_bytes()
    (tmp_path / "short").write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ts.InputError, match="damaged"):
        ts.load_package(tmp_path / "short")


@pytest.mark.parametrize("member", ["net.so", "weights.params", "manifest.json"])
def test_an_altered_package_is_found(package_file: Path, tmp_path: Path, member: str) -> None:
    content = bytearray(package_file.read_bytes())
    with zipfile.ZipFile(package_file) as archive:
        info = archive.getinfo(member)
    content[info.header_offset + 30 + len(member) + info.file_size // 2] ^= 0xFF
    (tmp_path / "altered").write_bytes(content)
    with pytest.raises(ts.InputError, match="damaged"):
        ts.load_package(tmp_path / "altered")


@pytest.mark.parametrize("name", ["../evil.so", "/tmp/evil.so", "net.so/../../evil.so"])
def test_a_member_that_escapes_is_refused(package_file: Path, tmp_path: Path, name: str) -> None:
    path = _rewritten(package_file, tmp_path / "p", lambda members: members.update({name: b"evil"}))
    with pytest.raises(ts.InputError, match=r"not a tunesmith package: .*: it holds '.*evil.so'"):
        ts.load_package(path)


def test_a_package_without_its_weights_is_refused(package_file: Path, tmp_path: Path) -> None:
    path = _rewritten(package_file, tmp_path / "p", lambda members: members.__delitem__("weights.params"))
    with pytest.raises(ts.InputError, match="it is incomplete"):
        ts.load_package(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "other"}, "not a tunesmith package"),
        ({"format_version": 2}, "has package format 2, this tunesmith reads up to 1; update tunesmith"),
        ({"format_version": None}, "has package format None"),
        ({"tvm_version": "0.99"}, "was built with TVM 0.99, this is .*; build the package again"),
        ({"surprise": 1}, "has a damaged manifest: .*surprise"),
        ({"inputs": [{"name": "x"}]}, "has a damaged manifest: 'shape'"),
    ],
)
def test_manifests_that_are_refused(
    package_file: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ts.InputError, match=message):
        ts.load_package(_with_manifest(package_file, tmp_path / "p", **fields))


def test_a_package_for_another_machine_is_refused(package_file: Path, tmp_path: Path) -> None:
    here = ts.host_target()
    triple = str(here.attrs["mtriple"])
    other = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}
    path = _with_manifest(package_file, tmp_path / "arm", target=json.dumps(other))
    with pytest.raises(ts.InputError, match=r"was built for .*cortex-a72.*; this machine is "):
        ts.load_package(path)
    if triple.startswith("x86_64"):
        newest = {"kind": "llvm", "mtriple": triple, "mcpu": "diamondrapids"}
        path = _with_manifest(package_file, tmp_path / "amx", target=json.dumps(newest))
        with pytest.raises(ts.InputError, match=r"was built for diamondrapids; this CPU lacks .*amx-"):
            ts.load_package(path)
