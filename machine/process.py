"""This process: threads and versions. Imports nothing heavy."""

from __future__ import annotations


def prepare_process() -> None:
    """Set up."""


def require_sound_tvm() -> None:
    """Check."""
