"""What a worker does on a server: check and time a candidate, compare finalists, look at the machine.

Each task has a session of its own. The server ends it after its time, and says so: that is a kernel that
hangs. A session that ends by itself is a kernel that crashed, if the server is still there; if it is not, or
nothing comes from it at all, the server is lost, and what it did can be done elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import tvm
from tvm import rpc

from ...machine.errors import InputError, last_line
from ...machine.target import as_target, with_tile_features
from ...machine.tile_instructions import TILE_FEATURES
from ..measuring.cases import CASES, LoadedCase
from ..measuring.library import LoadedKernel
from ..measuring.tasks import CompareJob, Ran, RunJob, check, compare, time_on
from ..records.record import Status
from .guard import guard_library
from .tracker import NoServer, Remote, Server

# A server that dies is gone from its tracker by then.
_TRACKER_NOTICES_S = 0.5
# What TVM's client says when the other side of a session has ended.
_SESSION_ENDED = ("RPCCode::kReturn", "SockChannel", "Socket")
_FLUSH = "cache_flush_cpu_non_first_arg"

R = TypeVar("R")


@dataclass(frozen=True)
class Missing:
    """No server could be had; the message says why."""

    message: str


@dataclass(frozen=True)
class Lost:
    """A server that is gone, or that no session could be had of."""

    server: Server
    message: str


@dataclass(frozen=True)
class Failed:
    """A session that failed on a server that is well: how that counts for the kernel it ran."""

    status: Status
    message: str


@dataclass(frozen=True)
class RemoteJob:
    """A job for a server.

    Parameters
    ----------
    remote : Remote
        The tracker that handed it out.
    server : Server
        Who does it.
    folder : str
        Where the session guard's library lies, or is put.
    timeout_s : float
        When the server ends the session.
    run, compared : RunJob or None, CompareJob or None
        What to do there.
    """

    remote: Remote
    server: Server
    folder: str
    timeout_s: float
    run: RunJob | None = None
    compared: CompareJob | None = None


@dataclass(frozen=True)
class Machine:
    """A server's machine.

    Parameters
    ----------
    triple, cpu : str
        What LLVM calls it; empty where the server's TVM has no LLVM.
    threads : int
        How many threads a kernel gets there.
    tvm_ffi : str
        The version of its TVM FFI.
    tile_features : tuple of str
        Those of `TILE_FEATURES` that it has.
    """

    triple: str
    cpu: str
    threads: int
    tvm_ffi: str
    tile_features: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A short text that is the same on like machines, as `facts.machine_fingerprint` of this one."""
        told = " ".join((self.triple, self.cpu, *self.tile_features))
        digest = sha256(told.encode()).hexdigest()[:8]
        return f"{self.cpu or 'unknown'}-{self.threads}cpu-rpc-{digest}"

    def target(self) -> Any:
        """Return the target that compiles for it.

        Raises
        ------
        InputError
            Its TVM cannot tell.
        """
        if not (self.triple and self.cpu):
            raise InputError(
                "the server's TVM has no LLVM and cannot tell its processor; install apache-tvm there"
            )
        told = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.cpu, "num-cores": self.threads}
        return with_tile_features(as_target(told), self.tile_features)


def request_server(remote: Remote) -> Server | Missing:
    """Wait for a server."""
    try:
        return remote.request()
    except NoServer as error:
        return Missing(str(error))


def run_on_server(job: RemoteJob) -> Ran | Lost | Failed:
    """Check a candidate on a server, and time it if it is right."""
    return _in_session(job, lambda session: _run(session, job.run))


def compare_on_server(job: RemoteJob) -> list[list[float]] | Lost | Failed:
    """Time libraries in turns on a server."""
    return _in_session(job, lambda session: _compare(session, job.compared))


def look_at_server(job: RemoteJob) -> Machine | Lost | Failed:
    """Find out what a server's machine is."""
    return _in_session(job, lambda session: _look(session, job.folder))


