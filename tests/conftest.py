"""Options of the whole suite, and what it starts once: worker processes, and TVM's RPC on this machine."""

import contextlib
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

# Threads that wait for work spin, beside the tests of other processes: NumPy's until its next product, TVM's
# for 0.1 s after each call. Each took a seventh of the time of tests of schedules.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")

import pytest
from hypothesis import settings
from tunesmith.tuning.processes import worker_group as worker_group_module

# The same few examples every time; `--hypothesis-profile hunt` draws many, and others each time.
settings.register_profile("few", derandomize=True, deadline=None, max_examples=15, database=None)
settings.register_profile("hunt", deadline=None, max_examples=300, print_blob=True)
settings.load_profile("few")

# TVM looks up the whole stack for each TVMScript function. Without these Python goes through all modules
# there are, for every frame of `python -m` and of an import, and finds nothing.
for _frozen in ("runpy", "importlib._bootstrap", "importlib._bootstrap_external"):
    inspect.modulesbyfile[f"<frozen {_frozen}>"] = _frozen

# A shell starts what runs beside it, `make test &`, deaf to Ctrl-C: the tests of it, and the processes that
# they start, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# TVM's checker does not see that v - v // s * s lies below s.
_SEEN_BY_EYE = "on buffer phases dimension 3"


@pytest.fixture(scope="session")
def reads_outside():
    """Return what an unscheduled function reads outside its buffers, also where no output needs it."""
    import tvm
    from tvm.s_tir.analysis import OOBChecker

    def found(func):
        try:
            OOBChecker()(tvm.IRModule({"main": func}))
        except Exception as error:  # TVM raises one without a class of its own.
            lines = [line for line in str(error).splitlines() if "Out of bounds memory" in line]
            assert lines, error
            return [line for line in lines if _SEEN_BY_EYE not in line]
        return []

    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


class WorkerStarter:
    """What `subprocess.Popen` is to worker groups: they are forked from one process that imports TVM once."""

    def __init__(self) -> None:
        self._line = None

    def popen(self, command, *, env, pass_fds, stdout, **options):
        """Start a worker group's first process."""
        arguments = command[3:]
        if "tvm" not in arguments[3].split(","):
            return subprocess.Popen(command, env=env, pass_fds=pass_fds, stdout=stdout, **options)
        wanted = {
            "parent": os.getpid(), "folder": os.getcwd(), "environment": env, "arguments": arguments,
            "files": pass_fds, "output": stdout,
        }  # fmt: skip
        with _adopting():
            socket.send_fds(self._started(), [json.dumps(wanted).encode()], pass_fds)
            return Forked(int(self._started().recv(32)))

    def close(self) -> None:
        """End the process that forks."""
        if self._line is not None:
            self._line.close()
            self._process.wait()

    def _started(self):
        if self._line is None:
            self._line, theirs = socket.socketpair()
            program = Path(__file__).with_name("worker_starter.py")
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, program, str(theirs.fileno())], pass_fds=[theirs.fileno()]
                )
        return self._line


class Forked:
    """A process that was forked elsewhere, to who uses it like a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


@contextlib.contextmanager
def _adopting():
    """Become the parent of what lower processes leave behind, in here."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    prctl(set_child_subreaper, 1)
    try:
        yield
    finally:
        prctl(set_child_subreaper, 0)


@pytest.fixture(scope="session", autouse=True)
def forked_workers():
    """Fork the workers of a test from a process that has imported TVM; `real_workers` says where not."""
    if sys.platform != "linux":
        yield
        return
    starter = WorkerStarter()
    forking = SimpleNamespace(Popen=starter.popen, DEVNULL=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker_group_module, "subprocess", forking)
        yield
    starter.close()


@pytest.fixture(scope="module")
def real_workers():
    """Start the worker processes of a file's tests as users do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker_group_module, "subprocess", subprocess)
        yield


# What `python -m tvm.exec.rpc_tracker` and `rpc_server` run, in forks of one process that imports TVM once.
_RPC = """
import os, signal, sys
from tvm.rpc.server import PopenRPCServerState
from tvm.rpc.tracker import PopenTrackerServerState
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    port, log, *tracker_and_key = line.split()
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        if tracker_and_key:
            tracker, key = tracker_and_key
            address = ("127.0.0.1", int(tracker))
            PopenRPCServerState("127.0.0.1", int(port), int(port) + 1, tracker_addr=address, key=key)
        else:
            PopenTrackerServerState("127.0.0.1", int(port), int(port) + 1)
        while True:
            signal.pause()
    print(process, flush=True)
"""


class Rpc:
    """A tracker and servers on free ports, each in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, {}
        self._starter = subprocess.Popen(
            [sys.executable, "-c", _RPC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.tracker = self._start()
        # A server that finds no tracker looks again after 5 s.
        self.wait_for(lambda: "bind to" in self.output(self.tracker), "the tracker did not start")

    def start_server(self, key: str) -> str:
        """Start a server and return its address."""
        return self._start(self.tracker.rpartition(":")[2], key)

    def output(self, address: str) -> str:
        """Return what a server has printed so far."""
        log = self._log(address)
        return log.read_text() if log.exists() else ""

    def signal(self, address: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a server."""
        os.killpg(self._started[address], number)

    def close(self) -> None:
        """End everything that was started."""
        for process in self._started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        self._starter.communicate()

    def wait_for(self, condition, what: str) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    def _start(self, *tracker_and_key: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"127.0.0.1:{port}"
        print(port, self._log(address), *tracker_and_key, file=self._starter.stdin, flush=True)
        self._started[address] = int(self._starter.stdout.readline())
        return address

    def _log(self, address: str) -> Path:
        return self._folder / f"{address.rpartition(':')[2]}.log"


@pytest.fixture
def kept_peaks(monkeypatch):
    """Take this machine's limits, which `doctor` measures again in 2 s, as they were measured."""
    from tunesmith.machine import peaks

    kept = peaks.measured_peaks()
    monkeypatch.setattr(peaks, "_measure", lambda: kept)
    return kept


@pytest.fixture(scope="session")
def rpc(tmp_path_factory):
    """A tracker with two servers of key `pair` and one of key `single`."""
    pytest.importorskip("tornado", reason="a tracker needs the extra rpc")
    from tunesmith.tuning.remote.tracker import known_servers

    found = Rpc(tmp_path_factory.mktemp("rpc"))
    try:
        for key in ("pair", "pair", "single"):
            found.start_server(key)
        found.wait_for(lambda: _free(known_servers(found.tracker)) == 3, "servers did not start")
        yield found
    finally:
        found.close()


def _free(servers) -> int:
    return sum(each.free for each in servers.values())
