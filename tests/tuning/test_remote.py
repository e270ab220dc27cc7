"""Trials on TVM's RPC: a real tracker and real servers, and everything that can happen to them."""

import re
import shutil
import signal
import socket
import threading
import time
from dataclasses import replace
from multiprocessing.connection import wait

import pytest
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.measuring.cases import prepare_cases
from tunesmith.tuning.measuring.library import export_kernel
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.measuring.tasks import CompareJob, RunJob
from tunesmith.tuning.processes.worker_group import WorkerGroup
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.remote import tracker as remote
from tunesmith.tuning.remote.runner import RemoteRunner
from tunesmith.tuning.remote.tasks import Machine
from tunesmith.tuning.remote.tracker import DEFAULT_PORT, Remote, known_servers, parse_address

from .conftest import FAULTS

TIMING = Timing(min_repeat_ms=0.1, repeat=2, budget_s=0.0)
PATIENT_S, SHORT_S = 30.0, 0.5


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:9000", ("host", 9000)),
        ("host", ("host", DEFAULT_PORT)),
        (" 10.0.0.2:1 ", ("10.0.0.2", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::1]", ("::1", DEFAULT_PORT)),
    ],
)
def test_an_address(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "given as host:port.*found ''"),
        (":9190", "given as host:port.*found ':9190'"),
        ("http://host:9190", "given as host:port|in brackets"),
        ("::1:9190", r"in brackets, as \[::1\]:9190: found '::1:9190'"),
        ("host:", "a port is a number from 1 to 65535: found ''"),
        ("host:http", "found 'http'"),
        ("host:0", "found '0'"),
        ("host:65536", "found '65536'"),
        ("host:-1", "found '-1'"),
    ],
)
def test_what_is_no_address(text, message):
    with pytest.raises(InputError, match=message):
        Remote(text, "key")


@pytest.mark.parametrize("key", ["", "two words", "new\nline"])
def test_what_is_no_key(key):
    with pytest.raises(InputError, match="a word without spaces: found"):
        Remote("host:9190", key)


def test_no_time_to_wait():
    with pytest.raises(InputError, match="wait_s must be more than 0 seconds: wait_s=0"):
        Remote("host:9190", "key", wait_s=0)


def test_nothing_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(InputError, match=rf"nothing listens at 127.0.0.1:{port} \(Connection refused\)"):
            Remote(f"127.0.0.1:{port}", "key").servers()


def test_an_unknown_host():
    with pytest.raises(InputError, match=r"unknown host 'no-such-host.invalid'"):
        Remote("no-such-host.invalid", "key").servers()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_what_listens_is_no_tracker(monkeypatch, answer):
    monkeypatch.setattr(remote, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                if answer is None:
                    ended.wait(60)
                else:
                    connection.sendall(answer)

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(InputError, match="is no RPC tracker, or hangs"):
                Remote(f"127.0.0.1:{listening.getsockname()[1]}", "key").servers()
        finally:
            ended.set()
            thread.join()


def test_a_tracker_that_stops_answering(monkeypatch, rpc):
    monkeypatch.setattr(remote, "_ANSWER_S", 0.2)
    rpc.signal(rpc.tracker, signal.SIGSTOP)
    try:
        with pytest.raises(InputError, match=r"or hangs|is it hanging"):
            known_servers(rpc.tracker)
    finally:
        rpc.signal(rpc.tracker, signal.SIGCONT)


def test_servers_of_a_key(rpc):
    found = Remote(rpc.tracker, "pair").servers()
    assert found.total == 2 and len(set(found.addresses)) == 2
    assert Remote(rpc.tracker, "single").servers().total == 1


def test_a_key_that_no_server_has(rpc):
    with pytest.raises(InputError, match="unknown RPC key 'pear'; did you mean pair"):
        Remote(rpc.tracker, "pear").servers()


@pytest.fixture(scope="module")
def group():
    with WorkerGroup(1) as group:
        yield group


@pytest.fixture
def runner(rpc, group):
    """Return a runner with a timeout for servers of a key."""

    def make(key="single", timeout_s=PATIENT_S, wait_s=PATIENT_S):
        return RemoteRunner(timeout_s, group.workers[0], Remote(rpc.tracker, key, wait_s))

    return make


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def job(small, folder):
    """Return the job of a kernel: the right one, or one of FAULTS."""
    cases = prepare_cases(small, str(folder / "cases"), seed=1)

    def make(name="right", **limits):
        library = folder / f"{name}.so"
        if not library.exists():
            export_kernel(FAULTS.get(name, small.func), host_target(), str(library))
        return RunJob(str(library), cases, TIMING, **limits)

    return make


def outcome(runner, job):
    runner.start_check(job)
    return last(runner)


def last(runner):
    while (ran := runner.result()) is None:
        wait([runner.connection], max(0.0, runner.deadline - time.monotonic()))
    return ran


def test_a_right_kernel_is_timed(runner, job):
    ran = outcome(runner(), job())
    assert (ran.status, ran.verified, ran.message) == (Status.OK, True, "")
    assert len(ran.run_secs) == 2 and all(s > 0 for s in ran.run_secs) and ran.calls >= 1
    assert ran.max_error is not None


def test_one_that_is_far_slower_is_timed_once(runner, job):
    # One that takes long enough is not even run on its second test case: on a busy machine any may, once.
    runs = (outcome(runner(), job(give_up_s=1e-9)) for _ in range(3))
    assert any(len(ran.run_secs) == 1 and "timed once" in ran.message for ran in runs)


def test_cold_caches(runner, job):
    cold = RunJob(job().library, job().cases, Timing(number=3, repeat=2, budget_s=0.0, cold_cache=True))
    ran = outcome(runner(), cold)
    assert ran.status is Status.OK and ran.calls >= 3


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("writes_half", Status.WRONG_RESULT, "2048 of 4096 elements are wrong"),
        ("changes_its_input", Status.WRONG_RESULT, "changed its input"),
        ("raises", Status.RUN_ERROR, "^RPCError: the kernel says no$"),
        ("aborts", Status.CRASHED, "took its process on 127.0.0.1:.* down"),
        ("reads_far_away", Status.CRASHED, "took its process on 127.0.0.1:.* down"),
    ],
)
def test_a_faulty_kernel(runner, job, fault, status, message):
    ran = outcome(runner(), job(fault))
    assert (ran.status, ran.verified, ran.run_secs) == (status, False, ())
    assert re.search(message, ran.message)


