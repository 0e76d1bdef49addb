"""A terminal that goes away: noticed without any signal, and left in good order."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable

INTERVAL_S = 1.0
"""Between two looks at the terminal, where the system tells of nothing sooner."""

LAST_RESORT_S = 5.0
"""How long the app may take to end; writing to a terminal that is gone can hold it up for good."""

SIGNALLED = 128
"""Exit status of a process that a signal ended, less the signal's number."""


class HangUpWatch:
    """Tells when the other end of standard input is closed: a terminal's window, or what draws for a browser.

    SIGHUP reaches only those whose controlling terminal it was, and who do not block it. To everybody else
    such a terminal is an input that can always be read and never has anything, which keeps a reader busy.

    Args:
        descriptor: what is watched; 0 is standard input.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._stopped = threading.Event()

    def start(self, gone: Callable[[], None]) -> None:
        """Watch in a thread of its own, which calls `gone` once. Windows has no such terminals."""
        if sys.platform != "win32":
            threading.Thread(target=self._watch, args=(gone,), name="hang-up", daemon=True).start()

    def stop(self) -> None:
        """`gone` is not called from now on."""
        self._stopped.set()

    def _watch(self, gone: Callable[[], None]) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLHUP)
        while not self._stopped.is_set():
            found = poller.poll(INTERVAL_S * 1000)
            if not found:
                continue
            # Anything else means that this input cannot be watched.
            if found[0][1] & select.POLLHUP and not self._stopped.is_set():
                gone()
            return


class LastResort:
    """Ends the process, and with it the engine, where it has not ended by itself in `LAST_RESORT_S`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def begin(self, signal_number: int) -> None:
        """From now on there is not much time left; from any thread, and the first call counts."""
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(LAST_RESORT_S, os._exit, (SIGNALLED + signal_number,))
                self._timer.daemon = True
                self._timer.start()

    def cancel(self) -> None:
        """The app has ended by itself."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()


def write_nowhere() -> None:
    """Let standard input and output lead nowhere: to write to a terminal that is gone fails, or waits."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
