"""An audit as text for people, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from localspec.audit.records import Comparison, Divergence, Report
from localspec.audit.verdict import fault_words
from localspec.model_files import draft_label

WIDTH = 80
_DIVERGENCES_SHOWN = 12
_IDS_BEFORE, _IDS_AFTER = 2, 3
_LONGEST_TEXT = 20


def report_text(report: Report) -> str:
    """The whole report: verdict, table, places where replies part, and the noise."""
    blocks = [
        _wrapped(report.verdict.sentence),
        *(_wrapped(note) for note in report.verdict.notes),
        _asked(report),
        _table(report),
        *_divergences(report),
        _noise(report),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _asked(report: Report) -> str:
    prompts = len({(one.task, one.prompt) for one in report.plain})
    temperatures = dict.fromkeys(one.temperature for one in report.plain)
    how = " and ".join(_temperature(one) for one in temperatures)
    threads = "1 thread" if report.threads == 1 else f"{report.threads} threads"
    return _wrapped(
        f"Asked of {report.file} ({report.backend}, {threads}): {prompts} prompts, {how}, seed "
        f"{report.seed}, {report.max_tokens} tokens a reply at most."
    )


def _temperature(value: float) -> str:
    return "greedy" if value == 0 else f"temperature {value:g}"


def _table(report: Report) -> str:
    """A line for every drafter, rule and temperature."""
    groups: dict[tuple[tuple[str, str], str, float], list[Comparison]] = {}
    for one in report.comparisons:
        temperature = report.plain[one.reply].temperature
        # Names that are cut may look alike.
        groups.setdefault(((one.draft, _drafter(one)), one.verify, temperature), []).append(one)
    lines = [("draft", "rule", "temp.", "identical", "near-tie", "fault", "accepted")]
    for ((_, draft), rule, temperature), found in groups.items():
        parted = [one.divergence for one in found if one.divergence is not None]
        lossy = found[0].promise == "lossy"
        drafted = sum(one.drafted for one in found)
        lines.append(
            (
                draft,
                rule,
                f"{temperature:g}",
                f"{sum(one.identical for one in found)}/{len(found)}",
                "-" if lossy else str(sum(bool(one.explained) for one in parted)),
                "lossy" if lossy else str(sum(not one.explained for one in parted)),
                f"{sum(one.accepted for one in found) / drafted:.0%}" if drafted else "-",
            )
        )
    return _aligned(lines, left=2)


def _drafter(one: Comparison) -> str:
    leaves = f"/{one.leaves}" if one.leaves > 1 else ""
    name = _short_name(draft_label(one.draft), 16)
    return one.draft if one.draft == "none" else f"{name} {one.length}{leaves}"


def _rule(one: Comparison) -> str:
    return f"{one.verify} (lossy)" if one.promise == "lossy" else one.verify


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _short_name(text: str, most: int) -> str:
    """`text`, its middle left out where it is longer: files of one model differ at the end."""
    if len(text) <= most:
        return text
    start = (most - 3) // 2
    return f"{text[:start]}...{text[len(text) - (most - 3 - start) :]}"


def _aligned(lines: Sequence[Sequence[str]], left: int) -> str:
    """Columns two spaces apart: the first `left` ones to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# --- where replies part


def _divergences(report: Report) -> list[str]:
    """Faults first, then what rounding explains, then lossy rules."""
    found = [one for one in report.comparisons if one.divergence is not None]
    order = {False: 0, True: 1, None: 2}
    found.sort(key=lambda one: order[one.divergence.explained if one.divergence else None])
    blocks = [_divergence(report, one) for one in found[:_DIVERGENCES_SHOWN]]
    if blocks:
        blocks.insert(0, "Where replies part from plain decoding (margin and noise in logits):")
    if len(found) > _DIVERGENCES_SHOWN:
        blocks.append(f"... and {len(found) - _DIVERGENCES_SHOWN} more; --json has them all.")
    return blocks


def _divergence(report: Report, one: Comparison) -> str:
    plain, divergence = report.plain[one.reply], one.divergence
    assert divergence is not None  # noqa: S101 - chosen by it
    title = (
        f"{plain.task} {plain.prompt}, {_temperature(plain.temperature)}, {_drafter(one)}, {_rule(one)}: "
        f"token {divergence.index + 1}"
    )
    sides = [
        ("plain", _ids(plain.token_ids, divergence.index), divergence.plain, divergence.plain_text),
        ("speculative", _ids(one.token_ids, divergence.index), divergence.other, divergence.other_text),
    ]
    wide = max(len(ids) for _, ids, _, _ in sides)
    lines = [
        f"    {side:<11}  {ids:<{wide}}  {'(ended)' if token is None else _quoted(text)}"
        for side, ids, token, text in sides
    ]
    return "\n".join([_wrapped(title, "  "), *lines, _wrapped(_judgement(divergence), "    ")])


def _judgement(divergence: Divergence) -> str:
    known = []
    if divergence.margin is not None:
        known.append(f"margin {divergence.margin:.3f}")
    if divergence.width is not None:
        known.append(f"pass of {divergence.width} token{'s' if divergence.width > 1 else ''}")
    if divergence.noise is not None:
        known.append(f"noise there up to {divergence.noise:.3f}")
    words = {
        "near-tie": "a near-tie that rounding decides",
        "filter": "rounding moved a token across a filter's border",
        "lossy": "the rule promises nothing",
    }.get(divergence.cause) or f"FAULT: {fault_words(divergence)}"
    return f"{', '.join(known)}: {words}" if known else words


def _ids(tokens: Sequence[int], index: int) -> str:
    """Token ids around the place, a bar before it: "311 28 | 904 11"."""
    before = tokens[max(0, index - _IDS_BEFORE) : index]
    after = tokens[index : index + _IDS_AFTER]
    return f"{' '.join(map(str, before))} | {' '.join(map(str, after))}".strip()


def _quoted(text: str) -> str:
    return repr(_short(text, _LONGEST_TEXT))


# --- noise


def _noise(report: Report) -> str:
    """The measured rounding by width, and how far the speculative passes themselves moved the scores."""
    widths = report.noise.widths
    if not widths:
        return ""
    seen = [one for one in report.comparisons if one.largest_gap_shift is not None]
    own = _wrapped(
        "The speculative passes themselves moved a gap by "
        f"{max((one.largest_gap_shift or 0.0 for one in seen), default=0.0):.3f} at most."
    )
    text = _wrapped(
        "Rounding of this model, measured: how far a pass of that width moves the gap between two of the 40 "
        "likeliest tokens against plain decoding, in logits. The bound is twice the largest move of one "
        "token."
    )
    if all(width.bound == 0 for width in widths):
        rows = sum(width.rows for width in widths)
        return _wrapped(
            f"Rounding of this model, measured: passes of {widths[0].width} to {widths[-1].width} tokens "
            f"give the scores of plain decoding to the last bit ({rows} rows compared). {own}"
        )
    lines = [("width", "rows", "median", "largest", "bound")]
    lines += [
        (
            str(width.width),
            str(width.rows),
            f"{width.median_gap_shift:.3f}",
            f"{width.largest_gap_shift:.3f}",
            f"{width.bound:.3f}",
        )
        for width in widths
    ]
    return f"{text}\n\n{_aligned(lines, left=0)}\n\n{own}"
