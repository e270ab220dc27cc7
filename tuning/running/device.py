"""The device of a tuning: the machine that candidates run on, this one or a remote one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...machine.facts import machine_fingerprint
from ...machine.process import usable_cpus
from ...machine.target import host_target

LOCAL = "local"
"""The name of this machine in records."""


@dataclass(frozen=True)
class Device:
    """A machine that candidates run on.

    Parameters
    ----------
    fingerprint : str
        The same on like machines: times of others do not compare.
    threads : int
        How many threads a kernel gets.
    target : Target
        What compiles for it.
    name : str
        What records call it: ``local`` for this machine, ``rpc:KEY`` for one of a tracker.
    """

    fingerprint: str
    threads: int
    target: Any
    name: str

    @property
    def local(self) -> bool:
        """Whether it is this machine."""
        return self.name == LOCAL


def this_machine() -> Device:
    """Return the device that this process runs on."""
    return Device(machine_fingerprint(), usable_cpus(), host_target(), name=LOCAL)
