"""The report's text: 80 columns, the verdict first, and what JSON holds."""

from __future__ import annotations

import json

import pytest

from localspec.audit.records import Report
from localspec.audit.report import WIDTH, report_text
from localspec.bench.records import Configuration
from localspec.testing import ScriptedModel
from localspec.verify import VERIFIERS
from tests.audit.models import RoundingModel, StaleModel, TooMany, audited


def report_of(model: ScriptedModel, *configurations: Configuration, **options) -> Report:
    findings, verdict = audited(model, *configurations, **options)
    return Report(
        model="letters",
        file="letters.F32",
        backend="CPU",
        threads=2,
        context=model.capacity,
        max_tokens=60,
        seed=3,
        verdict=verdict,
        comparisons=findings.comparisons,
        plain=findings.plain,
        noise=findings.noise,
    )


def lines_of(report: Report) -> list[str]:
    text = report_text(report)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    lines = text.splitlines()
    assert all(len(line) <= WIDTH and line == line.rstrip() for line in lines)
    return lines


def test_the_same_answer_is_said_first_and_shortly() -> None:
    report = report_of(ScriptedModel(order=2, spread=3.0))
    lines = lines_of(report)
    assert lines[0] == "Same answer: all 8 replies are identical token for token."
    assert len(lines) < 16
    assert any(line.startswith("ngram 4  coupled    0.8        4/4") for line in lines)
    assert "to the last bit" in "".join(lines)


def test_near_ties_show_both_sides_and_the_noise() -> None:
    report = report_of(RoundingModel(0.1))
    text = "\n".join(lines_of(report))
    assert text.startswith("Same answer: ")
    found = [one for one in report.comparisons if one.divergence is not None]
    first = next(one for one in found if one.divergence and one.divergence.cause == "near-tie")
    divergence = first.divergence
    assert divergence is not None
    assert f"margin {divergence.margin:.3f}, pass of {divergence.width} tokens, noise there up to" in text
    after = " ".join(map(str, first.token_ids[divergence.index : divergence.index + 3]))
    assert f"| {after}" in text
    assert "width  rows  median  largest  bound" in text


def test_faults_come_first_and_are_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    configurations = [
        Configuration(draft="ngram", length=4, verify=rule) for rule in ("coupled", "rejection")
    ]
    monkeypatch.setitem(VERIFIERS, "rejection", TooMany)
    report = report_of(RoundingModel(0.1), *configurations)
    lines = lines_of(report)
    assert lines[0].startswith("NOT the same answer: ")
    # Of the places that are shown.
    judged = [line for line in lines if "FAULT" in line or "near-tie that" in line]
    assert "FAULT" in judged[0]
    assert "FAULT" not in judged[-1]


def test_a_lossy_rule_is_marked() -> None:
    configurations = [Configuration(draft="ngram", length=4, verify=rule) for rule in ("coupled", "typical")]
    lines = lines_of(report_of(ScriptedModel(order=2), *configurations, temperatures=(1.2,)))
    assert any("typical is lossy" in line for line in lines)
    assert any(line.startswith("ngram 4  typical") and "lossy" in line for line in lines)
    assert any("typical (lossy)" in line for line in lines)


def test_long_names_and_many_divergences_keep_to_the_width() -> None:
    name = "a/path/to/a/model-that-drafts.gguf"
    report = report_of(StaleModel(order=2, spread=3.0))
    many = [one.model_copy(update={"draft": name, "leaves": 4}) for one in report.comparisons] * 4
    text = "\n".join(lines_of(report.model_copy(update={"comparisons": tuple(many)})))
    assert "more; --json has them all" in text
    assert "model-...-drafts 4/4" in text


@pytest.mark.parametrize("text", ["\x1b[31m\n", 'say "so"', "naïve 日本", "", "x" * 80])
def test_texts_of_tokens_cannot_spoil_the_screen(text: str) -> None:
    report = report_of(StaleModel(order=2, spread=3.0))
    spoilt = [
        one.model_copy(
            update={"divergence": one.divergence and one.divergence.model_copy(update={"plain_text": text})}
        )
        for one in report.comparisons
    ]
    lines = lines_of(report.model_copy(update={"comparisons": tuple(spoilt)}))
    assert all(line.isprintable() for line in lines)


def test_json_holds_everything_and_reads_back() -> None:
    report = report_of(RoundingModel(0.1))
    data = json.loads(report.model_dump_json())
    assert set(data) == {
        "format", "model", "file", "backend", "threads", "context", "max_tokens", "seed", "verdict",
        "comparisons", "plain", "noise",
    }  # fmt: skip
    assert Report.model_validate_json(report.model_dump_json()) == report
    one = next(one for one in data["comparisons"] if one["divergence"])
    index = one["divergence"]["index"]
    plain = data["plain"][one["reply"]]["token_ids"]
    assert plain[:index] == one["token_ids"][:index]
    assert (plain[index], one["token_ids"][index]) == (one["divergence"]["plain"], one["divergence"]["other"])
