import dataclasses

import pytest
import tunesmith as ts
from tunesmith.machine.target import target_text
from tunesmith.tuning.acceptance import verify_imported
from tunesmith.tuning.measuring.measurement import Timing

SKETCH, UNFIT = "6f42597b7a8b", '[[["GetSBlock", [], ["none", "main"], ["b0"]]], []]'


@pytest.fixture
def imported(frozen, tmp_path):
    """A database with records as they are imported: a right one, one that does not fit, one of elsewhere."""
    with ts.Database(frozen) as source:
        record = dataclasses.replace(source.get(SKETCH), space="imported", verified=False, key=None)
    here = target_text(ts.host_target())
    with ts.Database(tmp_path / "imported.db") as database:
        database.add(dataclasses.replace(record, id="right", target=here))
        database.add(dataclasses.replace(record, id="unfit", target=here, trace=UNFIT))
        database.add(dataclasses.replace(record, id="elsewhere", target='{"kind":"c"}'))
        yield database


def test_imported_records_are_verified_and_applied(imported):
    workload = ts.workload("matmul", m=16, n=16, k=16)
    assert imported.best(workload.hash, target_text(ts.host_target())) is None
    tried = verify_imported(imported, Timing(min_repeat_ms=1, budget_s=0))
    assert sorted((str(r.status), r.verified) for r in tried) == [("ok", True), ("schedule_error", False)]
    assert {r.id for r in imported.records()} == {"elsewhere", *(r.id for r in tried)}
    best = imported.best(workload.hash, target_text(ts.host_target()))
    assert (best.space, best.strategy, best.operator, best.key) == ("sketch", "imported", "matmul", None)
    assert best.run_secs and best.machine_fingerprint != "unknown"
    assert verify_imported(imported) == []
