"""Ctrl-C at the right moment, and as Ctrl-C: what must not be left half done is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Those that came within `kept_interrupts`: signals concern the whole process.
_came: list[int] = []


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off until the end of what is done in here; it must be short."""
    came: list[tuple[int, Any]] = []
    handler = None
    try:
        with _handling(lambda number, frame: came.append((number, frame))) as handler:
            yield
    finally:
        if came and handler is not None:
            handler(*came[0])


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Let Ctrl-C end what is done in here as KeyboardInterrupt, whatever it passes through.

    TVM and NumPy make an error of their own of one that comes while they call Python back.
    """

    def note(number: int, frame: Any) -> None:
        _came.append(number)
        if handler is not None:
            handler(number, frame)

    with _handling(note) as handler:
        try:
            yield
        except Exception as error:
            if _came:
                raise KeyboardInterrupt from error
            raise
        finally:
            _came.clear()


def raise_kept_interrupt() -> None:
    """Raise KeyboardInterrupt where one came and was taken for something else.

    Whoever expects any error, and goes on, calls this first.
    """
    if _came:
        raise KeyboardInterrupt


@contextmanager
def _handling(handle: Callable[[int, Any], None]) -> Iterator[Callable[[int, Any], Any] | None]:
    """Let a function handle Ctrl-C; give what did before, None where this thread is not the one to ask."""
    handler = signal.getsignal(signal.SIGINT)
    # Only the main thread is interrupted, and only it may say by whom.
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield None
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield handler
    finally:
        signal.signal(signal.SIGINT, handler)
