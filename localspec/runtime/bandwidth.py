"""How fast memory is here, by copying: the yardstick for a pass, which does little but read weights."""

from __future__ import annotations

import ctypes
import logging
import statistics
import threading
import time
from typing import Any

import numpy as np
import psutil

from localspec.errors import EngineError
from localspec.runtime import devices
from localspec.runtime.cores import physical_cores

MOST_BYTES = 512_000_000
"""Memory that a measurement takes at most: source and target together, beyond any cache."""
_LEAST_BYTES = 64_000_000
_SHARE = 4
"""A measurement takes at most this fraction (1 / _SHARE) of what is free."""
_WARM_UP = 1
_ROUNDS = 5
"""A first round wakes caches, clocks and drivers and does not count."""
_CPU_COPIES = 4
_GPU_COPIES = 16
"""Copies of a round, so that starting and waiting do not count."""
_FINE_S = 1e-4
_I8 = 24
"""ggml's number of its type of one byte."""

logger = logging.getLogger(__name__)


def measured_bandwidth(
    device: str | None = None, *, threads: int | None = None, most: int = MOST_BYTES, busy: bool = False
) -> float | None:
    """`copy_bandwidth`, or None where it cannot be measured."""
    try:
        return copy_bandwidth(device, threads=threads, most=most, busy=busy)
    except Exception:
        # A yardstick is worth no failed bench, whatever a driver makes of it.
        logger.info("no bandwidth of %s", device or "memory", exc_info=True)
        return None


def copy_bandwidth(
    device: str | None = None, *, threads: int | None = None, most: int = MOST_BYTES, busy: bool = False
) -> float:
    """Bytes a second that copying moves, read and written both counted: the median of several rounds.

    It takes 512 MB at most (`MOST_BYTES`), a quarter of the free memory where that is less, for about a
    second. Traffic that the program does not see, such as a CPU reading a line before it overwrites it, is
    not counted, so memory that is only read can be somewhat faster than this.

    Args:
        device: ggml's name of it, such as "CUDA0"; None or the CPU's name is the system's memory.
        threads: threads that copy in the system's memory; None takes the physical cores.
        most: bytes of memory that the measurement takes at most.
        busy: whether other programs may be at work: then only the time counts in which the copying threads
            had a core, and the best round; of the system's memory alone.

    Raises:
        EngineError: there is no such device, too little of its memory is free, or llama.cpp cannot use it.
    """
    if device is None or any(each.name == device and each.kind == "cpu" for each in devices.devices()):
        return _system_bandwidth(threads or physical_cores(), most, busy=busy)
    return _device_bandwidth(device, most)


def _block_bytes(free: int, most: int) -> int:
    """Size of source and of target; raises `EngineError` when a measurement of that size means nothing."""
    total = min(most, free // _SHARE)
    if total < _LEAST_BYTES:
        raise EngineError("Too little memory is free to measure how fast it is; close other programs.")
    return total // 2


# --- the system's memory


def _system_bandwidth(threads: int, most: int = MOST_BYTES, *, busy: bool = False) -> float:
    """Every thread copies a part of its own; numpy lets the others run meanwhile."""
    block = _block_bytes(psutil.virtual_memory().available, most)
    sources = np.array_split(np.empty(block, dtype=np.uint8), threads)
    targets = np.array_split(np.empty(block, dtype=np.uint8), threads)
    # Windows counts a thread's time in steps that are as long as a round.
    busy = busy and time.get_clock_info("thread_time").resolution < _FINE_S
    clock = time.thread_time if busy else time.perf_counter
    barrier = threading.Barrier(threads)
    begun = np.zeros((threads, _WARM_UP + _ROUNDS))
    ended = np.zeros_like(begun)

    def work(index: int) -> None:
        source, target = sources[index], targets[index]
        # Written by the thread that will read it: memory is placed near the core that first touches it.
        source.fill(1)
        for turn in range(_WARM_UP + _ROUNDS):
            barrier.wait()
            begun[index, turn] = clock()
            for _ in range(_CPU_COPIES):
                np.copyto(target, source)
            ended[index, turn] = clock()

    workers = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    moved = 2 * block * _CPU_COPIES
    if busy:
        return moved / float((ended - begun).mean(axis=0)[_WARM_UP:].min())
    seconds = (ended.max(axis=0) - begun.min(axis=0))[_WARM_UP:]
    return moved / float(np.median(seconds))


# --- any device of ggml


class _InitParams(ctypes.Structure):
    """ggml's `ggml_init_params`."""

    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _device_bandwidth(name: str, most: int = MOST_BYTES) -> float:
    """Copies between two tensors on the device called `name`, queued one after the other."""
    handle = devices.device_handle(name)
    free = next(each.free_bytes for each in devices.devices() if each.name == name)
    block = _block_bytes(free or psutil.virtual_memory().available, most)
    with _TensorPair(handle, block) as pair:
        seconds = []
        for _ in range(_WARM_UP + _ROUNDS):
            began = time.perf_counter()
            pair.copy(_GPU_COPIES)
            seconds.append(time.perf_counter() - began)
    return 2 * block * _GPU_COPIES / statistics.median(seconds[_WARM_UP:])


class _TensorPair:
    """Two tensors of `size` bytes in a device's memory; freed at the end of the `with` block.

    Raises:
        EngineError: the device cannot be opened or its memory cannot be had.
    """

    def __init__(self, device: int, size: int) -> None:
        pointer, bind = ctypes.c_void_p, devices.base_function
        self._device, self._size = device, size
        self._overhead = bind("ggml_tensor_overhead", ctypes.c_size_t)
        self._init = bind("ggml_init", pointer, _InitParams)
        self._tensor = bind("ggml_new_tensor_1d", pointer, pointer, ctypes.c_int, ctypes.c_int64)
        self._open = bind("ggml_backend_dev_init", pointer, pointer, ctypes.c_char_p)
        self._allocate = bind("ggml_backend_alloc_ctx_tensors", pointer, pointer, pointer)
        self._fill = bind("ggml_backend_buffer_clear", None, pointer, ctypes.c_uint8)
        self._copy = bind("ggml_backend_tensor_copy_async", None, pointer, pointer, pointer, pointer)
        self._wait = bind("ggml_backend_synchronize", None, pointer)
        self._free = {
            name: bind(name, None, pointer)
            for name in ("ggml_backend_buffer_free", "ggml_free", "ggml_backend_free")
        }
        self._opened: list[tuple[str, Any]] = []

    def __enter__(self) -> _TensorPair:
        try:
            self._backend = self._own("ggml_backend_free", self._open(self._device, None))
            params = _InitParams(mem_size=2 * self._overhead(), mem_buffer=None, no_alloc=True)
            context = self._own("ggml_free", self._init(params))
            self._source = self._tensor(context, _I8, self._size)
            self._target = self._tensor(context, _I8, self._size)
            buffer = self._own("ggml_backend_buffer_free", self._allocate(context, self._backend))
            self._fill(buffer, 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_failure: object) -> None:
        while self._opened:
            name, thing = self._opened.pop()
            self._free[name](thing)

    def copy(self, times: int) -> None:
        """Copy the source over the target, and wait until it is done."""
        for _ in range(times):
            self._copy(self._backend, self._backend, self._source, self._target)
        self._wait(self._backend)

    def _own(self, free: str, thing: Any) -> Any:
        if not thing:
            raise EngineError("The device gives no memory to measure how fast it is; close other programs.")
        self._opened.append((free, thing))
        return thing
