import pytest
import tunesmith as ts
from tunesmith.integrate.tuning.listing import task_standings

from ..conftest import record_of, stack


def test_what_is_known_of_each_task_is_told(net, tmp_path):
    found = ts.extract_workloads(net)
    assert [each.task for each in found] == list(range(len(found)))
    with ts.Database(tmp_path / "t.db") as database:
        record = database.add(record_of(found[1].workload, run_secs=(0.5,)))
        database.add(record_of(found[0].workload, verified=False))
        standings = task_standings(found, database)
    assert [each.record and each.record.id for each in standings[:3]] == [None, record.id, None]
    assert [each.timing for each in standings[:3]] == ["predicted", "measured", "predicted"]
    assert [each.trials for each in standings[:3]] == [1, 1, 0]
    assert standings[1].seconds == 0.5 * found[1].calls and standings[1].time_share > 0.99
    least = ts.roofline_seconds(found[0].workload.flops, found[0].workload.bytes_moved, "float32")
    assert standings[0].seconds == pytest.approx(least * found[0].calls)


def test_every_call_counts(tmp_path):
    (found,) = ts.extract_workloads(ts.load_model(stack(tmp_path / "three.onnx", 3)))
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(found.workload, run_secs=(0.5,)))
        (standing,) = task_standings([found], database)
    assert (standing.seconds, standing.time_share) == (1.5, 1.0)


def test_without_a_database_all_is_predicted(net):
    standings = task_standings(ts.extract_workloads(net), None)
    assert {each.timing for each in standings} == {"predicted"} and not any(s.trials for s in standings)
    assert sum(each.time_share for each in standings) == pytest.approx(1)
