"""How fast memory and models are here: bandwidths measured now, passes as chats have measured them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.diagnosis import probe
from localspec.diagnosis.facts import Machine
from localspec.diagnosis.findings import ModelSpeed
from localspec.errors import LocalspecError
from localspec.runtime import survey
from localspec.runtime.devices import Device

_LARGEST_FILE = 200_000
_SHARE_OF_GPU = 0.85
"""Of a GPU's memory that weights may take; the rest is cache and buffers."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast models are.

    Attributes:
        models: those that are here and of which anything is known, the present one first.
        problem: why passes could not be measured, "" if nothing failed.
    """

    models: tuple[ModelSpeed, ...] = ()
    problem: str = ""


def look_at_bandwidths(
    machine: Machine, on_progress: Callable[[str], None] = lambda _what: None
) -> tuple[float | None, dict[str, float]]:
    """Bytes a second of copying in the system's memory, and by name in that of GPUs; takes some seconds."""
    on_progress("measuring the memory's bandwidth")
    memory, gpus = probe.bandwidth(), dict[str, float]()
    for gpu in machine.gpus:
        on_progress(f"measuring the bandwidth of {gpu.name}")
        measured = probe.bandwidth(gpu.name)
        if measured is not None:
            gpus[gpu.name] = measured
    return memory, gpus


def look_at_passes(
    machine: Machine,
    version: str | None,
    files: Mapping[str, Path],
    memory: float | None,
    gpus: Mapping[str, float],
    *,
    measure: bool = True,
    on_progress: Callable[[str], None] = lambda _what: None,
) -> Speed:
    """What passes of models cost, as chats have measured it, and what their memory traffic allows.

    Args:
        machine: the facts.
        version: of llama.cpp; None where it cannot be loaded.
        files: of models by name, the present one first.
        memory: see `look_at_bandwidths`.
        gpus: likewise.
        measure: whether passes of the present model may be measured where no model's were, for some seconds.
        on_progress: called with what is measured.
    """
    if version is None:
        return Speed()
    known = calibrated(files, version, machine.devices)
    source, problem = dict.fromkeys(known, "calibration"), ""
    if files and not known and measure:
        name, path = next(iter(files.items()))
        on_progress(f"measuring passes of {name}")
        try:
            known[name], source[name] = probe.pass_times(path), "doctor"
        except LocalspecError as error:
            problem = f"Passes of {name} cannot be measured: {error}"
    present = next(iter(files), None)
    names = [name for name in files if name in known or name == present]
    speeds = [
        _model_speed(name, files[name], known.get(name, {}), source.get(name, ""), machine, memory, gpus)
        for name in names
    ]
    return Speed(tuple(speed for speed in speeds if speed), problem)


def calibrated(
    files: Mapping[str, Path], version: str, devices: tuple[Device, ...]
) -> dict[str, dict[int, float]]:
    """T(n) in milliseconds by name, of models that chats on this build and these devices have measured."""
    from localspec.models.hashes import identity

    present = ", ".join(f"{each.name} {each.description}" for each in devices)
    found = {}
    stored = list(_stored(paths.cache_dir() / "calibration"))
    for name, path in files.items() if stored else ():
        try:
            mine = identity(path)
        except LocalspecError:
            continue
        for key, points in stored:
            if (key.get("file"), key.get("llama.cpp"), key.get("devices")) == (mine, version, present):
                found[name] = {width: seconds * 1e3 for width, seconds in points.items()}
                break
    return found


def expected_ms(
    weight_bytes: int,
    gpus: tuple[Device, ...],
    memory: float | None,
    bandwidths: Mapping[str, float],
) -> float | None:
    """Milliseconds that reading weights takes: on the GPUs as far as they hold them, the rest in RAM."""
    left, seconds = float(weight_bytes), 0.0
    for gpu in gpus:
        speed = bandwidths.get(gpu.name)
        if speed:
            here = min(left, gpu.total_bytes * _SHARE_OF_GPU if gpu.total_bytes else left)
            left, seconds = left - here, seconds + here / speed
    if left > 0:
        if not memory:
            return None
        seconds += left / memory
    return seconds * 1e3


def _stored(folder: Path) -> Iterator[tuple[dict[str, Any], dict[int, float]]]:
    """Keys and points (in seconds) of the calibration files that can be read, newest first."""
    from localspec.calibration.store import CurveStore

    try:
        paths_found = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return
    for path in paths_found:
        try:
            with path.open("rb") as file:
                key = json.loads(file.read(_LARGEST_FILE))["key"]
            store = CurveStore(folder, key)
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            continue
        # The name is a digest of the key: a file under another name is no calibration.
        buckets = store.load() if store.path == path else {}
        if isinstance(key, dict) and buckets:
            yield key, dict(buckets[min(buckets)].points)


def _model_speed(
    name: str,
    path: Path,
    points: Mapping[int, float],
    source: str,
    machine: Machine,
    memory: float | None,
    gpus: Mapping[str, float],
) -> ModelSpeed | None:
    from localspec.models.gguf import read_header
    from localspec.models.passes import weight_bytes_of_a_pass

    try:
        header = read_header(path)
        weights = weight_bytes_of_a_pass(header)
    except LocalspecError:
        return None
    if memory and header.parameters:
        memory = survey.usable_bandwidth(memory, machine.cores, header.tensor_bytes / header.parameters)
    return ModelSpeed(
        name=name,
        weight_bytes=weights,
        pass_ms=points.get(1),
        expected_ms=expected_ms(weights, machine.gpus, memory, gpus) if weights else None,
        widths=dict(points) if len(points) > 1 else None,
        measured=source,
    )
