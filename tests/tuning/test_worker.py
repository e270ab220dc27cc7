import os
import signal
import time

import pytest
from tunesmith.tuning.worker import WorkerCrash, WorkerError, WorkerGroup, WorkerTimeout


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
