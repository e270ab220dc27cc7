"""A TVM user's own Relax pipeline takes the records of a database by one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.integrate.lowering.functions import SCHEDULED, prim_funcs
from tunesmith.machine.arrays import as_tensor
from tunesmith.schedules.passes.in_place import IN_PLACE_MARK
from tvm import relax
from tvm.relax import transform

from ..conftest import record_of
from .conftest import FUNCTION, two_layers

LOWER = (
    transform.LegalizeOps(),
    transform.AnnotateTIROpPattern(),
    transform.FuseOps(),
    transform.FuseTIR(),
)


def lowered() -> Any:
    return tvm.transform.Sequential(LOWER)(two_layers())


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    executable = tvm.compile(mod, target=ts.host_target())
    return np.asarray(relax.VirtualMachine(executable, tvm.cpu())["main"](as_tensor(x)).numpy())


def scheduled(mod: Any) -> dict[str, bool]:
    return {name: bool((func.attrs or {}).get(SCHEDULED)) for name, func in prim_funcs(mod)}


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """A database with a record of the function that the module calls twice."""
    with ts.Database(tmp_path / "t.db") as opened:
        found = next(w for w in ts.extract_workloads(lowered()) if FUNCTION in w.functions)
        assert found.calls == 2 and found.workload.weights == (1,)
        opened.add(record_of(found.workload))
        yield opened


def test_one_pass_at_the_end_of_a_pipeline(database: Any, x: np.ndarray, y: np.ndarray) -> None:
    apply = ts.ApplyDatabase(database)
    mod = tvm.transform.Sequential([*LOWER, apply])(two_layers())
    np.testing.assert_allclose(run(mod, x), y, rtol=1e-4, atol=1e-6)
    origins = {c.function: c.origin for c in apply.choices}
    assert origins == {FUNCTION: "record", "matmul1": "default", "softmax": "default"}
    assert all(scheduled(mod).values())
    # The default of softmax computes exponentials in place; TVM alone does not know how.
    assert "T_softmax_exp" in mod["softmax"].script() and IN_PLACE_MARK not in mod.script()


def test_functions_without_a_record_are_left_alone(database: Any, x: np.ndarray, y: np.ndarray) -> None:
    apply = ts.ApplyDatabase(database, ts.host_target(), defaults=False)
    mod = apply(lowered())
    np.testing.assert_allclose(run(mod, x), y, rtol=1e-4, atol=1e-6)
    left = [c for c in apply.choices if c.function != FUNCTION]
    assert {c.schedule for c in left} == {"none"}
    assert {c.reason for c in left} == {"no verified record of this target, left as it is"}
    assert sorted(scheduled(mod).values()) == [False, False, True]


def test_weights_are_packed_once(database: Any) -> None:
    mod = ts.ApplyDatabase(database)(lowered())
    assert any(name.endswith("_prepacked") for name, _ in prim_funcs(mod))


def test_the_record_of_a_model_serves_where_the_function_is_the_same(tmp_path: Path) -> None:
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(ts.take(ts.load_model(two_layers()), FUNCTION)))
        apply = ts.ApplyDatabase(database)
        apply(lowered())
    assert next(c for c in apply.choices if c.function == FUNCTION).origin == "record"


def test_what_is_scheduled_stays(database: Any) -> None:
    apply = ts.ApplyDatabase(database)
    apply(ts.ApplyDatabase(None)(lowered()))
    assert {c.origin for c in apply.choices} == {"given"}


def test_a_module_of_prim_funcs_alone_keeps_their_names(database: Any) -> None:
    func = ts.workload("relu", m=8, n=16).func
    mod = tvm.IRModule({name: func.with_attr("global_symbol", name) for name in ("main", "other")})
    result = ts.ApplyDatabase(None)(mod)
    assert [f.attrs["global_symbol"] for _, f in prim_funcs(result)] == ["main", "other"]
    assert all(scheduled(result).values())
