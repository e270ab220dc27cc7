"""Rules of one's own: added with one call, tried first, and replaced by a new one of the same name."""

from dataclasses import replace

import pytest
import tunesmith as ts
import tvm
from tunesmith import schedules
from tunesmith.integrate.lowering.application import apply_records
from tunesmith.schedules import is_built_in, rules_for
from tunesmith.tuning.records.compilation import best_schedule
from tunesmith.tuning.running.builder import portable_rule
from tunesmith.tuning.search import search_for


@pytest.fixture(autouse=True)
def no_rules_yet(monkeypatch):
    monkeypatch.setattr(schedules, "_own", {})


def rewrite(sch):
    sch.parallel(sch.get_loops(sch.get_sblock("relu"))[0])


def space(func, target):
    return ts.KnobSpace((), (), {}) if "relu" in func.script() else None


def own(name="rows_of_relu"):
    return ts.add_schedule(ts.ScheduleRule(name, "one's own", rewrite, space))


RELU = ts.workload("relu", m=8, n=16)


def test_an_own_rule_is_the_default_where_it_applies():
    rule, target = own(), ts.host_target()
    assert ts.apply_default(RELU.func, target)[1] is rule
    assert rules_for(RELU.func, target)[0] is rule
    assert best_schedule(RELU)[1].space == "rows_of_relu"
    assert rule not in rules_for(ts.workload("matmul", m=8, n=16, k=4).func, target)


def test_a_space_that_is_not_preferred_leaves_the_default_to_others():
    def hesitant(func, target):
        found = space(func, target)
        return found and replace(found, preferred=False)

    rule = ts.add_schedule(ts.ScheduleRule("hesitant", "one's own", rewrite, hesitant))
    target = ts.host_target()
    rules = rules_for(RELU.func, target)
    assert ts.apply_default(RELU.func, target)[1] is rules[0] is not rule
    assert [each.name for each in rules] == ["general", "hesitant"]
    assert best_schedule(RELU)[1].space == rules[0].name
    assert rule.default(RELU.func, target) is None
    assert "T.parallel" in rule.scheduled(RELU.func, target).mod.script()
    assert search_for(RELU, target, None).rule is rules[0]
    _, (choice,) = apply_records(tvm.IRModule({"relu": RELU.func}), target)
    assert (choice.origin, choice.schedule) == ("default", rules[0].name)
    assert search_for(RELU, target, "hesitant").rule is rule


def test_the_rule_added_last_comes_first():
    first, second = own("first"), own("second")
    assert list(ts.schedule_rules().values())[:2] == [second, first]
    again = own("first")
    assert list(ts.schedule_rules().values())[:2] == [again, second]


def test_the_name_of_a_rule_of_tunesmith_is_taken():
    with pytest.raises(
        ts.InputError, match="tunesmith has a schedule named 'matmul'; give yours another name"
    ):
        own("matmul")


def test_an_own_rule_travels_with_its_code():
    rule = own()
    assert not is_built_in(rule) and is_built_in(ts.schedule_rules()["matmul"])
    assert isinstance(portable_rule(rule), bytes)


def test_a_record_keeps_the_schedule_that_was_verified_when_the_rule_changes(tmp_path):
    own()
    with ts.Database(tmp_path / "own.db") as database:
        ts.tune(RELU, trials=1, database=database, timing=ts.Timing(min_repeat_ms=1))

        def other(sch):
            raise AssertionError("the edited rule is not what was verified")

        ts.add_schedule(ts.ScheduleRule("rows_of_relu", "edited", other, space))
        schedule, origin = best_schedule(RELU, database)
    assert origin.kind == "record"
    assert "T.parallel" in schedule.mod.script()


def test_what_an_own_rule_raises_names_its_line():
    def broken(sch):
        sch.get_sblock("nothing")

    ts.add_schedule(ts.ScheduleRule("broken", "", broken, space))
    with pytest.raises(
        ts.InputError, match=r"the schedule 'broken' failed in test_own_rules.py, line \d+: "
    ) as told:
        ts.apply_default(RELU.func, ts.host_target())
    assert "\n" not in str(told.value)
