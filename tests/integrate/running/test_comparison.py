from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.packaging.build import unscheduled_package
from tunesmith.integrate.running import contenders
from tunesmith.integrate.running.comparison import Comparison
from tunesmith.integrate.running.contenders import Contender, has_onnxruntime
from tunesmith.integrate.running.outputs import compare_outputs
from tunesmith.integrate.running.package import Package
from tunesmith.machine.arrays import aligned_copy, as_tensor

from ..conftest import stack


@pytest.fixture(scope="module")
def unscheduled(net: Any) -> Any:
    return unscheduled_package(net)


@pytest.fixture(scope="module")
def package_file(net_package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return net_package.export(tmp_path_factory.mktemp("packages") / "net.package")


def _comparison(before: tuple[float, ...], after: tuple[float, ...]) -> Comparison:
    return Comparison((), Contender("a", before, 0.1, 1), Contender("b", after, 0.1, 1))


def test_the_unscheduled_model_is_right(
    unscheduled: Any, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    got = unscheduled.run({"x": net_input})["output_0"]
    np.testing.assert_allclose(got, net_output, rtol=1e-4, atol=1e-5)
    assert {c.schedule for c in unscheduled.choices} == {"none"}


def test_scheduled_equals_unscheduled(unscheduled: Any, package_file: Path, net_input: np.ndarray) -> None:
    found = ts.compare(unscheduled, package_file, {"x": net_input}, rounds=3, number=2)
    assert found.ok, found.outputs
    assert [len(side.seconds) for side in (found.before, found.after)] == [3, 3]
    assert (found.before.name, found.after.name) == ("net", str(package_file))
    for side in (found.before, found.after):
        # Neither this process nor what it has imported is a part of it.
        assert 10e6 < side.peak_bytes < 150e6
        assert side.first_s > side.median_s > 0


@pytest.mark.skipif(not has_onnxruntime(), reason="ONNX Runtime is not installed")
def test_onnxruntime_computes_the_same(net_package: Any, net_path: Path, net_input: np.ndarray) -> None:
    found = ts.compare(net_package, net_path, {"x": net_input}, rounds=2)
    assert found.ok, found.outputs
    assert found.after.name == f"{net_path} (ONNX Runtime)"


@pytest.mark.skipif(not has_onnxruntime(), reason="ONNX Runtime is not installed")
def test_what_cannot_run_is_told_in_one_line(net_package: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(ts.InputError, match=r"^cannot run .*bad\.onnx \(ONNX Runtime\): ") as caught:
        ts.compare(net_package, tmp_path / "bad.onnx")
    assert "\n" not in str(caught.value)


def test_without_onnxruntime_it_is_said(
    net_package: Any, net_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "find_spec", lambda name: None)
    with pytest.raises(ts.InputError, match=r"net\.onnx needs ONNX Runtime: pip install 'tunesmith\[basel"):
        ts.compare(net_package, net_path)


def test_a_wrong_result_is_found(net_package: Any, net_input: np.ndarray) -> None:
    weights = [aligned_copy(weight) for weight in net_package._weights]
    max(weights, key=lambda weight: weight.size)[...] *= 1.01
    parts = (net_package._library, map(as_tensor, weights), net_package.manifest, net_package._executable)
    found = ts.compare(net_package, Package(*parts), {"x": net_input}, rounds=1)
    assert not found.ok
    assert "elements are wrong" in found.outputs[0].message


def test_packages_of_other_models_are_not_compared(unscheduled: Any, tmp_path: Any) -> None:
    other = ts.compile_model(ts.load_model(stack(tmp_path / "m.onnx", 1)))
    with pytest.raises(ts.InputError, match="the packages take different inputs"):
        ts.compare(unscheduled, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rounds": 0}, "rounds must be at least 1 .*: rounds=0"), ({"number": -1}, "number=-1")],
)
def test_wrong_numbers(net_package: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(ts.InputError, match=message):
        ts.compare(net_package, net_package, **options)


def test_files_that_are_not_there(net_package: Any) -> None:
    with pytest.raises(ts.InputError, match="no such package: none"):
        ts.compare(net_package, "none")
    with pytest.raises(ts.InputError, match=r"no such model: none\.onnx"):
        ts.compare(net_package, "none.onnx")


def test_the_interval_holds_the_ratio_and_is_the_same_every_time() -> None:
    rng = np.random.default_rng(0)
    noise = tuple(1 + 0.05 * rng.standard_normal(15))
    twice, again = (_comparison(tuple(2 * n for n in noise), noise[1:] + noise[:1]) for _ in range(2))
    low, high = twice.interval
    assert 1.8 < low < twice.speedup < high < 2.2
    assert again.interval == (low, high)
    assert _comparison((2.0,), (1.0,)).interval == (0, inf)


def test_a_ratio_is_of_one_round() -> None:
    """A disturbance that meets both in a round does not count."""
    assert _comparison((2.0, 20.0, 2.0), (1.0, 10.0, 1.0)).ratios == [2, 2, 2]


def test_a_wrong_output_is_found() -> None:
    want = {"output_0": np.linspace(-1, 1, 10, dtype=np.float32)}
    (right,) = compare_outputs({"output_0": want["output_0"] * np.float32(1 + 1e-6)}, want)
    assert right.ok
    assert right.max_error is not None and 0 < right.max_error < 1e-5
    wrong = want["output_0"].copy()
    wrong[3] += 0.01
    (check,) = compare_outputs({"output_0": wrong}, want)
    assert not check.ok
    assert "1 of 10 elements are wrong, first at (3,)" in check.message
    (unwritten,) = compare_outputs({"output_0": want["output_0"] * np.float32(np.nan)}, want)
    assert not unwritten.ok


@pytest.mark.parametrize("got", [{}, {"output_0": np.zeros(9)}, {"other": np.zeros(10)}])
def test_other_outputs_are_not_compared(got: dict[str, np.ndarray]) -> None:
    with pytest.raises(ts.InputError, match="the outputs differ in name or shape"):
        compare_outputs(got, {"output_0": np.zeros(10)})
