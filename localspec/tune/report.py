"""What tuning found, for people: within 80 columns, also without colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.bench.pooling import clean
from localspec.bench.report.wording import DASH
from localspec.models.disk import readable_size
from localspec.tune.contest import LEAST_ROUNDS
from localspec.tune.records import Stage, Trial, Tuning, Value

_HEADINGS: dict[Stage, str] = {
    "engine": "Threads and flash attention, by passes over 1 and 9 tokens",
    "batch": "Batch, by reading a prompt",
    "draft": "Drafts, by recorded replies",
    "file": "Other quantizations of the file, by the same replies",
}
_UNTRIED = "untried: "


def print_tuning(tuning: Tuning, console: Console) -> None:
    """Print all that is known."""
    for stage, heading in _HEADINGS.items():
        trials = tuning.of(stage)
        if trials:
            _print_stage(heading, stage, trials, console)
    if any(trial.speed is not None for trial in tuning.trials):
        console.print(
            Text(
                "speed: over the present settings in the same rounds; +/-: how well that is known (95 %), "
                f"a dash where nothing was done twice. It takes {LEAST_ROUNDS} rounds to win."
            )
        )
    for note in tuning.notes:
        console.print(Text(clean(note)))
    console.print()
    if not tuning.complete:
        console.print(Text("Interrupted: this is what was known by then; there is no advice.", style="bold"))
    if tuning.advice is not None:
        for sentence in tuning.advice.sentences:
            console.print(Text(clean(sentence)))
        if tuning.advice.settings:
            console.print()
            console.print(Text("In config.toml:", style="bold"))
            for line in setting_lines(tuning.advice.settings):
                console.print(Text(f"  {line}"))


def setting_lines(settings: dict[str, Value]) -> list[str]:
    """Settings as lines that config.toml understands; what is to be taken out as a comment."""
    return [
        f"# without {key}" if value is None else f"{key} = {_toml(value)}" for key, value in settings.items()
    ]


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        str(value)
        if isinstance(value, int)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _print_stage(heading: str, stage: Stage, trials: Sequence[Trial], console: Console) -> None:
    console.print()
    console.print(Text(heading, style="bold"))
    tried = [trial for trial in trials if trial.speed is not None or trial.fidelity is not None]
    if tried:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("Setting", overflow="fold")
        for title in ("speed", "+/-", "rounds", *_titles(stage)):
            table.add_column(title, justify="right", no_wrap=True)
        for trial in sorted(tried, key=lambda trial: -(trial.speed or 0.0)):
            table.add_row(*(Text(cell) for cell in (clean(trial.name), *_cells(stage, trial))))
        console.print(table)
    for line in _notes(trials):
        console.print(Text(f"  {line}"))


def _titles(stage: Stage) -> tuple[str, ...]:
    return {
        "engine": ("T(1) ms", "T(9) ms"),
        "batch": ("tok/s",),
        "draft": ("of plain", "worst kind"),
        "file": ("of plain", "size", "KL", "same top"),
    }[stage]


def _cells(stage: Stage, trial: Trial) -> tuple[str, ...]:
    common = (
        f"{trial.speed:.2f}x" if trial.speed is not None else DASH,
        _within(trial),
        str(trial.rounds),
    )
    plain = DASH if trial.of_plain is None else f"{trial.of_plain:.2f}x"
    if stage == "engine":
        return (*common, *(f"{trial.pass_ms[n]:.2f}" if n in trial.pass_ms else DASH for n in (1, 9)))
    if stage == "batch":
        return (*common, DASH if trial.tokens_per_second is None else f"{trial.tokens_per_second:.0f}")
    if stage == "draft":
        worst = trial.worst
        return (*common, plain, DASH if worst is None else f"{worst[1]:.2f}x {clean(worst[0])[:16]}")
    near = trial.fidelity
    return (
        *common,
        plain,
        readable_size(trial.bytes) if trial.bytes else DASH,
        DASH if near is None else f"{near.divergence:.4f}",
        DASH if near is None else f"{near.agreement:.1%}",
    )


def _within(trial: Trial) -> str:
    if trial.within is None or trial.present:
        return DASH
    return f"{trial.within:.0%}" if trial.within < 1 else ">99%"


def _notes(trials: Iterable[Trial]) -> list[str]:
    """Notes, each said once; what was not tried comes together."""
    said: dict[str, list[str]] = {}
    for trial in trials:
        if trial.note:
            said.setdefault(clean(trial.note), []).append(clean(trial.name))
    lines = []
    for note, names in said.items():
        if note.startswith(_UNTRIED):
            lines.append(f"Untried ({note.removeprefix(_UNTRIED)}): {'; '.join(names)}")
        else:
            lines.append(f"{'; '.join(names)}: {note}")
    return lines
