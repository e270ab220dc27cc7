import json
from dataclasses import fields

import pytest
import tunesmith as ts
from tunesmith.tuning.records.json_lines import _KINDS, record_of_line, write_lines
from tunesmith.tuning.records.record import Record


@pytest.fixture
def records(frozen):
    with ts.Database(frozen) as database:
        return database.records()


def test_records_come_back_as_they_were(records, tmp_path):
    write_lines(records, tmp_path / "r.jsonl")
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [record_of_line(line) for line in lines] == records


def test_every_field_has_a_check():
    assert {str(f.type) for f in fields(Record)} == set(_KINDS)


@pytest.fixture
def line(records, tmp_path):
    """A line with some fields changed; DROP removes one."""

    def make(**changes):
        write_lines(records[:1], tmp_path / "r.jsonl")
        found = {**json.loads((tmp_path / "r.jsonl").read_text()), **changes}
        return json.dumps({name: value for name, value in found.items() if value != "DROP"})

    return make


def test_fields_that_came_later_may_be_missing(line):
    assert record_of_line(line(key="DROP", calls="DROP")).calls == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tunesmith_record": 99}, "it is of version 99, newer than"),
        ({"tunesmith_record": "DROP"}, "the line is no record: it has no tunesmith_record"),
        ({"trace": "DROP"}, "the record lacks: trace"),
        ({"more": 1}, "the record has unknown fields: more"),
        ({"id": 7}, "the field id is no str: '7'"),
        ({"id": None}, "the field id is no str"),
        ({"message": "\ud800"}, "the field message is no str"),
        ({"seed": True}, "the field seed is no int"),
        ({"seed": 1 << 64}, "the field seed is no int"),
        ({"verified": 1}, "the field verified is no bool"),
        ({"status": "okk"}, "the field status is no Status: 'okk'"),
        ({"shape": ["m"]}, "the field shape is no Mapping"),
        ({"shape": {"m": 1.5}}, "the field shape is no Mapping"),
        ({"knobs": {"m": "x"}}, "the field knobs is no Mapping"),
        ({"run_secs": [0]}, r"the field run_secs is no tuple\[float, \.\.\.\]: '\[0\]'"),
        ({"run_secs": 1.0}, "the field run_secs is no tuple"),
        ({"confirmed_secs": ["1"]}, "the field confirmed_secs is no tuple"),
        ({"max_error": "0"}, "the field max_error is no float"),
        ({"max_error": float("nan")}, "NaN is no number"),
        ({"build_s": float("inf")}, "Infinity is no number"),
    ],
)
def test_a_wrong_field_is_named(line, changes, reason):
    with pytest.raises(ts.InputError, match=reason):
        record_of_line(line(**changes))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the line is blank"),
        ("  ", "the line is blank"),
        ("[]", "the line is no record"),
        ("[" * 100_000, "the line is cut off or no JSON"),
    ],
)
def test_what_is_no_record_is_told(text, reason):
    with pytest.raises(ts.InputError, match=reason):
        record_of_line(text)


def test_a_line_that_is_cut_off_anywhere_is_told(line):
    whole = line()
    for end in range(1, len(whole), len(whole) // 50):
        with pytest.raises(ts.InputError, match="cut off or no JSON"):
            record_of_line(whole[:end])
