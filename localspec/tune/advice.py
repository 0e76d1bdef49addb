"""From trials to advice: which settings to take, and what to know about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.models.disk import readable_size
from localspec.tune.contest import LEAST_ROUNDS
from localspec.tune.fidelity import in_words
from localspec.tune.records import SAFE, Advice, Trial, Tuning, Value
from localspec.tune.verdict import beats, unsafe_winner, wins

ENOUGH_KINDS = 3
"""Kinds of prompts that must have been asked, where there are so many, before drafts are advised."""
KEEP = "Keep what you have: nothing that was tried is faster by more than the noise."
TOO_SHORT = (
    "Nothing could be tried often enough to be judged in this time: keep what you have, or give --minutes a "
    "larger number."
)


def advise(tuning: Tuning, loss: str) -> Advice:
    """What to do, from all that was tried.

    Args:
        tuning: with its trials.
        loss: what copies of this file can be at best, see `Copies.loss`.
    """
    drafts, sentences = tuning.of("draft"), []
    draft, batch, engine = wins(drafts), wins(tuning.of("batch")), wins(tuning.of("engine"))
    enough = len(tuning.prompts) >= min(ENOUGH_KINDS, tuning.kinds)
    if draft is not None and not enough:
        sentences.append(
            f"{draft.name} is faster on {', '.join(tuning.prompts)}, which is too little to advise it; give "
            "--minutes a larger number."
        )
    # Replies tell more than passes do: where there are any, the engine's settings stand or fall with them.
    chosen = draft if enough and any(trial.speed is not None for trial in drafts) else engine
    settings: dict[str, Value] = {**(chosen.settings if chosen else {}), **(batch.settings if batch else {})}
    if not settings:
        judged = any(trial.rounds >= LEAST_ROUNDS and not trial.present for trial in tuning.trials)
        sentences.append(KEEP if judged else TOO_SHORT)
    if chosen is not None:
        what = "Replies come" if chosen.stage == "draft" else "Passes of the model come"
        sentences.append(f"{what} {_times(chosen)} as fast as with your present settings: {chosen.name}.")
    if batch is not None:
        sentences.append(f"Prompts are read {_times(batch)} as fast: {batch.name}.")
    sentences += _warnings(drafts, chosen, settings)
    file_type, said = _copies(tuning, chosen, loss)
    return Advice(
        settings=settings,
        speed=chosen.speed if chosen is not None and chosen.stage == "draft" else None,
        within=chosen.within if chosen is not None and chosen.stage == "draft" else None,
        sentences=(*sentences, *said),
        file_type=file_type,
    )


def _warnings(drafts: Sequence[Trial], chosen: Trial | None, settings: Mapping[str, Value]) -> list[str]:
    """What to know of the chosen settings, of those that were left out, and of the present ones."""
    said = []
    if chosen is not None and chosen.doubtful:
        said.append(
            f"On {_kinds(chosen.doubtful)} they seem to be below {SAFE:g} of plain decoding, which may be "
            "noise."
        )
    if settings.get("engine.threads") is not None:
        said.append("A fixed number of threads no longer gives way to other programs.")
    left = unsafe_winner(drafts, chosen)
    if left is not None:
        said.append(
            f"{left.name} is faster over all ({_times(left)}), but not advised: against plain decoding it "
            f"slows down {_kinds(left.slower)}."
        )
    present = next((trial for trial in drafts if trial.present), None)
    if present is not None and present.slower:
        said.append(f"Your present settings slow down {_kinds(present.slower)} against plain decoding.")
    return said


def _copies(tuning: Tuning, chosen: Trial | None, loss: str) -> tuple[str | None, list[str]]:
    """The type of the copy that is worth its price, and sentences about all that were measured."""
    known = [trial for trial in tuning.of("file") if trial.fidelity is not None]
    tried = [trial for trial in known if trial.speed is not None]
    if not known:
        return None, []
    said = [loss] if loss else []
    for kind, trial in {_type(trial): trial for trial in known}.items():
        if trial.fidelity is not None and trial.bytes is not None:
            said.append(
                f"{kind}: {readable_size(trial.bytes)}; {in_words(trial.fidelity)} (divergence "
                f"{trial.fidelity.divergence:.4f})."
            )
    least = chosen.speed if chosen is not None and chosen.speed is not None else 1.0
    faster = [trial for trial in tried if beats(trial, least) and not trial.slower and trial.fidelity]
    best_file = max(faster, key=lambda trial: trial.speed or 0.0, default=None)
    if best_file is None and tried:
        said.append("None of these copies is faster than the file itself by more than the noise.")
    if best_file is None:
        return None, said
    said.append(
        f"Faster still: {best_file.name}, {_times(best_file)} as fast as your present settings. It is "
        "another file, so replies change; if you want it, make it with `localspec models quantize "
        f"{tuning.model} {_type(best_file)}`."
    )
    return _type(best_file), said


def _type(trial: Trial) -> str:
    return trial.name.partition(",")[0]


def _times(trial: Trial) -> str:
    within = "" if trial.within is None else f" (within {trial.within:.0%})"
    return f"{trial.speed or 0.0:.2f} times{within}"


def _kinds(kinds: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} ({speed:.2f})" for kind, speed in sorted(kinds.items(), key=lambda k: k[1]))
