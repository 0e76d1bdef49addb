"""The devices that ggml sees, and the memory in use.

Reads the libraries of llama-cpp-python without importing it, so `doctor` can say what is wrong with them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from localspec.errors import EngineError
from localspec.messages import DeviceMemory, MemoryUse
from localspec.runtime.cores import physical_cores
from localspec.runtime.library import log_is_taken

__all__ = [
    "Device",
    "DeviceKind",
    "GpuActivity",
    "backend_name",
    "base_function",
    "device_handle",
    "devices",
    "gpu_activity",
    "library_folder",
    "llama_version",
    "memory_use",
    "physical_cores",
    "repacked_types",
    "silence",
    "supports_gpu_offload",
    "system_info",
]

_Function = Callable[..., Any]
DeviceKind = Literal["cpu", "gpu", "igpu", "accel"]

# The order of ggml's own enumeration; the "meta" kind after these wraps devices that are listed anyway.
_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu", "igpu", "accel")


_Q4_0, _Q8_0, _Q2_K, _Q4_K, _Q5_K, _Q6_K, _IQ4_NL, _MXFP4, _Q1_0 = 2, 8, 10, 12, 13, 14, 20, 39, 41


@dataclass(frozen=True, slots=True)
class Device:
    """A device of ggml.

    Attributes:
        name: such as "CUDA0" or "CPU".
        description: the maker's name for it.
        backend: the library behind it, such as "CUDA", "Vulkan", "Metal" or "CPU".
        kind: igpu shares the system's memory, accel helps the CPU (such as BLAS).
        free_bytes: free memory, 0 where the device has none of its own.
        total_bytes: all of its memory, 0 where it has none of its own.
    """

    name: str
    description: str
    backend: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int


def library_folder() -> Path:
    """Folder of llama.cpp's shared libraries; raises `EngineError` when llama-cpp-python is missing."""
    given = os.environ.get("LLAMA_CPP_LIB_PATH")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError("llama-cpp-python is not installed; run `pip install llama-cpp-python`.")
    return Path(next(iter(spec.submodule_search_locations))) / "lib"


@dataclass(frozen=True, slots=True)
class _Ggml:
    """The functions used here, typed."""

    count: _Function
    get: _Function
    name: _Function
    description: _Function
    kind: _Function
    memory: _Function
    registry: _Function
    registry_name: _Function
    load_all: _Function
    version: _Function
    commit: _Function
    system_info: _Function
    supports_offload: _Function
    set_log: _Function


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


# Kept here, because the library calls it for as long as it lives.
_DROP = _LogCallback(lambda _level, _text, _user_data: None)


@functools.cache
def _ggml() -> _Ggml:
    llama, ggml, base = _libraries()
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    size = ctypes.POINTER(ctypes.c_size_t)
    return _Ggml(
        count=_function(ggml, "ggml_backend_dev_count", ctypes.c_size_t),
        get=_function(ggml, "ggml_backend_dev_get", pointer, ctypes.c_size_t),
        name=_function(base, "ggml_backend_dev_name", text, pointer),
        description=_function(base, "ggml_backend_dev_description", text, pointer),
        kind=_function(base, "ggml_backend_dev_type", ctypes.c_int, pointer),
        memory=_function(base, "ggml_backend_dev_memory", None, pointer, size, size),
        registry=_function(base, "ggml_backend_dev_backend_reg", pointer, pointer),
        registry_name=_function(base, "ggml_backend_reg_name", text, pointer),
        load_all=_function(ggml, "ggml_backend_load_all_from_path", None, text),
        version=_function(base, "ggml_version", text),
        commit=_function(base, "ggml_commit", text),
        system_info=_function(llama, "llama_print_system_info", text),
        supports_offload=_function(llama, "llama_supports_gpu_offload", ctypes.c_bool),
        set_log=_function(llama, "llama_log_set", None, _LogCallback, pointer),
    )


