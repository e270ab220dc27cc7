"""What may be wrong on the way to a remote device, in the order in which it would show."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from ...kernels import workload
from ...machine.diagnosis import Check
from ...machine.errors import InputError, last_line
from ...machine.target import host_target, target_text
from ..measuring.cases import prepare_cases
from ..measuring.measurement import Timing
from ..measuring.tasks import BuildJob, Built, Ran, RunJob, build_candidate
from ..processes.worker import WorkerError, WorkerTimeout
from ..processes.worker_group import WorkerGroup
from ..records.record import Status
from .runner import RemoteRunner
from .tasks import Machine
from .tracker import Remote, Servers, connect, greet, known_servers, parse_address, resolve

# Doctor does not wait for others to finish.
_WAIT_S = 10.0
_TIMEOUT_S = 10.0
_SIZE = 64


def diagnose_remote(tracker: str, key: str | None = None) -> Iterator[Check]:
    """Look at a tracker and at one server of a key, of every key by default; end where nothing can follow.

    Parameters
    ----------
    tracker : str
        Its address.
    key : str or None
        Which of its servers.
    """
    yield _tornado()
    found: dict[str, Servers] = {}
    for name, look in (
        ("RPC tracker's address", lambda: _address(tracker)),
        ("RPC tracker's port", lambda: _port(tracker)),
        ("RPC tracker", lambda: _tracker(tracker)),
        ("RPC keys", lambda: _keys(tracker, key, found)),
    ):
        check = _checked(name, look)
        yield check
        if not check.ok:
            return
    for each in [key] if key else sorted(found):
        yield from _servers(tracker, each, found[each])


def _checked(name: str, look: Callable[[], str]) -> Check:
    """Make a finding of what a look returns, or of why it cannot."""
    try:
        return Check(name, True, look())
    except InputError as error:
        reason, _, advice = str(error).partition("; ")
        return Check(name, False, reason, advice)
    except Exception as error:  # whatever is broken is what the user wants to read
        return Check(name, False, last_line(error))


def _tornado() -> Check:
    try:
        return Check("tornado", True, version("tornado"))
    except PackageNotFoundError:
        advice = "to start a tracker on this machine: pip install 'tunesmith[rpc]'"
        return Check("tornado", True, "not installed: only who runs a tracker needs it", advice)


def _address(tracker: str) -> str:
    return ", ".join(resolve(parse_address(tracker)[0]))


def _port(tracker: str) -> str:
    with connect(tracker):
        return f"{parse_address(tracker)[1]} answers"


def _tracker(tracker: str) -> str:
    with connect(tracker) as connection:
        greet(connection, tracker)
    return "it is one"


def _keys(tracker: str, key: str | None, found: dict[str, Servers]) -> str:
    if key is not None:
        found[key] = Remote(tracker, key).servers()
    else:
        found.update(known_servers(tracker))
        if not found:
            raise InputError(f"no server; start one: {Remote(tracker, 'KEY').start_server}")
    return ", ".join(f"{name}: {s.total} servers, {s.free} free" for name, s in sorted(found.items()))


def _servers(tracker: str, key: str, servers: Servers) -> Iterator[Check]:
    """Look at one server of a key."""
    remote = Remote(tracker, key, wait_s=_WAIT_S)
    with tempfile.TemporaryDirectory(prefix="tunesmith-doctor-") as folder, WorkerGroup(2) as group:
        runner = RemoteRunner(_TIMEOUT_S, group.workers[0], remote)
        machines: list[Machine] = []
        session = _checked(f"session on {key}", lambda: _session(runner, folder, machines))
        yield session
        if not session.ok:
            return
        machine = machines[0]
        yield _same_tvm(key, machine)
        yield _processor(key, machine)
        yield _checked(f"matmul on {key}", lambda: _matmul(runner, group, folder, machine))


def _session(runner: RemoteRunner, folder: str, machines: list[Machine]) -> str:
    machines.append(runner.machine(folder))
    return f"{machines[0].cpu or 'unknown CPU'}, {machines[0].threads} threads"


def _same_tvm(key: str, machine: Machine) -> Check:
    here = _tvm_ffi_version()
    same = machine.tvm_ffi == here
    advice = "" if same else f"install there what is here: pip install 'apache-tvm=={tvm.__version__}'"
    return Check(f"TVM's FFI on {key}", same, f"{machine.tvm_ffi}, here {here}", advice)


def _tvm_ffi_version() -> str:
    """Return the version that the library itself tells, as `Machine.tvm_ffi`."""
    numbers = (ctypes.c_uint32 * 3)()
    ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIGetVersion(numbers)
    return ".".join(map(str, numbers))


def _processor(key: str, machine: Machine) -> Check:
    name, here = f"processor of {key}", host_target()
    if not machine.triple:
        return Check(name, True, "its TVM has no LLVM to tell", "name its target with --target")
    target = machine.target()
    if (target.attrs["mcpu"], _architecture(target)) == (here.attrs["mcpu"], _architecture(here)):
        return Check(name, True, f"{machine.cpu}, as here")
    config = json.dumps({"kind": "llvm", "mtriple": machine.triple, "mcpu": machine.cpu})
    return Check(name, True, f"{machine.cpu} ({machine.triple})", f"compile for it: --target '{config}'")


def _architecture(target: Any) -> str:
    return str(target.attrs["mtriple"]).split("-")[0]


def _matmul(runner: RemoteRunner, group: WorkerGroup, folder: str, machine: Machine) -> str:
    """Build a small matmul for a server, and check and time it there."""
    small = workload("matmul", m=_SIZE, n=_SIZE, k=_SIZE)
    target = machine.target() if machine.triple else host_target()
    job = BuildJob(tvm.ir.save_json(small.func), target_text(target), str(Path(folder, "matmul.so")))
    try:
        built: Built = group.workers[1].call(build_candidate, job, _TIMEOUT_S)
    except (WorkerError, WorkerTimeout) as error:
        raise InputError(f"building failed: {error}") from None
    if built.status is not Status.OK:
        advice = "for servers of another architecture, name a cross compiler: CXX=aarch64-linux-gnu-g++"
        raise InputError(f"{built.status}: {built.message}; {advice}")
    cases = prepare_cases(small, str(Path(folder, "cases")))
    ran = _ran(runner, RunJob(built.library, cases, Timing(min_repeat_ms=1.0, budget_s=0.0)))
    if ran.status is not Status.OK:
        raise InputError(f"{ran.status}: {ran.message}; see what the server itself printed")
    return f"right, {min(ran.run_secs) * 1e6:.0f} us"


def _ran(runner: RemoteRunner, job: RunJob) -> Ran:
    runner.start_check(job)
    while (ran := runner.result()) is None:
        wait([runner.connection], _TIMEOUT_S)
    return ran
