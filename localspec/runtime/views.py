"""Arrays on memory of the library's, made once for each place: making one takes longer than reading it."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray


def floats_at(pointer: Any, rows: int, width: int) -> NDArray[np.float32]:
    """What a `float *` that the library has just handed out points at, shape [rows, width].

    The next pass overwrites it, or may leave it without memory: it is to be asked for anew after each.
    """
    return _view(ctypes.addressof(pointer.contents), rows, width)


@functools.lru_cache(maxsize=64)
def _view(address: int, rows: int, width: int) -> NDArray[np.float32]:
    # It owns nothing: an address that the library has given up is not read until it hands it out again.
    values = (ctypes.c_float * (rows * width)).from_address(address)
    return np.ctypeslib.as_array(values).reshape(rows, width)
