"""Ctrl-C is put off, and not lost."""

import signal
import threading

import pytest
from tunesmith.machine.interrupts import uninterrupted


def test_interrupt_comes_when_all_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
    assert done == ["the rest"]


def test_the_handler_of_before_is_in_force_again():
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not handler
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_may_use_it():
    failed = []

    def use():
        try:
            with uninterrupted():
                pass
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert failed == []


def test_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