def _function(library: ctypes.CDLL, name: str, result: type | None, *arguments: type) -> _Function:
    try:
        found = getattr(library, name)
    except AttributeError as error:
        raise EngineError(
            f"The llama.cpp libraries are of another version than localspec needs ({error}); run "
            "`pip install --force-reinstall llama-cpp-python`."
        ) from error
    found.restype = result
    found.argtypes = list(arguments)
    return found  # type: ignore[no-any-return]


def base_function(name: str, result: type | None, *arguments: type) -> Callable[..., Any]:
    """A C function of libggml-base with its types; raises `EngineError` when there is none of that name."""
    return _function(_libraries()[2], name, result, *arguments)


def device_handle(name: str) -> int:
    """Handle of the device that ggml calls `name`; raises `EngineError` when there is none."""
    ggml = _ggml()
    for handle in _handles():
        if _text(ggml.name(handle)) == name:
            return handle
    raise EngineError(f"llama.cpp sees no device {name} here; `localspec doctor` lists those that it sees.")


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL, ctypes.CDLL]:
    """libllama, libggml and libggml-base, as the very copies that llama_cpp uses.

    A symbol of a dependency is found through the handle of libllama. Opening libggml by its own path would
    load a second copy, with devices of its own: wheels keep the versioned names as separate files. Windows
    looks symbols up in one library only, but tells libraries apart by name, so there each is opened.
    """
    folder = library_folder()
    try:
        if sys.platform == "win32":
            os.add_dll_directory(str(folder))
            names = ("llama", "ggml", "ggml-base")
            found = [_first(folder, f"{name}.dll", f"lib{name}.dll") for name in names]
            llama, ggml, base = (ctypes.CDLL(str(path), winmode=0) for path in found)
            return llama, ggml, base
        library = ctypes.CDLL(str(_first(folder, "libllama.so", "libllama.dylib")))
    except OSError as error:
        raise EngineError(
            f"llama.cpp's libraries cannot be loaded ({error}); run "
            "`pip install --force-reinstall --no-cache-dir llama-cpp-python`."
        ) from error
    return library, library, library


