from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tunesmith as ts
from onnx import numpy_helper
from tunesmith.integrate.lowering import application
from tunesmith.integrate.lowering.application import MissingRecordsError, apply_records
from tunesmith.integrate.lowering.constants import is_constant
from tunesmith.integrate.lowering.functions import prim_func_calls, prim_funcs
from tunesmith.integrate.lowering.packing import pack_weights
from tunesmith.integrate.lowering.pipeline import prepare
from tunesmith.schedules.rule import ScheduleRule
from tunesmith.schedules.space import KnobSpace
from tunesmith.tuning.records.record import Status
from tvm.relax import op

from ..conftest import record_of, stack
from .plain import module, normal


def _failing(name: str) -> ScheduleRule:
    def rewrite(sch: Any) -> None:
        sch.get_sblock("no such block")

    return ScheduleRule(name, "always fails", rewrite, lambda func, target: KnobSpace((), (), {}))


def _heaviest(net: Any) -> Any:
    return ts.extract_workloads(net)[0].workload


def _choice(choices: Any, name: str) -> Any:
    return next(c for c in choices if c.function == name)


def test_without_records_every_function_gets_its_default(net: Any) -> None:
    mod, choices = apply_records(net.prepared(ts.host_target()), ts.host_target())
    assert {c.origin for c in choices} == {"default"}
    assert {c.function for c in choices} == {name for name, _ in prim_funcs(mod)}
    assert all(func.attrs["tirx.is_scheduled"] for _, func in prim_funcs(mod))


def test_a_record_is_put_back_into_the_model(
    net: Any, tmp_path: Path, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    workload = _heaviest(net)
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload, run_secs=(2e-3,)))
        package = ts.compile_model(net, database=database)
    choice = _choice(package.choices, workload.name)
    assert (choice.origin, choice.schedule) == ("record", "conv2d")
    assert choice.reason == f"record test-{workload.name}: 2 ms"
    assert (choice.record, choice.recorded_s) == (f"test-{workload.name}", 2e-3)
    assert sum(c.origin == "record" for c in package.choices) == 1
    np.testing.assert_allclose(package.run({"x": net_input})["output_0"], net_output, rtol=1e-4, atol=1e-5)


def test_the_record_decides_the_schedule(net: Any, tmp_path: Path) -> None:
    workload, target = _heaviest(net), ts.host_target()
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload, space="general", knobs={}))
        mod, _ = apply_records(net.prepared(target), target, database)
    plain, _ = apply_records(net.prepared(target), target)
    functions = {
        label: dict(prim_funcs(m))[workload.name].script() for label, m in (("a", mod), ("b", plain))
    }
    assert functions["a"] != functions["b"]


@pytest.mark.parametrize(
    "changes",
    [{"verified": False}, {"status": Status.WRONG_RESULT}, {"target": '{"kind":"llvm","mcpu":"other"}'}],
)
def test_other_records_are_not_applied(net: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    workload = _heaviest(net)
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload, **changes))
        _, choices = apply_records(net.prepared(ts.host_target()), ts.host_target(), database)
    choice = _choice(choices, workload.name)
    assert (choice.origin, choice.reason) == ("default", "no verified record of this target")


def test_a_record_that_does_not_fit_is_told_and_the_default_taken(net: Any, tmp_path: Path) -> None:
    workload = _heaviest(net)
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload, knobs={"no_such_knob": 1}))
        _, choices = apply_records(net.prepared(ts.host_target()), ts.host_target(), database)
    choice = _choice(choices, workload.name)
    assert (choice.origin, choice.schedule) == ("fallback", "conv2d")
    assert "conv2d failed: InputError: unknown knob 'no_such_knob'" in choice.reason


def test_a_failing_schedule_is_told_and_the_next_one_taken(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"broken": _failing("broken"), **ts.schedule_rules()}
    monkeypatch.setattr(application.schedules, "schedule_rules", lambda: rules)
    _, choices = apply_records(net.prepared(ts.host_target()), ts.host_target())
    assert {c.origin for c in choices} == {"fallback"}
    assert all(c.reason.startswith("broken failed: ") for c in choices)
    assert _choice(choices, _heaviest(net).name).schedule == "conv2d"