class RemoteFunction:
    """A function of a library on a server, with the clock of that machine.

    Parameters
    ----------
    module : tvm.runtime.Module
        The library.
    name : str
        The function.
    device : tvm.runtime.Device
        The server's CPU.
    cold : bool
        Whether to empty the caches of all arguments but the first before each timed call.
    """

    def __init__(self, module: Any, name: str, device: Any, cold: bool) -> None:
        self._module, self._name, self._device, self._cold = module, name, device, cold
        self._call = module[name]

    def __call__(self, *tensors: Any) -> None:
        """Call it and wait for it."""
        self._call(*tensors)

    def seconds_of(self, tensors: Sequence[Any], number: int) -> float:
        """Return seconds of one of so many calls; one call before them does not count."""
        options = {"number": 1, "repeat": number, "f_preproc": _FLUSH} if self._cold else {"number": number}
        evaluate = self._module.time_evaluator(self._name, self._device, **options)
        return float(evaluate(*tensors).mean)


class RemoteKernel(LoadedKernel):
    """A library's kernel on a server."""

    def __init__(self, path: str, session: Any, cold: bool) -> None:
        self._device, self._cold = session.cpu(), cold
        super().__init__(path, _loaded(session, path))

    def _function(self, name: str) -> Callable[..., Any]:
        return RemoteFunction(self._module, name, self._device, self._cold)

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return tvm.runtime.empty(shape, dtype, self._device)


def _loaded(session: Any, path: str) -> Any:
    session.upload(path)
    return session.load_module(Path(path).name)


def _in_session(job: RemoteJob, do: Callable[[Any], R]) -> R | Lost | Failed:
    """Do something in a session of its own, and tell what becomes of the session."""
    server, guard = job.server, guard_library(job.folder)
    try:
        session = rpc.connect(server.host, server.port, server.match_key, job.timeout_s)
        _loaded(session, guard)
    except Exception as error:
        return Lost(server, f"no session with {server}: {last_line(error)}")
    try:
        return do(session)
    except Exception as error:
        kind = type(error).__name__
        if kind == "RPCSessionTimeoutError":
            return Failed(Status.RUN_TIMEOUT, f"not finished within {job.timeout_s:g} s")
        if kind == "RPCError":
            return Failed(Status.RUN_ERROR, last_line(error))
        if not any(word in str(error) for word in _SESSION_ENDED):
            raise
    time.sleep(_TRACKER_NOTICES_S)
    if job.remote.has(server):
        return Failed(Status.CRASHED, f"took its process on {server} down")
    return Lost(server, f"{server} ended while it ran")


def _run(session: Any, job: RunJob | None) -> Ran:
    assert job is not None
    kernel = RemoteKernel(job.library, session, job.timing.cold_cache)
    cases = [LoadedCase(job.cases, nth, session.cpu()) for nth in range(CASES)]
    checked = check(kernel, cases, job)
    if checked.run_secs or not checked.verified:
        return checked
    ran = time_on(kernel, cases[0], job)
    return replace(ran, max_error=checked.max_error) if ran.verified else ran


def _compare(session: Any, job: CompareJob | None) -> list[list[float]]:
    assert job is not None
    cold = job.timing.cold_cache
    # A library that is uploaded twice would be written over while it is in use.
    kernels = {library: RemoteKernel(library, session, cold) for library in set(job.libraries)}
    case = LoadedCase(job.cases, 0, session.cpu())
    return compare([kernels[library] for library in job.libraries], case, job)


def _look(session: Any, folder: str) -> Machine:
    guard = session.load_module(Path(guard_library(folder)).name)
    version, features = int(guard["version"]()), int(guard["tile_features"]())
    return Machine(
        triple=_told(session, "target.llvm_get_system_triple"),
        cpu=_told(session, "target.llvm_get_system_cpu"),
        threads=int(session.get_function("runtime.NumThreads")()),
        tvm_ffi=f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}",
        tile_features=tuple(name for bit, name in enumerate(TILE_FEATURES) if features >> bit & 1),
    )


def _told(session: Any, name: str) -> str:
    """Ask a server something; empty where it has no such function."""
    try:
        return str(session.get_function(name)())
    except AttributeError:
        return ""