def _first(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise EngineError(
        f"llama.cpp's library {names[0]} is missing from {folder}; run "
        "`pip install --force-reinstall --no-cache-dir llama-cpp-python`."
    )


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", errors="replace") if value else ""


@functools.cache
def _handles() -> tuple[int, ...]:
    """Handles of every device; they stay valid as long as the process lives."""
    ggml = _ggml()
    if ggml.count() == 0:
        # A build whose backends are separate libraries.
        ggml.load_all(os.fsencode(library_folder()))
    return tuple(ggml.get(index) for index in range(ggml.count()) if ggml.kind(ggml.get(index)) < len(_KINDS))


def _memory(handle: int) -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _ggml().memory(handle, ctypes.byref(free), ctypes.byref(total))
    return min(free.value, total.value), total.value


def devices() -> list[Device]:
    """Every device that ggml can use, in ggml's order. Raises `EngineError` without a usable llama.cpp."""
    ggml = _ggml()
    found = []
    for handle in _handles():
        free, total = _memory(handle)
        found.append(
            Device(
                name=_text(ggml.name(handle)),
                description=_text(ggml.description(handle)).strip(),
                backend=_text(ggml.registry_name(ggml.registry(handle))),
                kind=_KINDS[ggml.kind(handle)],
                free_bytes=free,
                total_bytes=total,
            )
        )
    return found


def used_gpus() -> list[Device]:
    """Those that llama.cpp puts layers on: one that shares the system's memory where there is no other."""
    found = devices()
    cards = [device for device in found if device.kind == "gpu"]
    return cards or [device for device in found if device.kind == "igpu"]


def backend_name() -> str:
    """The backend that computes: that of the first GPU ("CUDA", "Vulkan", "Metal", ...), else "CPU"."""
    ggml = _ggml()
    for handle in _handles():
        if _KINDS[ggml.kind(handle)] in ("gpu", "igpu"):
            return _text(ggml.registry_name(ggml.registry(handle)))
    return "CPU"


def memory_use(engine_pid: int | None = None) -> MemoryUse:
    """Memory in use now: each GPU by ggml, the engine's resident size (this process by default), system RAM.

    Cheap enough to be asked several times a second. The resident size of a process that is gone is 0.
    """
    ggml = _ggml()
    gpus = []
    kinds = {_KINDS[ggml.kind(handle)] for handle in _handles()}
    used = "gpu" if "gpu" in kinds else "igpu"
    for handle in _handles():
        if _KINDS[ggml.kind(handle)] == used:
            free, total = _memory(handle)
            name = _text(ggml.name(handle))
            gpus.append(DeviceMemory(name=name, kind="gpu", used=total - free, total=total, source="ggml"))
    try:
        resident = psutil.Process(engine_pid).memory_info().rss
    except psutil.Error:
        resident = 0
    system = psutil.virtual_memory()
    return MemoryUse(
        devices=tuple(gpus),
        engine_rss=resident,
        system_used=system.total - system.available,
        system_total=system.total,
    )


def silence() -> None:
    """Keep llama.cpp from writing to standard error, for commands that only look around.

    Where the runtime already takes the log, for its error messages, that stays.
    """
    if not log_is_taken():
        _ggml().set_log(_DROP, None)


def llama_version() -> str:
    """Version of ggml and the commit of llama.cpp that the libraries were built from."""
    ggml = _ggml()
    return f"ggml {_text(ggml.version())} ({_text(ggml.commit())})"


def system_info() -> dict[str, str]:
    """What the libraries were built with, such as {"AVX2": "1", "OPENMP": "1"}."""
    # "CPU : SSE3 = 1 | AVX = 1 | " with one such prefix for each backend.
    items = (part.split(" = ") for part in _text(_ggml().system_info()).split("|"))
    return {item[0].split(":")[-1].strip(): item[1].strip() for item in items if len(item) == 2}


def repacked_types() -> frozenset[int]:
    """Tensor types that llama.cpp lays out anew for this CPU, numbered as in GGUF files.

    Its own table, of the processors that wheels are built for; one that is missing here makes estimates of
    memory too small, and nothing else.
    """
    has = {name for name, value in system_info().items() if value == "1"}
    types: set[int] = set()
    if "REPACK" not in has:
        return frozenset()
    if "AVX2" in has:
        types |= {_Q4_0, _Q4_K, _IQ4_NL, _MXFP4}
    if "AVX512" in has:
        types |= {_Q2_K}
    if "NEON" in has and ("MATMUL_INT8" in has or "DOTPROD" in has):
        types |= {_Q4_0, _Q8_0, _Q4_K, _Q5_K, _Q6_K, _Q1_0}
    if "NEON" in has and "DOTPROD" in has:
        types |= {_IQ4_NL, _MXFP4}
    return frozenset(types)


def supports_gpu_offload() -> bool:
    """Whether the libraries were built with any GPU backend."""
    return bool(_ggml().supports_offload())


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """What NVML tells beyond memory: `utilization` in percent, `power_watts` None where unmeasured."""

    name: str
    utilization: int
    power_watts: float | None


def gpu_activity() -> tuple[GpuActivity, ...]:
    """Activity of NVIDIA GPUs; empty without the optional `nvidia-ml-py` or without a driver."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_activity(pynvml, handle) for handle in handles)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _activity(nvml: Any, handle: Any) -> GpuActivity:
    try:
        watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    except nvml.NVMLError:
        watts = None
    name = nvml.nvmlDeviceGetName(handle)
    return GpuActivity(
        name=name.decode() if isinstance(name, bytes) else name,
        utilization=nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        power_watts=watts,
    )
