import dataclasses
import json

import numpy as np
import pytest
from tunesmith.machine.errors import InputError
from tunesmith.tuning.learning import cost_model
from tunesmith.tuning.learning.model_report import report
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.strategies.strategy import Experience

POINTS = [{"rows": r, "columns": c, "fixed": 1} for r in (1, 2, 4, 8, 16, 32) for c in (1, 2, 4, 8, 16, 32)]
SIZES = (64, 128, 512)


def share(point, m):
    """Have the best tile grow with the workload: rows * columns = m."""
    return 1 / (1 + abs(np.log2(point["rows"] * point["columns"] / m)))


def trials(sizes):
    return [Experience({"m": m}, p, None, str(m), share(p, m)) for m in sizes for p in POINTS]


def records(sizes, points=POINTS, **fields):
    return [
        dataclasses.replace(
            Record(
                id=f"{m} {i}", created="", operator="op", shape={"m": m}, dtype="float32",
                workload_hash=str(m), workload_ir="", target="t", machine_fingerprint="", space="s",
                strategy="", seed=0, knobs=p, trace=None, status=Status.OK, verified=True, max_error=None,
                run_secs=(m / share(p, m),), build_s=None, message="", tvm_version="",
                tunesmith_version="",
            ),
            **fields,
        )
        for m in sizes
        for i, p in enumerate(points)
    ]  # fmt: skip


@pytest.mark.parametrize("loss", cost_model.LOSSES)
def test_a_model_knows_its_own_workload_and_a_new_one(loss):
    model = cost_model.fit(trials(SIZES), loss=loss)
    for m in (128, 256):
        predicted = model.predict(POINTS, {"m": m}).mean(axis=0)
        assert share(POINTS[int(predicted.argmax())], m) > 0.49


def test_seeds_reproduce_and_differ():
    first, again, other = (
        cost_model.fit(trials(SIZES), seed=s).predict(POINTS, {"m": 64}) for s in (1, 1, 2)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("loss", cost_model.LOSSES)
def test_a_saved_model_predicts_the_same(tmp_path, loss):
    model = cost_model.fit(trials(SIZES), operator="op", target="t", space="s", loss=loss)
    model.save(tmp_path / "model.json")
    loaded = cost_model.load(tmp_path / "model.json")
    assert loaded.origin == model.origin and loaded.features == model.features
    assert np.array_equal(loaded.predict(POINTS, {"m": 96}), model.predict(POINTS, {"m": 96}))
    assert (
        json.loads((tmp_path / "model.json").read_text())["tunesmith_version"]
        == model.origin.tunesmith_version
    )
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON text"),
        ("[1]", "no cost model of this tunesmith"),
        ('{"format": "tunesmith cost model 99"}', "no cost model of this tunesmith"),
        ('{"format": "tunesmith cost model 1"}', "is damaged"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path, text, message):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        cost_model.load(tmp_path / "model.json")
    assert "\n" not in str(error.value)


def damage(**changed):
    return lambda content: {**content, **changed}


@pytest.mark.parametrize(
    "change",
    [
        damage(members=[]),
        damage(members=[{}]),
        damage(members=7),
        damage(features={"knobs": ["rows"], "dims": [], "workloads": 1}),
        lambda content: {k: v for k, v in content.items() if k != "operator"},
    ],
)
def test_a_damaged_model_is_refused_in_a_line(tmp_path, change):
    path = tmp_path / "model.json"
    cost_model.fit(trials(SIZES)).save(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match="is damaged") as error:
        cost_model.load(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot read the cost model"):
        cost_model.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot write"):
        cost_model.fit(trials(SIZES)).save(tmp_path / "none" / "model.json")
    with pytest.raises(InputError, match=r"ends with \.json: .*model\.txt"):
        cost_model.fit(trials(SIZES)).save(tmp_path / "model.txt")


def test_what_a_model_is_for_is_checked():
    model = cost_model.fit(trials(SIZES), operator="op", target="t", space="s")
    model.require_fit("op", "t", "s")
    with pytest.raises(InputError, match="trained for the space 's', not for 'other'"):
        model.require_fit("op", "t", "other")


def test_nothing_to_learn_from_and_unknown_losses_are_refused():
    with pytest.raises(InputError, match="at least one trial"):
        cost_model.fit([])
    with pytest.raises(InputError, match="unknown loss 'ranc'; did you mean rank"):
        cost_model.fit(trials(SIZES), loss="ranc")


@pytest.mark.parametrize("loss", cost_model.LOSSES)
def test_a_report_tells_a_model_from_chance(loss):
    found = report(records(SIZES), loss)
    assert (found.operator, found.trials, found.workloads) == ("op", 108, 3)
    assert found.rank_correlation > 0.8 > 0.3 > abs(found.random_correlation)
    assert found.transfer_correlation > 0.5
    assert list(found.recall) == [1, 8] and found.recall[8] > 0.5
    assert next(iter(found.importance)) in ("rows * columns", "m / (rows * columns)")
    assert sum(found.importance.values()) == pytest.approx(1)
    shares = {(p.shape["m"], p.knobs["rows"], p.knobs["columns"]): p.measured for p in found.predictions}
    assert len(shares) == 108 and shares[64, 8, 8] == 1
    assert found.predictions[0].predicted > found.predictions[-1].predicted
    assert found == report(records(SIZES), loss)


def test_a_report_of_noise_finds_none_of_it_out():
    rng = np.random.default_rng(0)
    noise = [dataclasses.replace(r, run_secs=(1 + rng.random(),)) for r in records(SIZES)]
    assert abs(report(noise).rank_correlation) < 0.3


def test_a_report_of_one_workload_has_nothing_to_say_of_others():
    assert report(records([64])).transfer_correlation is None


def test_records_of_machines_are_not_compared_with_each_other():
    slow = [
        dataclasses.replace(r, run_secs=(r.run_secs[0] * 9,))
        for r in records([64], machine_fingerprint="slow")
    ]
    assert report([*records([64]), *slow]).rank_correlation > 0.8


def test_records_that_do_not_belong_together_or_are_too_few_are_refused():
    with pytest.raises(InputError, match="these records are of 2; choose"):
        report([*records([64]), *records([64], space="other")])
    with pytest.raises(InputError, match=r"at least 10 trials in .*: there are 5"):
        report(records([64], POINTS[:5]))
    with pytest.raises(InputError, match="there are 0; tune more"):
        report(records([64], status=Status.CRASHED))
