"""What `localspec doctor` reports: facts are gathered first, the findings are functions of those alone."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from localspec import __version__
from localspec.diagnosis.facts import (
    Machine,
    installed_version,
    look_at_machine,
    look_at_place,
    look_at_places,
    look_at_terminal,
)
from localspec.diagnosis.findings import Finding, machine_findings, place_findings, terminal_findings
from localspec.errors import LocalspecError
from localspec.models.disk import readable_size

__all__ = ["Finding", "Report", "examine"]


@dataclass(frozen=True, slots=True)
class Report:
    """Facts by section, and the findings, worst first."""

    sections: dict[str, dict[str, Any]]
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: a key a section, and "findings" as a list of {"level", "text"}."""
        sections = {title.lower(): facts for title, facts in self.sections.items()}
        return {**sections, "findings": [asdict(finding) for finding in self.findings]}


def examine() -> Report:
    """Look at everything; never raises for a broken installation, but reports it."""
    machine, terminal, places = look_at_machine(), look_at_terminal(), look_at_places()
    models, model_findings = _models()
    findings = [
        *machine_findings(machine),
        *terminal_findings(terminal),
        *place_findings(places),
        *model_findings,
    ]
    order = {"error": 0, "slow": 1, "note": 2}
    return Report(
        sections={
            "Versions": _versions(machine),
            "Compute": _compute(machine),
            "Places": {name: str(place.path) for name, place in places.items()},
            "Models": models,
            "Terminal": {
                "interactive": terminal.interactive,
                "kind": terminal.kind,
                "size": f"{terminal.columns}x{terminal.rows}",
                "colors": terminal.colors,
                "unicode": terminal.unicode,
            },
        },
        findings=tuple(sorted(findings, key=lambda finding: order[finding.level])),
    )


def _models() -> tuple[dict[str, Any], list[Finding]]:
    from localspec.models import registry, store

    try:
        known = registry.entries()
    except LocalspecError as error:
        return {}, [Finding("error", str(error))]
    here = [entry.name for entry in known.values() if store.fetched(entry)]
    default = known.get(registry.DEFAULT_MODEL)
    findings = []
    if default is not None and default.name not in here:
        size = f" ({readable_size(default.size)})" if default.size else ""
        findings.append(
            Finding("note", f"The default model {default.name}{size} is fetched by the first chat.")
        )
    place = look_at_place(store.models_dir())
    facts = {"known": len(known), "fetched": here, "folder": str(place.path)}
    if not place.problem:
        facts["free_space"] = readable_size(place.free_bytes)
    return facts, findings


def _versions(machine: Machine) -> dict[str, Any]:
    from localspec.runtime import devices

    return {
        "localspec": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "llama-cpp-python": installed_version("llama-cpp-python"),
        "llama.cpp": None if machine.library_error else devices.llama_version(),
        "textual": installed_version("textual"),
        "huggingface-hub": installed_version("huggingface-hub"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _compute(machine: Machine) -> dict[str, Any]:
    from localspec.runtime import devices

    facts: dict[str, Any] = {"backend": machine.backend}
    for device in machine.devices:
        memory = f"{readable_size(device.free_bytes)} of {readable_size(device.total_bytes)} free"
        # The CPU's memory is the system's, shown below; ggml calls all of it free.
        told = f", {memory}" if device.total_bytes and device.kind != "cpu" else ""
        facts[device.name] = f"{device.description} ({device.backend}, {device.kind}){told}"
    for number, gpu in enumerate(devices.gpu_activity()):
        power = f", {gpu.power_watts:.0f} W" if gpu.power_watts is not None else ""
        facts[f"activity {number}"] = f"{gpu.name}: {gpu.utilization} % busy{power} (nvml)"
    facts["cores"] = machine.cores
    facts["memory"] = f"{readable_size(machine.memory_free)} of {readable_size(machine.memory_total)} free"
    facts["built with"] = [name for name, value in machine.features.items() if value == "1"]
    return facts
