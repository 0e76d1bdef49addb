"""What `localspec doctor` reports: facts are gathered first, the findings are functions of those alone.

`Report.as_dict` has these keys, and versions only add to them; sizes are bytes, and what was not measured or
is not known is null:

    change_first  one sentence: what to change first, with its likely gain; null where nothing would help
    findings      [{level: "error" | "slow" | "note", text, gain}], worst first
    versions      localspec, python, llama-cpp-python, llama.cpp, textual, huggingface-hub, system
    compute       backend, devices [{name, description, backend, kind, free_bytes, total_bytes}], activity
                  [{name, utilization, power_watts}], cores, all_cores, memory_free_bytes, memory_total_bytes,
                  built_with [names], on_battery, emulated, container, wsl
    graphics      makers, nvidia [names], nvidia_driver, cuda, rocm, vulkan, tools [names of compilers],
                  could_be {backend, reason, needs, command, pip, gain}
    speed         memory_bytes_per_second, gpus_bytes_per_second {name: number}, models [{name, weight_bytes,
                  pass_ms, tokens_per_second, expected_tokens_per_second, widths_ms {n: ms}, measured}],
                  problem
    places        config, data, cache, log: paths
    kept          {name: {path, size_bytes, removed_by}}
    models        known (a number), present (what a chat starts with), best {name, reason}, fetched [names],
                  folder, free_bytes
    terminal      interactive, kind, program, within, remote, columns, rows, colors, unicode, synchronized,
                  kitty_keyboard, clipboard_program, passes_copies, clipboard
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from localspec import __version__
from localspec.diagnosis.backends import Upgrade, better_backend
from localspec.diagnosis.caches import look_at_kept
from localspec.diagnosis.facts import (
    Library,
    Machine,
    installed_version,
    look_at_machine,
    look_at_places,
)
from localspec.diagnosis.findings import (
    Finding,
    change_first,
    machine_findings,
    place_findings,
    speed_findings,
)
from localspec.diagnosis.terminal import Terminal, look_at_terminal, terminal_findings

__all__ = ["Finding", "Report", "examine"]

_ORDER = {"error": 0, "slow": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Report:
    """Facts by section, the findings, worst first, and what to change first, where anything helps."""

    sections: dict[str, dict[str, Any]]
    findings: tuple[Finding, ...]
    change_first: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the keys that this module describes."""
        return {
            "change_first": self.change_first,
            "findings": [asdict(finding) for finding in self.findings],
            **self.sections,
        }


def examine(*, quick: bool = False, on_progress: Callable[[str], None] = lambda _what: None) -> Report:
    """Look at everything; never raises for a broken installation, but reports it.

    Args:
        quick: leave out what has to be measured, which takes some seconds.
        on_progress: called with what is done next, in a few words.
    """
    # Not above: what runs as a program must not be imported with its package.
    from localspec.diagnosis import probe
    from localspec.diagnosis.inventory import look_at_models
    from localspec.diagnosis.speed import look_at_bandwidths, look_at_passes
    from localspec.runtime import survey

    on_progress("looking at llama.cpp")
    library = probe.library()
    machine, places = look_at_machine(library), look_at_places()
    memory, gpus = (None, {}) if quick else look_at_bandwidths(machine, on_progress)
    models = look_at_models(survey.capacity(keep=False))
    speed = look_at_passes(
        machine, library.version, models.files, memory, gpus, measure=not quick, on_progress=on_progress
    )
    terminal = look_at_terminal()
    findings = [
        *machine_findings(machine, memory),
        *speed_findings(speed.models),
        *terminal_findings(terminal),
        *place_findings(places),
        *models.findings,
        *([Finding("note", speed.problem)] if speed.problem else []),
    ]
    findings.sort(key=lambda finding: (_ORDER[finding.level], -finding.gain))
    upgrade = None if machine.library_error else better_backend(machine, memory)
    return Report(
        sections={
            "versions": _versions(library),
            "compute": _compute(machine),
            "graphics": _graphics(machine, upgrade),
            "speed": {
                "memory_bytes_per_second": memory,
                "gpus_bytes_per_second": gpus,
                "models": [
                    {
                        "name": each.name,
                        "weight_bytes": each.weight_bytes,
                        "pass_ms": each.pass_ms,
                        "tokens_per_second": 1e3 / each.pass_ms if each.pass_ms else None,
                        "expected_tokens_per_second": 1e3 / each.expected_ms if each.expected_ms else None,
                        "widths_ms": dict(each.widths or {}),
                        "measured": each.measured,
                    }
                    for each in speed.models
                ],
                "problem": speed.problem or None,
            },
            "places": {name: str(place.path) for name, place in places.items()},
            "kept": {
                each.name: {
                    "path": str(each.path),
                    "size_bytes": each.size_bytes,
                    "removed_by": each.removed_by,
                }
                for each in look_at_kept()
            },
            "models": models.facts,
            "terminal": _terminal(terminal),
        },
        findings=tuple(findings),
        change_first=change_first(findings),
    )


def _versions(library: Library) -> dict[str, Any]:
    return {
        "localspec": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "llama-cpp-python": installed_version("llama-cpp-python"),
        "llama.cpp": library.version,
        "textual": installed_version("textual"),
        "huggingface-hub": installed_version("huggingface-hub"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _compute(machine: Machine) -> dict[str, Any]:
    from localspec.runtime.devices import gpu_activity

    return {
        "backend": machine.backend,
        "devices": [asdict(device) for device in machine.devices],
        "activity": [asdict(gpu) for gpu in gpu_activity()],
        "cores": machine.cores,
        "all_cores": machine.all_cores,
        "memory_free_bytes": machine.memory_free,
        "memory_total_bytes": machine.memory_total,
        "built_with": [name for name, value in machine.features.items() if value == "1"],
        "on_battery": machine.on_battery,
        "emulated": machine.emulated,
        "container": machine.container or None,
        "wsl": machine.wsl,
    }


def _graphics(machine: Machine, upgrade: Upgrade | None) -> dict[str, Any]:
    graphics = machine.graphics
    return {
        "makers": list(graphics.makers),
        "nvidia": None if graphics.nvidia is None else list(graphics.nvidia),
        "nvidia_driver": graphics.nvidia_driver or None,
        "cuda": graphics.cuda or None,
        "rocm": graphics.rocm or None,
        "vulkan": graphics.vulkan,
        "tools": sorted(graphics.tools),
        "could_be": asdict(upgrade) if upgrade else None,
    }


def _terminal(terminal: Terminal) -> dict[str, Any]:
    return {**asdict(terminal), "clipboard": terminal.clipboard}