def test_a_kernel_that_hangs(runner, job):
    ran = outcome(runner(timeout_s=SHORT_S), job("hangs"))
    assert (ran.status, ran.message) == (Status.RUN_TIMEOUT, f"not finished within {2 * SHORT_S:g} s")


def test_a_server_survives_all_of_them(rpc, runner, job):
    for fault in ("aborts", "reads_far_away"):
        outcome(runner(), job(fault))
    assert outcome(runner(), job()).status is Status.OK
    assert Remote(rpc.tracker, "single").servers().total == 1


def test_finalists_are_compared(runner, job):
    libraries = (job().library, job().library)
    seconds = runner().compare(CompareJob(libraries, job().cases, TIMING, rounds=3))
    assert [len(each) for each in seconds] == [3, 3] and min(map(min, seconds)) > 0


def test_a_finalist_that_crashes(runner, job):
    libraries = (job().library, job("aborts").library)
    assert runner().compare(CompareJob(libraries, job().cases, TIMING, rounds=1)) is None


def test_the_machine_of_a_server(runner, folder):
    machine, other = (runner(key).machine(str(folder)) for key in ("single", "pair"))
    assert machine == other and machine.fingerprint == other.fingerprint
    assert target_text(machine.target()) == target_text(host_target())


def test_a_server_whose_tvm_cannot_tell_its_processor():
    with pytest.raises(InputError, match="cannot tell its processor"):
        Machine("", "", 2, "0.1.15").target()


def start_and_hit(rpc, runner, key, job, number):
    """Start a kernel that hangs, and send a signal to its server once it runs; return the server."""
    before = {address: loads(rpc, address) for address in known_servers(rpc.tracker)[key].addresses}
    runner.start_check(job)
    return hit(rpc, runner, before, number)


def hit(rpc, runner, before, number):
    """Wait until a server has loaded a kernel, and send it a signal; return its address."""
    assert wait([runner.connection], PATIENT_S) and runner.result() is None
    server = str(runner._server)
    rpc.wait_for(lambda: loads(rpc, server) > before[server], "the kernel was not loaded")
    rpc.signal(server, number)
    return server


def loads(rpc, address):
    return rpc.output(address).count("hangs.so")


@pytest.fixture
def only_once(job, folder):
    """The job of a kernel that hangs, and what makes it a right one from the next server on."""
    hanging, path = job("hangs"), folder / "once_hangs.so"
    shutil.copy(hanging.library, path)
    return replace(hanging, library=str(path)), lambda: shutil.copy(job().library, path)


def test_a_server_that_hangs_costs_its_trial_which_goes_to_another(rpc, runner, only_once):
    hanging, make_right = only_once
    started = runner("pair")
    server = start_and_hit(rpc, started, "pair", hanging, signal.SIGSTOP)
    try:
        make_right()
        started.deadline = time.monotonic()
        ran = last(started)
    finally:
        rpc.signal(server, signal.SIGKILL)
        rpc.start_server("pair")
    assert (ran.status, ran.message) == (Status.OK, f"{server} is silent")


def test_a_server_that_dies_costs_its_trial_which_goes_to_another(rpc, runner, only_once):
    hanging, make_right = only_once
    started = runner("pair")
    server = start_and_hit(rpc, started, "pair", hanging, signal.SIGKILL)
    try:
        make_right()
        ran = last(started)
        assert (ran.status, ran.message) == (Status.OK, f"{server} ended while it ran")
        assert server not in Remote(rpc.tracker, "pair").servers().addresses
    finally:
        rpc.start_server("pair")


def test_a_kernel_that_no_server_survives(rpc, runner, job):
    for _ in range(2):
        rpc.start_server("brittle")
    rpc.wait_for(lambda: known_servers(rpc.tracker).get("brittle", _NONE).free == 2, "servers did not start")
    started = runner("brittle")
    none = dict.fromkeys(known_servers(rpc.tracker)["brittle"].addresses, 0)
    first = start_and_hit(rpc, started, "brittle", job("hangs"), signal.SIGKILL)
    assert wait([started.connection], PATIENT_S) and started.result() is None
    assert hit(rpc, started, none, signal.SIGKILL) != first
    ran = last(started)
    assert ran.status is Status.CRASHED
    assert ran.message.startswith("2 servers were lost with it: ") and first in ran.message
    with pytest.raises(InputError, match=r"no server of key brittle became free in 0.5 s: unknown RPC key"):
        outcome(runner("brittle", wait_s=0.5), job())


def test_a_tracker_that_is_gone_while_tuning(runner, job, group):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = Remote(f"127.0.0.1:{free.getsockname()[1]}", "key")
        with pytest.raises(InputError, match="nothing listens at"):
            outcome(RemoteRunner(PATIENT_S, group.workers[0], gone), job())


_NONE = remote.Servers((), 0)
