import contextlib
import math
import os
import signal
import threading
import time

import pytest
from tunesmith.tuning.processes import worker as worker_module
from tunesmith.tuning.processes.worker import WorkerCrash, WorkerError, WorkerTimeout
from tunesmith.tuning.processes.worker_group import WorkerGroup


@pytest.fixture(scope="module")
def group():
    with WorkerGroup(2, {"FOR_WORKERS": "yes"}, preload=()) as group:
        yield group


@pytest.fixture
def worker(group):
    return group.workers[0]


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_task_is_done_elsewhere(worker):
    assert worker.call(os.path.basename, "a/b", 10) == "b"
    assert worker.call(os.getpgid, 0, 10) != os.getpgid(0)
    assert worker.call(os.getenv, "FOR_WORKERS", 10) == "yes"


def test_hang_is_ended_and_the_next_task_done(worker):
    with pytest.raises(WorkerTimeout, match=r"no answer within 0\.2 s"):
        worker.call(time.sleep, 60, 0.2)
    assert worker.call(abs, -1, 10) == 1


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_crash_is_named_and_the_next_task_done(worker, number):
    with pytest.raises(WorkerCrash, match=signal.Signals(number).name):
        worker.call(signal.raise_signal, number, 10)
    assert worker.call(abs, -1, 10) == 1


@pytest.mark.parametrize("code", [0, 3])
def test_exit_is_a_crash_too(worker, code):
    with pytest.raises(WorkerCrash, match=f"exit status {code}"):
        worker.call(os._exit, code, 10)


def test_exception_is_reported_and_the_process_stays(worker):
    before = worker.call(os.getpgid, 0, 10)
    with pytest.raises(WorkerError, match="ValueError: invalid literal"):
        worker.call(int, "x", 10)
    assert worker.call(os.getpgid, 0, 10) == before


def test_last_output_is_in_the_message(worker):
    with pytest.raises(WorkerCrash, match=r"SIGSEGV.*its last output: Fatal Python error"):
        worker.call(exec, "import faulthandler, os; faulthandler.enable(); os.kill(os.getpid(), 11)", 10)


def test_workers_do_not_disturb_each_other(group):
    first, second = group.workers
    second.send(time.sleep, 0.3)
    with pytest.raises(WorkerCrash):
        first.call(os._exit, 1, 10)
    assert second.receive(10) is None


def test_ctrl_c_does_not_reach_workers(worker):
    worker.send(time.sleep, 0.3)
    os.kill(worker._process, signal.SIGINT)
    assert worker.receive(10) is None


def end(process):
    """Kill a process from outside and wait until its parent has noticed."""
    os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_running(process) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_worker_killed_while_idle_costs_no_task(worker):
    end(worker.call(os.getpgid, 0, 10) and worker._process)
    assert [worker.call(abs, -i, 10) for i in range(5)] == [0, 1, 2, 3, 4]


def test_task_that_was_given_up_is_not_done_by_the_next_process(worker):
    for i in range(5):
        # As often as not the task is still in the channel, unread.
        worker.send(abs, -100)
        worker.restart()
        assert [worker.call(abs, -i, 10), worker.call(abs, -i - 1, 10)] == [i, i + 1]


def test_killed_in_the_middle_of_a_task(worker):
    worker.send(time.sleep, 60)
    end(worker._process)
    with pytest.raises(WorkerCrash, match=r"SIGKILL \(perhaps out of memory\)"):
        worker.receive(10)
    assert worker.call(abs, -1, 10) == 1


def test_large_task_and_answer_of_a_process_that_dies(worker):
    worker.wait_until_ready()
    end(worker._process)
    with contextlib.suppress(WorkerCrash):
        worker.call(len, b"x" * (1 << 22), 10)
    assert worker.call(len, b"x" * (1 << 22), 10) == 1 << 22
    assert worker.call(bytes, 1 << 22, 10) == bytes(1 << 22)


def test_task_that_a_dying_process_does_not_take(worker):
    worker.wait_until_ready()
    worker.hold()
    threading.Timer(0.1, end, [worker._process]).start()
    # More than the channel holds: without a reader it would take forever.
    with pytest.raises(WorkerCrash, match="SIGKILL"):
        worker.call(len, bytes(1 << 24), 10)
    assert worker.call(abs, -1, 10) == 1


def test_other_children_of_the_first_process_do_not_matter(tmp_path, monkeypatch):
    (tmp_path / "starts_something.py").write_text("import subprocess\nsubprocess.Popen(['true'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    with WorkerGroup(1, preload=("starts_something",)) as group:
        worker = group.workers[0]
        before = worker.call(os.getpgid, 0, 10)
        with pytest.raises(WorkerCrash):
            worker.call(os._exit, 1, 10)
        # It is still the same group.
        assert worker.call(os.getpgid, 0, 10) == before


def test_worker_that_closes_its_channel_is_ended(worker, monkeypatch):
    monkeypatch.setattr(worker_module, "_DEATH_S", 0.1)
    with pytest.raises(WorkerCrash, match="SIGKILL"):
        worker.call(exec, "import os, time; os.closerange(3, 99); time.sleep(60)", 10)
    assert worker.call(abs, -1, 10) == 1


def test_group_starts_again_when_its_first_process_is_killed():
    with WorkerGroup(3, preload=()) as group:
        first, second, third = group.workers
        third.call(abs, -1, 10)
        first.send(time.sleep, 60)
        second.send(time.sleep, 60)
        before = group._process.pid
        os.kill(before, signal.SIGKILL)
        for worker in (first, second):
            with pytest.raises(WorkerCrash, match="the process that starts the workers ended: SIGKILL"):
                worker.receive(10)
        # The third had nothing to do: it costs no task.
        assert [worker.call(abs, -i, 10) for i, worker in enumerate(group.workers)] == [0, 1, 2]
        assert group._process.pid != before


def test_worker_that_is_starting_has_no_process_to_stop(worker, monkeypatch):
    told = []
    monkeypatch.setattr(os, "kill", lambda process, number: told.append(process))
    with WorkerGroup(1, preload=()) as group:
        # Process 0 would be the group of this process itself.
        group.workers[0].hold()
        group.workers[0].let_go()
        group.workers[0].restart()
    assert told == []


def test_worker_that_has_grown_is_replaced(worker, monkeypatch):
    def grown(megabytes):
        worker.call(exec, f"import os; os.kept = b'x' * ({megabytes} << 20)", 10)
        return worker._process

    monkeypatch.setattr(worker, "_growth_bytes", 64 << 20)
    first = grown(1)
    assert grown(1) == first
    grown(128)
    second = grown(1)
    assert second != first
    # Where tasks build upon each other, a worker keeps what it has.
    monkeypatch.setattr(worker, "_growth_bytes", math.inf)
    grown(128)
    assert grown(1) == second


def test_close_ends_every_process():
    group = WorkerGroup(2, preload=())
    group.wait_until_ready()
    processes = [group._process.pid, *(w._process for w in group.workers)]
    assert all(map(is_running, processes))
    group.close()
    group.close()
    deadline = time.monotonic() + 5
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_running, processes))


def test_group_that_cannot_start_says_why():
    with (
        WorkerGroup(1, preload=("no_such_module",)) as group,
        pytest.raises(RuntimeError, match="no_such_module"),
    ):
        group.wait_until_ready()
