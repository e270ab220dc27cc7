"""The device of a tuning: the machine that candidates run on, this one or a remote one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..machine.facts import machine_fingerprint
from ..machine.process import usable_cpus
from ..machine.target import host_target


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
    local : bool
        Whether it is this machine.
    """

    fingerprint: str
    threads: int
    target: Any
    local: bool


def this_machine() -> Device:
    """Return the device that this process runs on."""
    return Device(machine_fingerprint(), usable_cpus(), host_target(), local=True)
