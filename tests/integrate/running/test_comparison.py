from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.packaging.build import unscheduled_package
from tunesmith.integrate.running.comparison import compare_packages
from tunesmith.integrate.running.outputs import compare_outputs

from ..conftest import stack


@pytest.fixture(scope="module")
def unscheduled(net: Any) -> Any:
    return unscheduled_package(net)


def test_the_unscheduled_model_is_right(
    unscheduled: Any, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    got = unscheduled.run({"x": net_input})["output_0"]
    np.testing.assert_allclose(got, net_output, rtol=1e-4, atol=1e-5)
    assert {c.schedule for c in unscheduled.choices} == {"none"}


def test_scheduled_equals_unscheduled(unscheduled: Any, net_package: Any, net_input: np.ndarray) -> None:
    found = compare_packages(unscheduled, net_package, {"x": net_input}, rounds=2)
    assert found.ok, found.outputs
    assert found.speedup == found.before_s / found.after_s


def test_packages_of_other_models_are_not_compared(unscheduled: Any, tmp_path: Any) -> None:
    other = ts.compile_model(ts.load_model(stack(tmp_path / "m.onnx", 1)))
    with pytest.raises(ts.InputError, match="the packages take different inputs"):
        compare_packages(unscheduled, other)


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
