"""Remote devices: servers of TVM's RPC, and the tracker that hands them out.

A tracker knows servers by key: servers of one key are alike. Who asks for a key waits until one of its
servers is free, and then has that server to himself for one session. Everything that waits has a limit.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.rpc import base

from ...machine.errors import InputError, unknown_name

DEFAULT_PORT = 9190
"""Where ``python -m tvm.exec.rpc_tracker`` listens when it is not told otherwise."""

# A tracker that lives answers at once.
_ANSWER_S = 5.0
_SERVER = "server:"


class NoServer(Exception):
    """No server could be had; the message says why and what to do."""


@dataclass(frozen=True)
class Server:
    """A server that the tracker has handed out, and the key that opens it once."""

    host: str
    port: int
    match_key: str

    def __str__(self) -> str:
        """Return its address."""
        return address_text(self.host, self.port)


@dataclass(frozen=True)
class Servers:
    """The servers of a key: addresses of those that the tracker knows, and how many of them are free."""

    addresses: tuple[str, ...]
    free: int

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.addresses)


@dataclass(frozen=True)
class Remote:
    """Where to measure: a tracker, and the key of its servers.

    Parameters
    ----------
    tracker : str
        ``host:port``; without a port, 9190.
    key : str
        What the servers were started with as ``--key``.
    wait_s : float
        The longest to wait for a free server, in seconds.

    Raises
    ------
    InputError
        The address or the key cannot be one.
    """

    tracker: str
    key: str
    wait_s: float = 60.0

    def __post_init__(self) -> None:
        """Check the values."""
        parse_address(self.tracker)
        if not self.key or any(c.isspace() for c in self.key):
            raise InputError(f"an RPC key is a word without spaces: found {self.key!r}")
        if not self.wait_s > 0:
            raise InputError(f"wait_s must be more than 0 seconds: wait_s={self.wait_s}")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the tracker."""
        return parse_address(self.tracker)

    @property
    def device(self) -> str:
        """What records call it."""
        return f"rpc:{self.key}"

    def servers(self) -> Servers:
        """Ask the tracker for the servers of the key.

        Raises
        ------
        InputError
            The tracker does not answer, is none, or has no server of the key.
        """
        found = known_servers(self.tracker)
        if self.key not in found:
            if not found:
                raise InputError(
                    f"the tracker at {self.tracker} has no servers; start one: {self.start_server}"
                )
            raise unknown_name("RPC key", self.key, found)
        return found[self.key]

    @property
    def start_server(self) -> str:
        """The command that starts a server of the key."""
        host, port = self.address
        return f"python -m tvm.exec.rpc_server --tracker {host}:{port} --key {self.key}"

    def request(self) -> Server:
        """Take the next free server of the key, waiting for one.

        Raises
        ------
        NoServer
            None became free in time, or the tracker is gone.
        """
        try:
            with _connected(self.tracker) as tracker:
                tracker.settimeout(self.wait_s)
                host, port, match_key = _answer(tracker, [base.TrackerCode.REQUEST, self.key, "", 1])
        except TimeoutError:
            raise NoServer(self._why_none()) from None
        except (InputError, OSError) as error:
            raise NoServer(str(error)) from None
        return Server(host, port, match_key)

    def has(self, server: Server) -> bool:
        """Tell whether the tracker still knows a server, busy or free."""
        try:
            return str(server) in self.servers().addresses
        except InputError:
            return False

    def _why_none(self) -> str:
        reason = f"no server of key {self.key} became free in {self.wait_s:g} s"
        try:
            return f"{reason}: the tracker knows {self.servers().total}, which are busy or hang"
        except InputError as error:
            return f"{reason}: {error}"


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host``, ``host:port`` or ``[IPv6]:port``.

    Raises
    ------
    InputError
        It is none of these, or the port is not in 1 to 65535.
    """
    head, colon, tail = text.strip().rpartition(":")
    host, port = (
        (head, tail) if colon and not text.strip().endswith("]") else (text.strip(), str(DEFAULT_PORT))
    )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InputError(f"an IPv6 address is written in brackets, as [::1]:9190: found {text!r}")
    if not host or any(c.isspace() or c == "/" for c in host):
        raise InputError(f"a tracker is given as host:port, as in 192.168.0.2:9190: found {text!r}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise InputError(f"a port is a number from 1 to 65535: found {port!r} in {text!r}")
    return host, int(port)


def address_text(host: str, port: int) -> str:
    """Write an address as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve(host: str) -> list[str]:
    """Look a host's addresses up.

    Raises
    ------
    InputError
        There is no such host.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"unknown host {host!r} ({reason}); check its name, or give its IP address"
        ) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def connect(tracker: str) -> socket.socket:
    """Open a connection to the port where a tracker should be.

    Raises
    ------
    InputError
        Nothing listens there, or nothing answers.
    """
    host, port = parse_address(tracker)
    resolve(host)
    try:
        return socket.create_connection((host, port), timeout=_ANSWER_S)
    except TimeoutError:
        raise InputError(
            f"nothing answers at {tracker} within {_ANSWER_S:g} s; is the machine on, and does its firewall "
            f"let port {port} through?"
        ) from None
    except OSError as error:
        raise InputError(
            f"nothing listens at {tracker} ({error.strerror or error}); start a tracker there: "
            f"python -m tvm.exec.rpc_tracker --port {port}"
        ) from None


def greet(connection: socket.socket, tracker: str) -> None:
    """Find out whether who listens is a tracker.

    Raises
    ------
    InputError
        It is not.
    """
    try:
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        (magic,) = struct.unpack("<i", base.recvall(connection, 4))
    except OSError:
        magic = None
    if magic != base.RPC_TRACKER_MAGIC:
        raise InputError(
            f"what listens at {tracker} is no RPC tracker, or hangs; is this the port of a server? "
            "The tracker prints its own when it starts"
        )


def known_servers(tracker: str) -> dict[str, Servers]:
    """Ask a tracker which servers it knows, by key.

    Raises
    ------
    InputError
        It does not answer, or is no tracker.
    """
    try:
        with _connected(tracker) as connection:
            summary = _answer(connection, [base.TrackerCode.SUMMARY])
    except OSError:
        raise InputError(f"the tracker at {tracker} stopped answering; is it hanging?") from None
    return _by_key(summary)


@contextlib.contextmanager
def _connected(tracker: str) -> Iterator[socket.socket]:
    with connect(tracker) as connection:
        greet(connection, tracker)
        yield connection


def _answer(tracker: socket.socket, question: list[Any]) -> Any:
    base.sendjson(tracker, question)
    code, value = base.recvjson(tracker)
    if code != base.TrackerCode.SUCCESS:
        raise OSError(f"the tracker answered with code {code}")
    return value


def _by_key(summary: Mapping[str, Any]) -> dict[str, Servers]:
    """Sort a tracker's summary: who is connected, and how many of a key wait to be asked for."""
    addresses: dict[str, list[str]] = {}
    for info in summary["server_info"]:
        host, port = info["addr"]
        addresses.setdefault(str(info["key"]).removeprefix(_SERVER), []).append(address_text(host, port))
    free = Counter({key: int(queue["free"]) for key, queue in summary["queue_info"].items()})
    return {key: Servers(tuple(sorted(found)), free[key]) for key, found in addresses.items()}
