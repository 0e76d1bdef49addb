"""Loading llama.cpp's library once, with its log in our hands.

`verbose=False` of llama-cpp-python redirects the whole process's file descriptors and so blanks a terminal
app; a log callback is the clean way. Every line goes to Python's `logging` under "llama.cpp"; the last ones
are kept, because llama.cpp explains failures in its log alone.
"""

from __future__ import annotations

import _thread
import functools
import logging
import re
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

logger = logging.getLogger("llama.cpp")
logger.addHandler(logging.NullHandler())

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}
"""Python's level for each of ggml's. Its INFO is a page of chatter a load, its WARN mostly hints."""
_CONTINUES = 5
_recent_errors: deque[str] = deque(maxlen=20)
_BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute|output) buffer size = *([\d.]+) MiB")
_buffers: list[Buffer] = []
_callback: Any = None
_callback_code: CodeType | None = None
_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer that llama.cpp says to have taken: on which device, what for, and its bytes."""

    device: str
    kind: str
    size_bytes: int


@functools.cache
def lib() -> Any:
    """The module of low-level functions, its backends initialised and its log redirected."""
    import llama_cpp.llama_cpp as low_level

    _redirect_log(low_level)
    low_level.llama_backend_init()
    return low_level


def log_is_taken() -> bool:
    """Whether llama.cpp's log comes here already."""
    return _callback is not None


def recent_errors() -> list[str]:
    """The last error lines of llama.cpp's log, oldest first."""
    return list(_recent_errors)


def forget_errors() -> None:
    """Drop remembered error lines, before a call whose failure they should explain."""
    _recent_errors.clear()


def taken_buffers() -> list[Buffer]:
    """The buffers of all that was loaded since `forget_buffers`, in llama.cpp's own words, to 0.01 MiB."""
    return list(_buffers)


def forget_buffers() -> None:
    """Drop remembered buffers, before something is loaded whose memory is wanted."""
    _buffers.clear()


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Keep a Ctrl+C that falls into llama.cpp's log: Python prints and drops what a native callback raises.

    While a model is loaded or converted the log is all of Python that runs, so it would be lost there. It
    comes again a moment later, until other code is there to be interrupted. For the main thread only.
    """
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        if _in_callback(frame):
            again = threading.Timer(_AGAIN_S, _thread.interrupt_main)
            again.daemon = True
            again.start()
        elif callable(before):
            before(number, frame)

    if not callable(before):
        # Who started this process wants Ctrl+C to be ignored.
        yield
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_callback(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is _callback_code:
            return True
        frame = frame.f_back
    return False


def _redirect_log(low_level: Any) -> None:
    global _callback, _callback_code  # the callback must outlive every call of the library
    pending: list[str] = []
    level = logging.DEBUG

    def receive(ggml_level: int, text: bytes, _user: object) -> None:
        nonlocal level
        if ggml_level != _CONTINUES:
            level = _LEVELS.get(ggml_level, logging.DEBUG)
        pending.append(text.decode("utf-8", "replace"))
        if not pending[-1].endswith("\n"):
            return
        line = "".join(pending).rstrip()
        pending.clear()
        if not line.strip(". "):
            return
        if level >= logging.ERROR:
            _recent_errors.append(line)
        found = _BUFFER.search(line)
        if found:
            _buffers.append(Buffer(found[1], found[2], round(float(found[3]) * 2**20)))
        logger.log(level, "%s", line)

    _callback_code = receive.__code__
    _callback = low_level.llama_log_callback(receive)
    low_level.llama_log_set(_callback, None)
