"""Faults of every kind, one by one: each ends in its own status, the run goes on, nothing is lost or left."""

import contextlib
import json
import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import host_target
from tunesmith.machine.temporary import new_folder
from tunesmith.schedules.rule import ScheduleRule
from tunesmith.schedules.space import Knob, KnobSpace
from tunesmith.tuning import trial as trial_module
from tunesmith.tuning.records.compilation import trace_text
from tunesmith.tuning.reporting.events import TrialEnded, quiet
from tunesmith.tuning.running.runner import device_lock
from tunesmith.tuning.strategies import AHEAD
from tvm import s_tir
from tvm.script import tirx as T

S = (64, 64)
# What a busy machine holds up is not given up.
BRIEF = {
    "timing": ts.Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.0),
    "give_up_factor": math.inf,
    "progress": quiet,
    "strategy": "grid",
}
DRIVER = Path(__file__).parent / "ended_runs.py"
pytestmark = pytest.mark.usefixtures("real_workers")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Keep temporary files apart, and the device's lock: other tests need not wait."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.fixture
def database(tmp_path):
    return tmp_path / "t.db"


@pytest.fixture
def nothing_left(own_folder):
    """See to it that a test leaves no process and no file."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
    assert [path.name for path in own_folder.iterdir() if not path.name.endswith(".lock")] == []


def records_of(database):
    with ts.Database(database) as opened:
        return opened.records()


def integrity(database):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]


def at_trial(number, do):
    """Make a progress that does something once a trial of this number has ended."""
    return lambda event: do() if isinstance(event, TrialEnded) and event.number == number else None


def of_their_own(records, rule, workload):
    """Tell whether each record's schedule is the one of its knobs, and not another candidate's."""
    target = host_target()
    traces = [trace_text(rule.scheduled(workload.func, target, r.knobs)) for r in records]
    return all(trace == r.trace for trace, r in zip(traces, records, strict=True))


# What a candidate does to its compiler, what a kernel does to who runs it, and how that is to be recorded.


def out_of_memory():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (256 << 20), hard))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def out_of_space():
    """Let no file grow beyond 4 KiB: to the compiler that is a full disk, and the end of its process."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def hang():
    while True:
        pass


def fail():
    raise RuntimeError("the first line\n  the compiler says no")


IN_THE_COMPILER = {
    "hangs": (hang, "build_timeout", "not built within 3 s"),
    "aborts": (os.abort, "build_error", "the compiler crashed: SIGABRT"),
    "is killed": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        "build_error",
        "the compiler crashed: SIGKILL (perhaps out of memory)",
    ),
    "exits": (lambda: os._exit(0), "build_error", "the compiler crashed: exit status 0"),
    "memory": (out_of_memory, "schedule_error", "MemoryError"),
    "space": (out_of_space, "build_error", "IO failure on output stream: File too large"),
    "raises": (fail, "schedule_error", "the compiler says no"),
}


