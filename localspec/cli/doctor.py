"""`localspec doctor`: what this machine offers, and what is slow or broken and why."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from localspec.diagnosis import Report

_MARKS = {"error": "x", "slow": "!", "note": "-"}
_WIDTH = 20
"""Of the column of names."""
_LEAST_ROOM = 20
_COMMANDS = ("could be", "or with pip")


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out measurements of some seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the installation: devices, speed, terminal, disk, what is slow and why, and what to change first.

    Exits with 1 only if something keeps localspec from working.
    """
    from localspec.diagnosis import examine

    with _progress() as on_progress:
        report = examine(quick=quick, on_progress=on_progress)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        for line in _lines(report):
            typer.echo(line)
    if any(finding.level == "error" for finding in report.findings):
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is done, where somebody watches; gone at the end."""
    if not sys.stderr.isatty():
        yield lambda _what: None
        return

    def show(what: str) -> None:
        sys.stderr.write(f"\r\x1b[K{what} ...")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _lines(report: Report) -> Iterator[str]:
    facts = report.sections
    sections: tuple[tuple[str, Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]]], ...] = (
        ("versions", _plain),
        ("compute", _compute),
        ("graphics", _graphics),
        ("speed", _speed),
        ("models", _models),
        ("places", _plain),
        ("kept", _kept),
        ("terminal", _terminal),
    )
    for key, rows in sections:
        yield typer.style(key.capitalize(), bold=True)
        for name, text in rows(facts[key]):
            parts = [text] if name in _COMMANDS else _parts(text, _WIDTH + 4)
            yield f"  {name:<{_WIDTH}}  {parts[0]}"
            yield from (" " * (_WIDTH + 4) + part for part in parts[1:])
        yield ""
    yield typer.style("Findings", bold=True)
    if report.change_first:
        yield f"  Change first: {report.change_first}"
        yield ""
    elif not report.findings:
        yield "  Nothing is in the way."
    for finding in report.findings:
        first, *others = _parts(finding.text, 4)
        yield f"  {_MARKS[finding.level]} {first}"
        yield from (f"    {part}" for part in others)


def _parts(text: str, indent: int) -> list[str]:
    """A text in lines for the terminal; whole where nobody watches, or a command is in it, to be copied."""
    from localspec.cli.models_output import wrapped

    room = shutil.get_terminal_size().columns - indent
    return wrapped(text, room) if sys.stdout.isatty() and room >= _LEAST_ROOM and "`" not in text else [text]


def _plain(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        yield (
            name.removesuffix("_bytes").replace("_", " "),
            _size(value) if name.endswith("_bytes") else _word(value),
        )


def _compute(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "backend", facts["backend"]
    for device in facts["devices"]:
        memory = ""
        # The CPU's memory is the system's, shown below; ggml calls all of it free.
        if device["total_bytes"] and device["kind"] != "cpu":
            memory = f", {_size(device['free_bytes'])} of {_size(device['total_bytes'])} free"
        yield device["name"], f"{device['description']} ({device['backend']}, {device['kind']}){memory}"
    for gpu in facts["activity"]:
        power = f", {gpu['power_watts']:.0f} W" if gpu["power_watts"] is not None else ""
        yield "activity", f"{gpu['name']}: {gpu['utilization']} % busy{power} (nvml)"
    others = f" of {facts['all_cores']}" if facts["all_cores"] > facts["cores"] else ""
    yield "cores", f"{facts['cores']}{others}"
    yield "memory", f"{_size(facts['memory_free_bytes'])} of {_size(facts['memory_total_bytes'])} free"
    yield "built with", _word(facts["built_with"])
    where = [word for word in (facts["container"], "WSL" if facts["wsl"] else None) if word]
    if where:
        yield "within", ", ".join(where)


def _graphics(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cards = facts["nvidia"] or facts["makers"]
    yield "GPUs", ", ".join(cards) if cards else "none that the system tells of"
    if facts["nvidia_driver"]:
        yield "NVIDIA driver", f"{facts['nvidia_driver']}, runs CUDA up to {facts['cuda'] or '?'}"
    if facts["rocm"]:
        yield "ROCm", facts["rocm"]
    yield "Vulkan driver", _word(facts["vulkan"])
    yield "compilers", _word(facts["tools"])
    could = facts["could_be"]
    if could:
        yield "could be", f"{could['backend']}: {could['command']}"
        if could["pip"] != could["command"]:
            yield "or with pip", could["pip"]


def _speed(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory = facts["memory_bytes_per_second"]
    yield "memory", f"{_size(memory)}/s, by copying" if memory else "not measured"
    for name, bandwidth in facts["gpus_bytes_per_second"].items():
        yield name, f"{_size(bandwidth)}/s, by copying"
    for model in facts["models"]:
        words = ["not measured yet"]
        if model["pass_ms"]:
            words = [
                f"{model['pass_ms']:.1f} ms a pass: {model['tokens_per_second']:.0f} tokens/s without drafts"
            ]
        if model["expected_tokens_per_second"]:
            words.append(f"its memory traffic allows about {model['expected_tokens_per_second']:.0f}")
        yield model["name"], "; ".join(words)
    if not facts["models"]:
        yield "passes", "no model that is here has been measured; a chat does, when it is idle"


def _models(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    best = facts["best"]
    yield from _plain({**facts, "best": f"{best['name']}: {best['reason']}" if best else None})


def _kept(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, each in facts.items():
        if each["size_bytes"]:
            yield name, f"{_size(each['size_bytes'])}, removed by {each['removed_by']}"
    if not any(each["size_bytes"] for each in facts.values()):
        yield "nothing", "localspec keeps nothing on this disk yet"


def _terminal(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "interactive", _word(facts["interactive"])
    name = facts["kind"] or "-"
    for key in ("program", "within"):
        name += f", {facts[key]}" if facts[key] else ""
    yield "kind", name + (", through SSH" if facts["remote"] else "")
    yield "size", f"{facts['columns']}x{facts['rows']}"
    yield "colors", str(facts["colors"])
    yield "unicode", _word(facts["unicode"])
    if facts["interactive"]:
        yield "synchronized", _asked(facts["synchronized"])
        yield "kitty keyboard", _asked(facts["kitty_keyboard"])
        yield "clipboard", facts["clipboard"]


def _asked(value: bool | None) -> str:
    return "not told" if value is None else _word(value)


def _size(count: float | None) -> str:
    from localspec.models.disk import readable_size

    return "-" if count is None else readable_size(count)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "-"
    return "-" if value is None else str(value)
