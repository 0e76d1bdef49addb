"""`localspec doctor`: what this machine offers, and what is slow or broken and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from localspec.diagnosis import Report

_MARKS = {"error": "x", "slow": "!", "note": "-"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the installation: versions, devices and memory, terminal, and what is slow and why.

    Exits with 1 only if something keeps localspec from working.
    """
    from localspec.diagnosis import examine

    report = examine()
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(report)
    if any(finding.level == "error" for finding in report.findings):
        raise typer.Exit(1)


def _print(report: Report) -> None:
    for title, facts in report.sections.items():
        typer.secho(title, bold=True)
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            typer.echo(f"  {name.replace('_', ' '):<{width}}  {_readable(value)}")
        typer.echo()
    typer.secho("Findings", bold=True)
    if not report.findings:
        typer.echo("  Nothing is in the way.")
    for finding in report.findings:
        typer.echo(f"  {_MARKS[finding.level]} {finding.text}")


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "-"
    return "-" if value is None else str(value)
