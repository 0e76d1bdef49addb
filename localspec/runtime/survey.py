"""What this machine has for models: memory in total, and how fast it is.

Found out in a process of its own, so that no driver's memory, crash or hang reaches the one that asks, and
kept in the cache folder until something changes that it depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.models.choose import Capacity

_LONGEST_S = 20.0
"""Opening GPUs for the first time takes some drivers seconds; one that hangs would take for ever."""
_KEPT_S = 7 * 86400.0
"""What changes without a sign is seen after this."""
_MEASURED_BYTES = 192_000_000
"""Memory that measuring the bandwidth takes: beyond most caches, and over in a moment."""
_CORE_WEIGHTS_S = 16e9
"""Weights a second that a core works through: few cores cannot make use of a fast memory."""
_USUAL_BYTES = 4.9 / 8
"""Of a weight in the quantization that most models come in."""
_VERSION = 1
_CONTAINER_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_ENVIRONMENT = ("CUDA_", "HIP_", "ROCR_", "GGML_", "ONEAPI_", "SYCL_", "LLAMA_")


def capacity(*, keep: bool = True) -> Capacity:
    """What this machine has; never fails: without a usable llama.cpp it is the system's memory alone.

    Takes about a second at the first time, and next to nothing then, unless that is not to be kept.
    """
    file, key = paths.cache_dir() / "survey.json", _key()
    kept = _read(file, key)
    if kept is not None:
        return kept
    found = _ask()
    if found is None:
        # Not kept: the next one may have a llama.cpp that works.
        return Capacity(ram=system_memory())
    if keep:
        _write(file, key, found)
    return found


def usable_bandwidth(copied: float, cores: int, bytes_per_weight: float = _USUAL_BYTES) -> float:
    """Bytes a second that so many cores can work through, of those that copying moves in memory."""
    return min(copied, _CORE_WEIGHTS_S * bytes_per_weight * cores)


def system_memory() -> int:
    """Bytes of memory in total, or what a container may take of it."""
    import psutil

    limits = [_text(Path("/sys/fs/cgroup", name)).strip() for name in _CONTAINER_LIMITS]
    return min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdecimal())])


def look() -> Iterator[dict[str, Any]]:
    """Fields of `Capacity` as they become known, those that matter most first; opens the GPUs."""
    from localspec.runtime.bandwidth import measured_bandwidth
    from localspec.runtime.cores import physical_cores
    from localspec.runtime.devices import silence, used_gpus

    silence()
    gpus = used_gpus()
    yield {
        "ram": system_memory(),
        "vram": sum(device.total_bytes for device in gpus),
        "gpus": len(gpus),
        "shared": bool(gpus) and (sys.platform == "darwin" or gpus[0].kind == "igpu"),
    }
    copied = measured_bandwidth(most=_MEASURED_BYTES, busy=True)
    yield {"ram_bandwidth": copied and usable_bandwidth(copied, physical_cores())}
    speeds = [measured_bandwidth(device.name, most=_MEASURED_BYTES) for device in gpus]
    yield {"vram_bandwidth": min((speed for speed in speeds if speed is not None), default=None)}


def _ask() -> Capacity | None:
    """What another process finds out; None if it comes to nothing."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "localspec.runtime.survey"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    with process:
        try:
            output, _ = process.communicate(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    values: dict[str, Any] = {}
    for line in output.splitlines():
        try:
            values |= json.loads(line)
        except (ValueError, TypeError, RecursionError):
            # Some library's own words.
            continue
    return _capacity(values)


def _capacity(values: Any) -> Capacity | None:
    """A capacity of plain values; None where they are not those of one."""
    kinds = {"ram": int, "vram": int, "gpus": int, "shared": bool}
    if not isinstance(values, dict) or "ram" not in values:
        return None
    for name, value in values.items():
        optional = name.endswith("_bandwidth") and (value is None or isinstance(value, (int, float)))
        if not optional and not (name in kinds and isinstance(value, kinds[name])):
            return None
        if value is not None and value < 0:
            return None
    return Capacity(**values) if values.keys() <= {item.name for item in fields(Capacity)} else None


def _key() -> str:
    """Stands for everything cheap to see on which the answer depends."""
    from localspec.runtime.cores import physical_cores

    facts: list[object] = [_VERSION, sys.platform, system_memory(), physical_cores()]
    facts += sorted(item for item in os.environ.items() if item[0].startswith(_ENVIRONMENT))
    facts += _libraries()
    for pattern in ("class/drm/card*/device/device", "class/kfd/kfd/topology/nodes/*/name"):
        facts += [(str(file), _text(file)) for file in sorted(Path("/sys").glob(pattern))]
    facts.append(_text(Path("/proc/driver/nvidia/version")))
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _libraries() -> list[object]:
    """llama.cpp's libraries: their names, sizes and times."""
    from localspec.errors import EngineError
    from localspec.runtime.devices import library_folder

    try:
        files = sorted(library_folder().iterdir())
        return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except (EngineError, OSError):
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read(file: Path, key: str) -> Capacity | None:
    """What was found out under `key` and is not old; None if there is nothing."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["key"] != key or not 0 <= time.time() - data["time"] < _KEPT_S:
            return None
        return _capacity(data["capacity"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _write(file: Path, key: str, found: Capacity) -> None:
    """Keep it; where that cannot be, the next one asks again."""
    data = {"key": key, "time": time.time(), "capacity": asdict(found)}
    partial = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(data), encoding="utf-8")
        partial.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


if __name__ == "__main__":
    for known in look():
        sys.stdout.write(f"{json.dumps(known)}\n")
        sys.stdout.flush()