@T.prim_func(s_tir=True)
def is_killed(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    T.evaluate(T.call_extern("int32", "raise", 9))


@T.prim_func(s_tir=True)
def exits(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    T.evaluate(T.call_extern("int32", "_exit", 3))


@T.prim_func(s_tir=True)
def needs_an_exbibyte(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    # More than any address space: no system grants it, whatever it promises otherwise.
    large = T.alloc_buffer((T.int64(1 << 60),), "float32")
    large[T.Cast("int64", a[0, 0])] = a[0, 0]
    c[0, 0] = large[T.Cast("int64", b[0, 0])]


@T.prim_func(s_tir=True)
def cannot_be_compiled(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    for i in T.thread_binding(64, thread="threadIdx.x"):
        c[0, i] = a[0, i] + b[0, i]


@T.prim_func(s_tir=True)
def cannot_be_loaded(a: T.Buffer(S), b: T.Buffer(S), c: T.Buffer(S)):
    T.func_attr({"global_symbol": "main"})
    T.evaluate(T.call_extern("int32", "no_such_function"))


IN_THE_KERNEL = {
    "is killed": (is_killed, "crashed", "SIGKILL (perhaps out of memory)"),
    "exits": (exits, "crashed", "exit status 3"),
    "cannot be compiled": (cannot_be_compiled, "build_error", "InternalError: not implemented"),
    "cannot be loaded": (cannot_be_loaded, "crashed", "undefined symbol: no_such_function"),
    "memory": (needs_an_exbibyte, "crashed", "bad_alloc"),
}


@dataclass
class Scheduled:
    mod: Any
    trace: Any


def tile(sch, step):
    i, _, _ = sch.get_loops(sch.get_sblock("matmul"))
    sch.split(i, [None, 2 + step])


FAULTS = [*IN_THE_COMPILER.values(), *IN_THE_KERNEL.values()]


def steps(func, target):
    # After each fault a candidate that is right.
    knob = Knob("step", tuple(range(2 * len(FAULTS) + 1)), "even: a tile; odd: a fault")
    return KnobSpace((knob,), (), {"step": 0})


@dataclass(frozen=True)
class Faulty(ScheduleRule):
    """A rule with a right schedule for every even step, and a fault for every odd one."""

    def scheduled(self, func, target, knobs=None):
        step = (knobs or {"step": 0})["step"]
        schedule = s_tir.Schedule(func)
        tile(schedule, step)
        if step % 2 == 0:
            return schedule
        fault = FAULTS[step // 2][0]
        if isinstance(fault, tvm.tirx.PrimFunc):
            return Scheduled(tvm.IRModule({"main": fault}), schedule.trace)
        fault()
        return schedule


@pytest.mark.usefixtures("nothing_left")
def test_every_fault_ends_in_its_own_status_and_the_next_trials_are_right(small, database):
    rule = Faulty("faulty", "a rule of a test", tile, steps)
    result = ts.tune(small, space=rule, database=database, timeout=3.0, **BRIEF)
    records = {r.knobs["step"]: r for r in records_of(database)}
    assert result.stopped_by == "exhausted" and sorted(records) == list(range(2 * len(FAULTS) + 1))
    faults = [records[i] for i in range(1, len(records), 2)]
    assert [str(r.status) for r in faults] == [status for _, status, _ in FAULTS]
    for record, (_, _, message) in zip(faults, FAULTS, strict=True):
        assert message in record.message and "\n" not in record.message and not record.verified
    sound = [records[i] for i in range(0, len(records), 2)]
    assert all(r.usable for r in sound) and of_their_own(sound, rule, small)


def untouched(sch, rows, nothing):
    i, _, _ = sch.get_loops(sch.get_sblock("matmul"))
    sch.split(i, [None, rows])


def rows_and_nothing(func, target):
    knobs = (Knob("rows", (2, 4), "a tile"), Knob("nothing", (0, 1, 2), "no effect"))
    return KnobSpace(knobs, (), {"rows": 2, "nothing": 0})


def test_candidates_that_compile_to_the_same_binary_are_run_once(small, database):
    rule = ScheduleRule("untouched", "a rule of a test", untouched, rows_and_nothing)
    result = ts.tune(small, space=rule, database=database, **BRIEF)
    records = {(r.knobs["rows"], r.knobs["nothing"]): r for r in records_of(database)}
    assert len(records) == 6 and result.counts == {"ok": 6}
    for rows in (2, 4):
        first, *others = [records[rows, nothing] for nothing in (0, 1, 2)]
        measured = {r.id: r for r in (first, *others) if not r.same_as}
        assert len(measured) == 1 and len({r.binary for r in (first, *others)}) == 1
        assert all(r.run_secs == measured[r.same_as].run_secs for r in others if r.same_as)
    assert records[2, 0].binary != records[4, 0].binary


# What comes from outside.


def workers_of_this_process():
    """Return the first process of the group and its workers, the runner first."""
    (first,) = (p for p in psutil.Process().children() if "worker_process" in " ".join(p.cmdline()))
    return [first, *sorted(first.children(), key=lambda p: p.create_time())]


@pytest.mark.parametrize("which", ["first process", "runner", "builders"])
@pytest.mark.usefixtures("nothing_left")
def test_worker_killed_from_outside_costs_its_trial_only(small, tiles, database, which):
    at = {"first process": slice(0, 1), "runner": slice(1, 2), "builders": slice(2, None)}[which]
    killed = []

    def kill():
        killed.extend(process.pid for process in workers_of_this_process()[at])
        for process in killed:
            os.kill(process, signal.SIGKILL)

    result = ts.tune(small, space=tiles, database=database, **{**BRIEF, "progress": at_trial(3, kill)})
    records = records_of(database)
    assert killed and result.stopped_by == "exhausted"
    assert len(records) == 15 == len({r.key for r in records})
    failed = [r for r in records if not r.usable]
    # Of each worker at most the task that it was at.
    assert len(failed) <= len(psutil.Process().cpu_affinity()) + 1
    assert all("SIGKILL (perhaps out of memory)" in r.message for r in failed)
    assert {str(r.status) for r in failed} <= {"crashed", "build_error"}
    assert of_their_own([r for r in records if r.trace], tiles, small)


@pytest.mark.usefixtures("nothing_left")
def test_full_disk_ends_in_one_line_and_keeps_what_was_recorded(small, tiles, database):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = database.with_name(f"{database.name}-wal")

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, limits[1]))

    try:
        with pytest.raises(
            ts.InputError, match=r"^the database [^\n]*t\.db cannot be used: [^\n]*$"
        ) as error:
            ts.tune(small, space=tiles, database=database, **{**BRIEF, "progress": at_trial(3, fill)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "the free disk space" in str(error.value)
    assert len(records_of(database)) == 3 and integrity(database) == "ok"
    assert ts.tune(small, space=tiles, database=database, trials=5, **BRIEF).trials == 5


def test_full_disk_on_the_command_line(database, own_folder):
    # In units of 1 KiB: enough for some records, and for whatever is built.
    command = ["bash", "-c", 'ulimit -f 160 && exec "$@"', "bash", *command_line(database)]
    environment = {**os.environ, "TMPDIR": str(own_folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert lines[-1].startswith("error: the database ") and "Traceback" not in done.stderr
    told = [line for line in lines if " ok " in line]
    assert 0 < len(told) <= len(records_of(database)) and integrity(database) == "ok"
    assert not [each for each in own_folder.glob("tunesmith-*") if each.is_dir()]


@pytest.mark.usefixtures("nothing_left")
def test_full_temporary_folder_ends_in_one_line(database):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The database fits, the test cases do not: 256 KiB each.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(ts.InputError, match=r"^cannot write the test cases of relu [^\n]*set TMPDIR"):
            ts.tune(ts.workload("relu", m=256, n=256), database=database, **BRIEF)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_builder_says_when_the_disk_is_full(small, tiles, monkeypatch, database):
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr("tunesmith.tuning.running.builder.shutil.disk_usage", lambda folder: usage)
    rule = Faulty(
        "faulty", "a rule of a test", tile, lambda f, t: KnobSpace((Knob("step", (3,), ""),), (), {"step": 3})
    )
    ts.tune(small, space=rule, database=database, **BRIEF)
    (record,) = records_of(database)
    assert "SIGABRT" in record.message and record.message.endswith(" is full")


@pytest.mark.usefixtures("nothing_left")
def test_no_temporary_folder_is_one_line(small, tiles, database, monkeypatch, own_folder):
    monkeypatch.setattr(tempfile, "tempdir", str(own_folder / "missing"))
    with pytest.raises(ts.InputError, match=r"^cannot make a folder [^\n]*set TMPDIR"):
        ts.tune(small, space=tiles, database=database, **BRIEF)


def test_lock_that_cannot_be_used_is_one_line(own_folder):
    (own_folder / f"tunesmith-{os.getuid()}-cpu.lock").mkdir()
    with pytest.raises(ts.InputError, match=r"^cannot lock [^\n]*set TMPDIR"), device_lock():
        pass


class Locked:
    """Another process, in effect, that writes into a database for a while."""

    def __init__(self, path):
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def begin(self, seconds=None):
        self._connection.execute("BEGIN EXCLUSIVE")
        if seconds is not None:
            threading.Timer(seconds, self.end).start()

    def end(self):
        self._connection.execute("COMMIT")


@pytest.mark.usefixtures("nothing_left")
def test_locked_database_is_waited_for_and_named(small, tiles, database):
    with ts.Database(database, wait_s=0.1) as opened:
        other = Locked(database)
        with pytest.raises(ts.InputError, match=r"^[^\n]*is locked; check [^\n]*another process holds it$"):
            ts.tune(small, space=tiles, database=opened, **{**BRIEF, "progress": at_trial(2, other.begin)})
        other.end()
        assert len(opened.records()) == 2
    with ts.Database(database, wait_s=60) as opened:
        progress = at_trial(4, lambda: other.begin(0.3))
        result = ts.tune(small, space=tiles, database=opened, trials=6, **{**BRIEF, "progress": progress})
        assert (result.stopped_by, len(opened.records())) == ("trials", 6)


@pytest.mark.usefixtures("nothing_left")
def test_clock_that_is_set_does_not_matter(small, tiles, database, monkeypatch):
    year, real = 365 * 86400, time.time
    steps = iter([year, -year] * 10_000)
    monkeypatch.setattr(time, "time", lambda: real() + next(steps))

    class Clock(trial_module.datetime):
        @classmethod
        def now(cls, zone=None):
            return cls.fromtimestamp(time.time(), zone)

    monkeypatch.setattr(trial_module, "datetime", Clock)
    started = time.monotonic()
    result = ts.tune(small, space=tiles, database=database, trials=5, time_budget=600, **BRIEF)
    assert (result.stopped_by, result.trials) == ("trials", 5)
    assert all(0 <= s <= time.monotonic() - started for s in result.seconds.values())


def command_line(database, trials=500):
    """Return a command that tunes with the command line, for a while."""
    options = "--strategy random --space general --repeat 1 --min-repeat-ms 0.1".split()
    return [
        *(sys.executable, "-c", "from tunesmith.cli.main import main; main()", "tune", "matmul"),
        *("--shape", "m=64,n=64,k=64", *options, "--trials", str(trials), "--db", str(database)),
    ]


def test_reader_of_the_progress_that_goes_away_ends_the_tuning_and_nothing_else(database, own_folder):
    environment = {**os.environ, "TMPDIR": str(own_folder)}
    command = command_line(database)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        told = ""
        while " ok " not in told:
            told = process.stderr.readline()
        process.stderr.close()
        assert process.wait(120) == 1
    assert records_of(database) and integrity(database) == "ok"
    assert not [each for each in own_folder.glob("tunesmith-*") if each.is_dir()]


def test_closed_stderr_does_not_matter(database, own_folder):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command_line(database, 2), "--json"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(own_folder)},
    )  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout)["trials"] == 2


# Ends from outside, at random instants.


def endings(how, what, database, folder):
    """Start the program that ends runs; `ended` waits for what it says."""
    command = [sys.executable, str(DRIVER), how, what, str(database)]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def ended(process):
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def holds_together(database, told):
    """Tell whether what was told is there, once each, and the file is sound."""
    records = records_of(database)
    return (
        {r.id for r in records} >= set(told)
        and len({r.key for r in records}) == len(records) == sum(r.usable for r in records)
        and integrity(database) == "ok"
    )


def test_ends_at_random_instants_lose_nothing_and_leave_nothing(tmp_path, monkeypatch):
    folders = {signal.SIGKILL: tmp_path / "killed", signal.SIGINT: tmp_path / "interrupted"}
    running = {}
    for number, folder in folders.items():
        folder.mkdir()
        running[number] = endings(number.name, "20", folder / "t.db", folder)
    runs = {number: ended(process) for number, process in running.items()}
    for number, folder in folders.items():
        assert len(runs[number]) == 21
        assert {run["status"] for run in runs[number]} <= {0, 130 if number == signal.SIGINT else -number}
        assert {run["left"] for run in runs[number]} == {0}
        assert holds_together(folder / "t.db", [record for run in runs[number] for record in run["told"]])
    assert {run["folders"] for run in runs[signal.SIGINT]} == {0}
    # A run that was killed leaves its folder to whoever comes next.
    assert any(run["folders"] for run in runs[signal.SIGKILL])
    monkeypatch.setattr(tempfile, "tempdir", str(folders[signal.SIGKILL]))
    mine = new_folder()
    left = [str(each) for each in folders[signal.SIGKILL].glob("tunesmith-*") if each.is_dir()]
    assert left == [mine]


@pytest.mark.parametrize("seeds", ["1,1", "1,2"])
def test_two_at_once_repeat_nothing_and_agree(tmp_path, seeds):
    database = tmp_path / "t.db"
    runs = ended(endings("together", seeds, database, tmp_path))
    assert [run["status"] for run in runs] == [0, 0]
    assert holds_together(database, [record for run in runs for record in run["told"]])
    records = records_of(database)
    # What both were at when there were enough is recorded too.
    assert 24 <= len(records) <= 24 + 2 * AHEAD
    with ts.Database(database) as opened:
        best = opened.best(records[0].workload_hash, records[0].target)
    assert best.confirmed_secs and best.id in {r.id for r in records}
