"""Loading llama.cpp's library once, with its log in our hands.

`verbose=False` of llama-cpp-python redirects the whole process's file descriptors and so blanks a terminal
app; a log callback is the clean way. Every line goes to Python's `logging` under "llama.cpp"; the last ones
are kept, because llama.cpp explains failures in its log alone.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from typing import Any

logger = logging.getLogger("llama.cpp")
logger.addHandler(logging.NullHandler())

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}
"""Python's level for each of ggml's. Its INFO is a page of chatter a load, its WARN mostly hints."""
_CONTINUES = 5
_recent_errors: deque[str] = deque(maxlen=20)
_callback: Any = None


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


def _redirect_log(low_level: Any) -> None:
    global _callback  # the callback must outlive every call of the library
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
        logger.log(level, "%s", line)

    _callback = low_level.llama_log_callback(receive)
    low_level.llama_log_set(_callback, None)
