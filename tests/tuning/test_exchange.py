import json
import shutil

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import as_target
from tunesmith.tuning.records.exchange import export_records, import_records
from tunesmith.tuning.records.meta_files import RECORDS, WORKLOADS
from tvm.s_tir import meta_schedule as ms

BEST, SKETCH = "f57be17b9ed9", "6f42597b7a8b"
LINES = "records.jsonl"


@pytest.fixture
def database(frozen):
    with ts.Database(frozen) as database:
        yield database


@pytest.fixture
def into(tmp_path):
    with ts.Database(tmp_path / "into.db") as database:
        yield database


@pytest.fixture
def target(database):
    """The target of the frozen records: another machine's than the one the tests run on."""
    return as_target(database.records()[0].target)


@pytest.fixture
def meta(database, target, tmp_path):
    """A folder with MetaSchedule's two files."""
    export_records(database, tmp_path / "meta", "meta-schedule", target)
    return tmp_path / "meta"


def lines(path):
    return path.read_text().splitlines()


def problems(merged):
    return {problem.where: problem.reason for (source,) in [merged] for problem in source.problems}


def test_json_lines_bring_every_record_back(database, into, target, tmp_path):
    assert export_records(database, tmp_path / LINES) == 7
    (merged,) = import_records(into, [tmp_path / LINES], target)
    assert (merged.new, merged.known, merged.problems) == (7, 0, ())
    assert into.records() == database.records()
    (merged,) = import_records(into, [tmp_path / LINES], target)
    assert (merged.new, merged.known) == (0, 7)


def test_only_the_best_or_one_target_can_be_written(database, target, tmp_path):
    assert export_records(database, tmp_path / LINES, best=True) == 1
    assert json.loads(lines(tmp_path / LINES)[0])["id"] == BEST
    assert export_records(database, tmp_path / LINES, target={"kind": "c"}, overwrite=True) == 0
    assert export_records(database, tmp_path / LINES, target=target, overwrite=True) == 7


def test_what_is_there_is_not_replaced_unless_asked(database, meta, tmp_path):
    (tmp_path / LINES).write_text("mine")
    for path, format in ((tmp_path / LINES, "jsonl"), (meta, "meta-schedule")):
        with pytest.raises(ts.InputError, match=r"is there already; give another path, or --overwrite"):
            export_records(database, path, format)
    assert (tmp_path / LINES).read_text() == "mine"
    with pytest.raises(ts.InputError, match="unknown format 'json'; did you mean jsonl"):
        export_records(database, tmp_path / "x", "json")


