import io
import re
from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.reporting.events import GainSoFar, Learned
from tunesmith.tuning.reporting.pace import Pace
from tunesmith.tuning.reporting.progress import (
    PROGRESS,
    ProgressBar,
    ProgressLines,
    Started,
    TrialEnded,
    TuneResult,
    progress_named,
    quiet,
)
from tunesmith.tuning.reporting.wording import HINTS, best_line, clock, duration

MATMUL = ts.workload("matmul", m=8, n=16, k=4)
RELU = ts.workload("relu", m=64, n=256)
SECONDS = {"search": 0.1, "build": 2.0, "run": 3.0, "verify": 0.4, "confirm": 0.5, "other": 0.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(status=Status.OK, message="", seconds=0.002, workload=MATMUL, name="r1"):
    right = status is Status.OK
    return Record(
        id=name,
        created="2026-01-01T00:00:00.000+00:00",
        operator=workload.name,
        shape=dict(workload.shape),
        dtype=workload.dtype,
        workload_hash=workload.hash,
        workload_ir="",
        target="",
        machine_fingerprint="",
        space="matmul",
        strategy="grid",
        seed=0,
        knobs={"mr": 4},
        trace=None,
        status=status,
        verified=right,
        max_error=None,
        run_secs=(seconds,) if right else (),
        build_s=0.1,
        message=message,
        tvm_version="",
        tunesmith_version="",
    )


def started(workload=MATMUL, number=1, workloads=1, **more):
    return Started(workload, "matmul", "grid", 20, 4, 0, workload_number=number, workloads=workloads, **more)


def ended(number, **fields):
    one = record(**fields)
    return TrialEnded(number, 4, one, 0.002, 1.5 if one.usable else None, None, 60.0 * number, 61.0)


def result(workload=MATMUL, best=None, default=None, counts=None, stopped_by="trials"):
    return TuneResult(workload, best, default, counts or {}, 4, stopped_by, SECONDS)


def shown(show, events):
    stream = Terminal()
    display = show(stream)
    for event in events:
        display(event)
    return stream.getvalue()


FAULTS = [
    record(Status.WRONG_RESULT, "element 3 is 1.5 instead of 2.5e-3"),
    record(Status.WRONG_RESULT, "element 7 is 0.1 instead of 1e+9"),
    record(Status.WRONG_RESULT, "changed its input B"),
    record(Status.BUILD_TIMEOUT, "not built within 10 s"),
]
STORY = [
    started(),
    *(TrialEnded(n, 4, one, None, None, None, 1.0, 2.0) for n, one in enumerate(FAULTS, 1)),
    result(counts={Status.WRONG_RESULT: 3, Status.BUILD_TIMEOUT: 1}),
]


def test_lines_of_trials_are_aligned_under_their_heading():
    lines = shown(ProgressLines, [started(), ended(1), ended(2, status=Status.CRASHED)]).splitlines()
    assert lines[0].startswith("tuning matmul m=8,n=16,k=4,transpose=NN float32: space matmul, 20 points")
    heading, first, second = lines[1:]
    assert heading.split() == ["trial", "status", "time", "GFLOP/s", "roofline", "best", "elapsed", "ETA"]
    assert len(heading) == len(first) == len(second)
    assert "1/4" in first and "1:00" in first and first.endswith("1:01") and "crashed" in second


def test_what_is_known_from_before_is_said():
    begun = replace(started(), resumed=2)
    lines = shown(ProgressLines, [begun, Learned(begun.workload, 12)]).splitlines()
    assert lines[1:] == [
        "resumed: 2 of 4 trials were already in the database",
        "learned from 12 records of other shapes",
    ]


@pytest.mark.parametrize("show", [ProgressLines, ProgressBar])
def test_failures_are_counted_with_the_commonest_message_and_what_helps(show):
    text = shown(show, STORY)
    (wrong,) = [line for line in text.splitlines() if line.startswith("3 wrong_result")]
    assert "2 of them: element 3 is 1.5 instead of 2.5e-3" in wrong
    assert wrong.endswith(HINTS[Status.WRONG_RESULT])
    assert "1 build_timeout (not built within 10 s): raise --timeout" in text
    assert text.index("3 wrong_result (") < text.index("1 build_timeout (")


def test_there_is_a_hint_for_every_way_to_fail():
    assert set(HINTS) == set(Status) - {Status.OK}


def test_a_second_tuning_of_a_workload_starts_with_no_failures():
    text = shown(ProgressLines, [*STORY, started(), ended(1), result(counts={Status.OK: 1})])
    assert text.count("3 wrong_result (") == 1


@pytest.mark.parametrize(
    "reason",
    ["trials", "exhausted", "early_stopping", "time_budget", "roofline", "dead_end", "interrupted"],
)
def test_every_end_has_its_words_and_where_the_time_went(reason):
    last = shown(ProgressLines, [started(), result(stopped_by=reason)]).splitlines()[-1]
    assert re.match("ended by [a-zA-Z -:]+; no new trials; ", last)
    assert "search 0.1 s, build 2.0 s, run 3.0 s, verify 0.4 s, confirm 0.5 s, other 0.0 s" in last


def test_the_best_is_told_with_its_margin():
    default, best = record(seconds=0.003, name="d"), record(seconds=0.002, name="b")
    assert best_line(result(best=best, default=default)) == (
        "best 2 ms: matmul mr=4 (record b), 1.50x as fast as the default (3 ms), 1 ms less a call"
    )
    assert best_line(result(best=default, default=default)).endswith("nothing faster was found")
    assert best_line(result()).startswith("no candidate ran and was right")


@pytest.mark.parametrize("show", [ProgressLines, ProgressBar])
def test_trials_of_several_workloads_may_come_in_turns(show):
    events = [
        started(number=1, workloads=2),
        started(RELU, number=2, workloads=2),
        ended(1),
        ended(2, workload=RELU),
        result(counts={Status.OK: 1}),
        result(RELU, counts={Status.OK: 1}),
    ]
    text = shown(show, events)
    assert "1/2  tuning matmul" in text and "2/2  tuning relu" in text and "4 trials in all" in text
    assert [line[:14] for line in text.splitlines()[-4:] if "ended" in line] == [
        "1/2  ended by ",
        "2/2  ended by ",
    ]
    if show is ProgressLines:
        assert len([line for line in text.splitlines() if "GFLOP/s" in line]) == 1
    else:
        assert "2/4" in text and "2/2  relu" in text


def test_the_bar_shows_the_best_and_the_time_left_and_goes_away():
    text = shown(
        ProgressBar, [started(), ended(1), ended(2, status=Status.CRASHED, message="SIGSEGV"), result()]
    )
    assert "50%" in text and "2/4, best 2 ms, 1 failed, 2:00, ETA 1:01" in text
    assert "crashed: SIGSEGV\n" in text
    # What a carriage return does not take back stays.
    assert not [line for line in text.split("\n") if "%|" in line.split("\r")[-1]]
    assert text.splitlines()[-1].startswith("ended by ")


def test_the_first_failure_of_each_kind_is_shown_at_once():
    text = shown(ProgressBar, STORY[:4])
    assert text.count("wrong_result: ") == 1


def test_progress_is_chosen_by_name(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    kinds = {name: progress_named(name, io.StringIO()) for name in PROGRESS}
    assert isinstance(kinds["auto"], ProgressLines) and isinstance(kinds["bar"], ProgressBar)
    assert isinstance(kinds["lines"], ProgressLines) and kinds["quiet"] is quiet
    assert isinstance(progress_named("auto", Terminal()), ProgressBar)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress_named("auto", Terminal()), ProgressLines)
    with pytest.raises(ts.InputError, match="unknown way to show progress 'linse'; did you mean lines"):
        progress_named("linse")


def test_the_time_left_follows_the_latest_trials_and_the_budget():
    pace = Pace(50.0, float("inf"), 30, lambda: 20)
    assert pace.eta_s == pace.elapsed_s == 0
    pace.trial_ended(100)
    assert pace.eta_s == 500
    pace.trial_ended(103)
    # The first one waited for the workers.
    assert pace.eta_s == 30
    for second in (200, *range(201, 217)):
        pace.trial_ended(second)
    # The slow trial lies too far back.
    assert (pace.eta_s, pace.elapsed_s) == (10, 166)
    limited = Pace(0.0, 7.0, 30, lambda: 20)
    limited.trial_ended(5.0)
    assert limited.eta_s == 2
    limited.trial_ended(9.0)
    assert limited.eta_s == 0
    finished = Pace(0.0, float("inf"), 30, lambda: 40)
    finished.trial_ended(5.0)
    assert finished.eta_s == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (2, "2 s"), (0.0123456, "12.35 ms"), (4.2e-5, "42 us")]
)
def test_durations_have_the_unit_that_suits_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5.9, "0:05"), (750, "12:30"), (3723, "1:02:03")])
def test_longer_times_are_written_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


def test_what_all_workloads_come_to_is_told():
    lines, bar = io.StringIO(), Terminal()
    show, live = ProgressLines(lines), ProgressBar(bar)
    for each in (show, live):
        for event in (started(workloads=2), ended(1), GainSoFar(0.012, 0.010), ended(2)):
            each(event)
    assert "all calls 12 ms -> 10 ms (1.20x, estimated)" in lines.getvalue().splitlines()
    assert "all calls 12 ms -> 10 ms (1.20x, estimated)" in bar.getvalue()
    # It takes no heading away.
    assert lines.getvalue().count("GFLOP/s") == 1
