"""Ctrl+C that falls into llama.cpp's log callback, where Python drops what is raised."""

from __future__ import annotations

import signal
import time

import pytest

from localspec.runtime import library


def receive() -> None:
    """The log's callback, while which the signal arrives."""
    signal.raise_signal(signal.SIGINT)


def load() -> None:
    """Native code that logs, and what comes after it."""
    receive()
    time.sleep(5)


def test_an_interrupt_in_the_log_comes_right_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_callback_code", receive.__code__)
    with pytest.raises(KeyboardInterrupt) as caught, library.interrupts_kept():
        load()
    assert [entry.name for entry in caught.traceback][1:2] == ["load"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_any_other_interrupt_comes_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), library.interrupts_kept():
        receive()


def test_a_process_that_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with library.interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