def test_bad_lines_are_told_and_left_out(database, into, target, tmp_path):
    path = tmp_path / LINES
    export_records(database, path)
    good, *_ = lines(path)
    foreign = json.dumps({**json.loads(good), "target": '{"kind":"c"}'})
    lying = json.dumps({**json.loads(good), "workload_hash": "0" * 16})
    step = '[[["GetSBlock", [], ["none", "main"], ["b0"]]], []]'
    unfit = json.dumps({**json.loads(good), "trace": step})
    cut = [good[: len(good) // 2], "", "\x00\xff", foreign, lying, unfit, good]
    path.write_bytes("\n".join(cut).encode("latin-1"))
    merged = import_records(into, [path], target)
    assert [r.id for r in into.records()] == [BEST]
    found = problems(merged)
    assert list(found) == [f"{LINES}:{n}" for n in range(1, 7)]
    for reason, expected in zip(
        found.values(),
        (
            "the line is cut off or no JSON",
            "the line is blank",
            "the line is cut off or no JSON",
            'it is for another target: {"kind":"c"}',
            "its program has the hash c17b2439103d14df, not 0000000000000000",
            "the trace does not fit this function",
        ),
        strict=True,
    ):
        assert reason.startswith(expected)


def test_records_of_all_targets_can_be_taken(database, into, tmp_path):
    export_records(database, tmp_path / LINES)
    (merged,) = import_records(into, [tmp_path / LINES], {"kind": "c"})
    assert merged.new == 0 and len(merged.problems) == 7
    (merged,) = import_records(into, [tmp_path / LINES], None)
    assert merged.new == 7 and merged.problems == ()


def test_a_knob_record_of_an_unknown_rule_stays_data(database, into, tmp_path):
    export_records(database, tmp_path / LINES)
    import_records(into, [tmp_path / LINES], None)
    (record,) = into.records(space="broken")
    assert record.knobs == {"rows": 1} and record.trace is None


def test_metaschedule_itself_reads_and_applies_what_is_written(database, target, meta):
    found = ms.database.JSONDatabase(work_dir=str(meta))
    assert len(found) == 6
    mod = tvm.IRModule({"main": ts.workload("matmul", m=16, n=16, k=16).func})
    assert ms.tir_integration.compile_tir(found, mod, target) is not None
    best = found.query_tuning_record(mod, target, "main")
    assert float(best.run_secs[0]) == pytest.approx(database.get(BEST).confirmed_secs[0])
    assert '"znver5"' in str(best.target)


def test_metaschedules_records_come_in_unverified(database, into, target, meta):
    (merged,) = import_records(into, [meta], target)
    assert (merged.new, merged.problems) == (6, ())
    found = into.records()
    assert {(str(r.status), r.verified, r.space, r.operator) for r in found} == {
        ("ok", False, "imported", "main")
    }
    assert {r.workload_hash for r in found} == {database.get(BEST).workload_hash}
    assert {r.run_secs for r in found} >= {database.get(SKETCH).run_secs}
    assert into.best(found[0].workload_hash, found[0].target) is None
    (merged,) = import_records(into, [meta / RECORDS], target)
    assert (merged.new, merged.known) == (0, 6)


def test_an_imported_record_has_the_name_that_its_workload_has_here(database, target, meta):
    import_records(database, [meta], target)
    imported = database.records(space="imported")
    assert {(r.operator, tuple(r.shape.items())) for r in imported} == {
        ("matmul", (("m", 16), ("n", 16), ("k", 16)))
    }


def test_bad_lines_of_metaschedules_files_are_told_and_left_out(into, target, meta):
    (workload,) = lines(meta / WORKLOADS)
    good, *_ = lines(meta / RECORDS)
    index, (trace, seconds, config, arguments) = json.loads(good)
    key, text = json.loads(workload)

    def record(**changes):
        fields = {"trace": trace, "seconds": seconds, "config": config, "arguments": arguments, **changes}
        return json.dumps([fields.pop("index", index), list(fields.values())])

    (meta / WORKLOADS).write_text(
        "\n".join(["", workload, workload[:99], json.dumps([key, text[:-8]]), "[]", json.dumps([key, "?"])])
    )
    unfit = [[["GetSBlock", [], ["none", "main"], ["b0"]]], []]
    bad = {
        good[: len(good) // 2]: "the line is cut off or no JSON",
        "": "the line is blank",
        "7": "it is no record",
        "[0, 7]": "it is no record",
        record(index=9): f"there is no workload 9: {WORKLOADS} has 5",
        record(index=-1): "there is no workload -1",
        record(index=1): "its workload 1 could not be read",
        record(trace=unfit): "the trace does not fit this function",
        record(trace=None): "the trace does not fit this function",
        record(seconds=[1e10]): "it failed where it was made",
        record(seconds=None): "its times are no list of seconds: 'None'",
        record(config={**config, "num-cores": 99}): "it is for another target",
        record(config={"kind": "none"}): "TVM refuses the target",
        record(config=7): "its target is no JSON object: '7'",
    }
    (meta / RECORDS).write_text("\n".join([*bad, good]))
    found = problems(import_records(into, [meta], target))
    assert len(into.records()) == 1
    assert [reason for where, reason in found.items() if where.startswith(WORKLOADS)] == [
        "the line is blank",
        found[f"{WORKLOADS}:3"],
        found[f"{WORKLOADS}:4"],
        "it is no workload: expected [hash, base64 text]",
        found[f"{WORKLOADS}:6"],
    ]
    assert found[f"{WORKLOADS}:3"].startswith("the line is cut off or no JSON")
    assert "base64 text" in found[f"{WORKLOADS}:4"] and "base64 text" in found[f"{WORKLOADS}:6"]
    for number, expected in enumerate(bad.values(), 1):
        assert found[f"{RECORDS}:{number}"].startswith(expected)


def test_a_file_that_cannot_be_read_is_found_before_anything_is_added(database, into, meta, tmp_path):
    shutil.rmtree(meta)
    export_records(database, tmp_path / LINES)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(ts.InputError, match=r"cannot read .*: No such file or directory"):
            import_records(into, [tmp_path / LINES, missing], None)
    assert into.records() == []


def test_importing_runs_nothing(into, target, meta, tmp_path):
    # A pickle, an expression and a path, wherever text is expected.
    evil = f"cos\nsystem\n(S'touch {tmp_path}/owned'\ntR."
    index, (trace, seconds, config, arguments) = json.loads(lines(meta / RECORDS)[0])
    steps = [["GetSBlock", [], [evil, "main"], ["b0"]]]
    content = [
        [[steps, []], seconds, config, arguments],
        [evil, seconds, config, evil],
        [trace, evil, config, []],
    ]
    (meta / RECORDS).write_text("\n".join(json.dumps([index, each]) for each in content))
    (merged,) = import_records(into, [meta], target)
    assert len(merged.problems) == 3 and not (tmp_path / "owned").exists()