def test_without_any_schedule_the_plain_loops_stay_and_it_is_said(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application.schedules, "schedule_rules", lambda: {"broken": _failing("broken")})
    mod, choices = apply_records(net.prepared(ts.host_target()), ts.host_target())
    assert {(c.origin, c.schedule) for c in choices} == {("fallback", "none")}
    assert all(c.reason.endswith("no schedule applies") for c in choices)
    assert [name for name, _ in prim_funcs(mod)] == [n for n, _ in prim_funcs(net.prepared(ts.host_target()))]


def test_strict_names_the_functions_without_a_record(net: Any, tmp_path: Path) -> None:
    workload = _heaviest(net)
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload))
        with pytest.raises(MissingRecordsError, match="functions have no record: ") as caught:
            ts.compile_model(net, database=database, strict=True)
    assert workload.name not in str(caught.value)


def test_strict_passes_with_a_record_for_every_workload(net: Any, tmp_path: Path) -> None:
    with ts.Database(tmp_path / "t.db") as database:
        for found in ts.extract_workloads(net):
            database.add(record_of(found.workload))
        package = ts.compile_model(net, database=database, strict=True)
    assert {c.origin for c in package.choices if c.flops} == {"record"}


def test_weights_are_packed_once_at_compile_time(net: Any) -> None:
    target = ts.host_target()
    scheduled, _ = apply_records(net.prepared(target), target)
    script = scheduled.script()
    packed = pack_weights(scheduled)
    assert "layout_rewrite_preproc" in script, "the default schedule packs"
    assert "layout_rewrite_preproc" not in packed.script()
    before = [name for name, _ in prim_func_calls(scheduled)]
    assert [name.removesuffix("_prepacked") for name, _ in prim_func_calls(packed)] == before


def test_a_weight_that_is_read_again_and_again_is_packed_once() -> None:
    """As by the steps of a recurrent layer, each of which is a call of the same function."""

    def steps(x: Any) -> Any:
        weight = normal(64, 64)
        for _ in range(3):
            x = op.tanh(op.matmul(x, weight))
        return x

    target = ts.host_target()
    scheduled, _ = apply_records(prepare(module(steps, (64, 64)), target), target)
    found = [arg for _, args in prim_func_calls(pack_weights(scheduled)) for arg in args]
    packed = [arg for arg in found if is_constant(arg) and len(arg.ty.shape) > 2]
    assert len(packed) == 3
    assert len(set(packed)) == 1


def test_packing_inside_other_loops_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rewrite(sch: Any) -> None:
        product = next(b for b in sch.get_child_blocks(sch.get_sblock("root")) if len(sch.get_loops(b)) == 3)
        copy = sch.cache_read(product, 1, "global")
        sch.compute_at(copy, sch.get_loops(product)[0])
        sch.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)

    rule = ScheduleRule("inner", "packs in a loop", rewrite, lambda func, target: KnobSpace((), (), {}))
    monkeypatch.setattr(application.schedules, "schedule_rules", lambda: {"inner": rule})
    path = stack(tmp_path / "m.onnx", 2)
    package = ts.compile_model(ts.load_model(path))
    assert {c.origin for c in package.choices} == {"default"}
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    w = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    want = np.tanh(np.tanh(x @ w[0]) @ w[1])
    np.testing.assert_allclose(package.run({"x0": x})["output_0"], want, rtol=1e-4, atol=1e-5)


def test_one_function_taken_out_tuned_and_put_back(
    net: Any, tmp_path: Path, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    name = _heaviest(net).name
    workload = ts.take(net, name)
    rule = ts.schedule_rules()["conv2d"]
    space = rule.space(workload.func, ts.host_target())
    assert space is not None
    other = next(p for p in space.points if p != dict(space.default))
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(workload, knobs=other))
        package = ts.compile_model(net, database=database)
    assert _choice(package.choices, name).origin == "record"
    np.testing.assert_allclose(package.run({"x": net_input})["output_0"], net_output, rtol=1e-4, atol=1e-5)
