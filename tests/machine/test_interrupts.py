"""Ctrl-C is put off, and not lost."""

import signal
import threading

import pytest
import tunesmith as ts
from tunesmith.machine.errors import blamed
from tunesmith.machine.interrupts import kept_interrupts, raise_kept_interrupt, uninterrupted
from tvm import tirx
from tvm_ffi import structural_walk


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


def interrupted_in_tvm():
    """Be interrupted while TVM calls Python back: it makes an error of its own of that."""
    func = ts.workload("relu", m=4, n=4).func
    structural_walk(func.body, [(tirx.For, lambda loop: signal.raise_signal(signal.SIGINT))])


def test_an_interrupt_that_became_another_error_is_one():
    with pytest.raises(RuntimeError):
        interrupted_in_tvm()
    with pytest.raises(KeyboardInterrupt), kept_interrupts():
        interrupted_in_tvm()


def test_an_error_of_a_function_that_was_interrupted_is_not_its_own():
    with (
        kept_interrupts(),
        pytest.raises(KeyboardInterrupt),
        blamed("it", interrupted_in_tvm),
    ):
        interrupted_in_tvm()


def test_whoever_expects_errors_finds_the_interrupt():
    with pytest.raises(KeyboardInterrupt), kept_interrupts():
        try:
            interrupted_in_tvm()
        except RuntimeError:
            raise_kept_interrupt()
    raise_kept_interrupt()


def test_errors_without_an_interrupt_stay_as_they_are():
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), kept_interrupts():
        raise_kept_interrupt()
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is handler
