"""What a bench says of the machine it ran on: enough to compare, nothing that names a person or a place."""

from __future__ import annotations

import datetime as dt
import platform
from typing import Any

import psutil

from localspec import __version__
from localspec.bench.energy import EnergyMeter
from localspec.diagnosis.facts import installed_version, look_at_machine
from localspec.errors import LocalspecError
from localspec.runtime.devices import llama_version


def machine_facts(threads: int) -> dict[str, Any]:
    """Plain values for a bench's JSON; what this system does not tell is None.

    Args:
        threads: CPU threads that the bench uses.

    Returns:
        `os`, `architecture`, `cpu`, `physical_cores` and `logical_cores` of the machine, `usable_cores` of
        this process, `threads`, `memory_bytes`, `devices` (a list of `name`, `description`, `backend`,
        `kind`, `memory_bytes`), `backend`, `llama_cpp`, `llama_cpp_python`, `build` (flags of the libraries),
        `localspec`, `python`, `on_battery`, `emulated`, `energy` (who counts it), `date` (UTC). No name of a
        host or a user, no path.
    """
    machine = look_at_machine()
    try:
        version = llama_version()
    except LocalspecError:
        version = None
    return {
        "os": platform.platform(terse=True),
        "architecture": platform.machine(),
        "cpu": next((each.description for each in machine.devices if each.kind == "cpu"), None),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": machine.cores,
        "threads": threads,
        "memory_bytes": machine.memory_total,
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "backend": device.backend,
                "kind": device.kind,
                "memory_bytes": device.total_bytes,
            }
            for device in machine.devices
        ],
        "backend": machine.backend,
        "llama_cpp": version,
        "llama_cpp_python": installed_version("llama-cpp-python"),
        "build": dict(machine.features),
        "localspec": __version__,
        "python": platform.python_version(),
        "on_battery": machine.on_battery,
        "emulated": machine.emulated,
        "energy": EnergyMeter().source,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
