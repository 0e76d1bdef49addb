"""The audit's answer in a sentence that needs no other knowledge, and the notes that belong to it."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.audit.compare import Findings, promise_of
from localspec.audit.records import Comparison, Divergence, Verdict
from localspec.bench.records import Configuration

_MARGINS_SHOWN = 3


def verdict_of(
    findings: Findings, configurations: Sequence[Configuration], temperatures: Sequence[float]
) -> Verdict:
    """Whether the promises were kept.

    Args:
        findings: what was compared.
        configurations: what was to be compared.
        temperatures: at which ones.
    """
    promised = [one for one in findings.comparisons if one.promise == "text"]
    parted = [one.divergence for one in promised if one.divergence is not None]
    explained = [one for one in parted if one.explained]
    faults = [one for one in promised if one.divergence is not None and not one.divergence.explained]
    return Verdict(
        same_answer=not faults if promised else None,
        compared=len(promised),
        identical=len(promised) - len(parted),
        explained=len(explained),
        sentence=_sentence(findings, promised, explained, faults),
        notes=tuple(_notes(findings, configurations, temperatures)),
    )


def _sentence(
    findings: Findings,
    promised: Sequence[Comparison],
    explained: Sequence[Divergence],
    faults: Sequence[Comparison],
) -> str:
    count = len(promised)
    if not count:
        return "No promise was tested: none of these rules promises the text of plain decoding."
    if faults:
        first = faults[0]
        asked = findings.plain[first.reply]
        assert first.divergence is not None  # noqa: S101 - only divergences are faults
        ties = f", {len(explained)} part at near-ties" if explained else ""
        same = count - len(faults) - len(explained)
        return (
            f"NOT the same answer: {len(faults)} of {count} replies part{'s' if len(faults) == 1 else ''} "
            f"from plain decoding where rounding does not explain it ({same} are identical{ties}). The "
            f"first: {asked.task} {asked.prompt} with {first.draft} and {first.verify}, token "
            f"{first.divergence.index + 1}: {fault_words(first.divergence)}. Please report it with the "
            "output of --json."
        )
    if not explained:
        whole = "the reply is" if count == 1 else f"all {count} replies are"
        return f"Same answer: {whole} identical token for token."
    same = count - len(explained)
    return (
        f"Same answer: {same} of {count} replies {'is' if same == 1 else 'are'} identical token for token; "
        f"{_ties(explained)} (noise of this model up to {findings.noise.largest_bound:.2f})."
    )


def _ties(explained: Sequence[Divergence]) -> str:
    """What the explained divergences have in common: "2 part at near-ties ... (margins 0.03 and 0.11)"."""
    ties = sorted(abs(one.margin) for one in explained if one.cause == "near-tie" and one.margin is not None)
    borders = len(explained) - len(ties)
    said = []
    if ties:
        if len(ties) == 1:
            margins, parts = f"margin {ties[0]:.2f}", "1 parts at a near-tie"
        else:
            parts = f"{len(ties)} part at near-ties"
            shown = [f"{margin:.2f}" for margin in ties]
            few = len(ties) <= _MARGINS_SHOWN
            margins = (
                f"margins {', '.join(shown[:-1])} and {shown[-1]}" if few else f"margins up to {shown[-1]}"
            )
        said.append(f"{parts} that the rounding of wider passes decides, {margins}")
    if borders:
        parts = "1 parts" if borders == 1 else f"{borders} part"
        said.append(f"{parts} where rounding moved a token across the border of top-k, top-p or min-p")
    return ", and ".join(said)


def fault_words(divergence: Divergence) -> str:
    """Why a divergence is a fault, in words."""
    if divergence.cause == "rule":
        return "the rule let through a token that the model did not draw"
    shift, noise = divergence.shift, divergence.noise
    if divergence.cause == "scores" and shift is not None and noise is not None:
        if shift <= noise:
            return "the model's scores moved there, and not by rounding"
        return f"the model's scores moved by {shift:.2f} and rounding moves them by {noise:.2f} at most"
    return "no pass of the model decided on that token"


def _notes(
    findings: Findings, configurations: Sequence[Configuration], temperatures: Sequence[float]
) -> list[str]:
    rules = dict.fromkeys(configuration.verify for configuration in configurations)
    drafts = dict.fromkeys(configuration.draft for configuration in configurations)
    notes = [
        *(_by_design(rule, temperatures) for rule in rules),
        *(_lossy(rule, findings) for rule in rules),
        *(_idle(draft, findings) for draft in drafts),
    ]
    if not findings.noise.is_rounding:
        notes.append(
            "Passes of several tokens change most scores by more than the margin that the model's first "
            "choice usually has: that is no rounding, and explains nothing."
        )
    limit = findings.noise.largest_bound
    moved = [one for one in findings.comparisons if (one.largest_gap_shift or 0.0) > limit]
    if moved:
        most = max(one.largest_gap_shift or 0.0 for one in moved)
        notes.append(
            f"Beware: in {len(moved)} replies the model's scores moved by up to {most:.2f}, and rounding "
            f"moves them by {limit:.2f} at most, whether or not that changed a token; please report it."
        )
    if findings.noise.repeat_shift:
        notes.append(
            "Plain decoding does not repeat itself to the last bit here: scores moved by up to "
            f"{findings.noise.repeat_shift:.2g} when the same reply was decoded again."
        )
    return [note for note in notes if note]


def _by_design(rule: str, temperatures: Sequence[float]) -> str:
    """Of a rule that keeps the distribution and not the text of a seed."""
    skipped = [t for t in temperatures if promise_of(rule, t) == "distribution"]
    if not skipped:
        return ""
    rest = (
        "so only greedy replies were compared"
        if 0 in temperatures
        else "so nothing was compared; --temperature 0 does"
    )
    return (
        f"{rule}: at temperature {' and '.join(f'{t:g}' for t in skipped)} the text may differ by design. "
        f"The rule keeps the distribution of the model's replies, not the draws of a seed, {rest}."
    )


def _lossy(rule: str, findings: Findings) -> str:
    found = [one for one in findings.comparisons if one.verify == rule and one.promise == "lossy"]
    if not found:
        return ""
    same = sum(one.identical for one in found)
    return (
        f"{rule} is lossy: it gives up exactness for speed and promises neither text nor distribution. "
        f"{same} of {len(found)} replies are as plain decoding's."
    )


def _idle(draft: str, findings: Findings) -> str:
    """Of a drafter that proposed nothing, so that its replies prove nothing."""
    runs = [one for one in findings.comparisons if one.draft == draft]
    idle = sum(one.drafted == 0 for one in runs)
    if not idle or draft == "none":
        return ""
    if idle == len(runs):
        return f"{draft} drafted nothing at all: speculation was not put to the test."
    return f"{draft} drafted nothing in {idle} of {len(runs)} replies: they are plain decoding."
