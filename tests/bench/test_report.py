"""Reports: JSON that can be resumed from, CSV, the terminal's tables and the Markdown document."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console

from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.records import Results
from localspec.bench.report import disk
from localspec.bench.report.csv_file import csv_text, save_csv
from localspec.bench.report.identity import identities
from localspec.bench.report.markdown import markdown
from localspec.bench.report.seed import seed_tables
from localspec.bench.report.store import ledger_beside, load, save
from localspec.bench.report.table import print_results
from localspec.bench.rows import Row, rows
from localspec.errors import NotFoundError, StorageError, UsageError
from tests.bench import report_builders as make
from tests.bench.test_rows import anything


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- JSON


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save(make.full(), tmp_path / "bench.json")
    assert load(tmp_path / "bench.json") == make.full()
    assert names(tmp_path) == ["bench.json"]


@settings(max_examples=40, deadline=None)
@given(anything)
def test_anything_measured_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, results: Results
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    save(results, path)
    assert load(path) == results


def test_the_file_holds_what_other_programs_rely_on(tmp_path: Path) -> None:
    save(make.full(), tmp_path / "bench.json")
    value = json.loads((tmp_path / "bench.json").read_text())
    assert list(value)[:6] == ["format", "machine", "model", "cost_curve", "rows", "peers"]
    assert value["model"] == "smollm2"
    assert value["cost_curve"]["1"] == 1.0
    assert value["cost_curve"]["9"] == pytest.approx(15.8 / 7.5)
    assert list(value["rows"][0])[:3] == ["task", "draft", "tokens_per_second"]
    diverged = next(row for row in value["rows"] if row["first_divergence"])
    assert diverged["first_divergence"]["index"] == 71
    assert diverged["first_divergence"]["margin"] == 0.031
    assert list(value["peers"][0])[:5] == ["name", "config", "task", "tokens_per_second", "speedup"]
    assert {"settings", "files", "measurements", "peer_measurements", "startup", "notes"} <= value.keys()
    assert value["complete"] is True
    assert value["invalid"] is None


def test_rows_of_a_file_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    save(make.full(), path)
    value = json.loads(path.read_text())
    for row in value["rows"]:
        row["speedup"] = 99.0
    value["cost_curve"] = {}
    path.write_text(json.dumps(value))
    assert load(path) == make.full()


def test_one_figure_that_is_no_number_costs_one_row(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    broken = make.measurement(prompt="two").model_copy(
        update={"energy_j": (math.nan, 1.0), "note": "a remark"}
    )
    machine = {"clock": math.nan}
    save(make.results(make.measurement(), broken, machine=machine), path)
    loaded = load(path)
    assert loaded.machine == {"clock": None}
    assert loaded.measurements[0] == make.measurement()
    assert loaded.measurements[1].timing is None
    assert loaded.measurements[1].note == "a remark; dropped: a figure was no finite number"
    assert "NaN" not in path.read_text()


def test_an_interrupted_save_keeps_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bench.json"
    save(make.results(), path)
    before = path.read_bytes()

    def interrupted(number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(disk.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(make.full(), path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["bench.json"]


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        save(make.results(), tmp_path / "bench.json")
    assert names(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist; make it"):
        save(make.results(), tmp_path / "missing" / "bench.json")
    with pytest.raises(StorageError, match="it is a folder"):
        save(make.results(), tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Cannot write"):
        save(make.results(), tmp_path / "file" / "bench.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StorageError, match="Permission denied"):
        save(make.results(), tmp_path / "bench.json")
    tmp_path.chmod(stat.S_IRWXU)


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "bench.json")
    save(make.results(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert load(tmp_path / "bench.json") == make.results()
    save(make.results(), Path(os.devnull))
    assert not Path(os.devnull).is_file()


def saved(**changed: Any) -> dict[str, Any]:
    from localspec.bench.report.store import text

    value: dict[str, Any] = json.loads(text(make.results(make.measurement())))
    return value | changed


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not JSON"),
        ("not JSON", "is not JSON"),
        ('{"format": 1', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"format": 1, "x": NaN}', "it holds NaN"),
        ("[]", "was not written by"),
        ("{}", "was not written by"),
        ('{"format": "1"}', "was not written by"),
        (json.dumps({"format": 99}), r"newer format \(99\); it needs a newer localspec"),
        (json.dumps({"format": 0}), "unknown format"),
        (json.dumps({"format": 1}), "the field 'complete' is missing"),
        (json.dumps(saved(extra=1)), "the field 'extra' is unknown"),
        (json.dumps(saved(files=7)), "files: input should be a valid tuple"),
        (json.dumps(saved(files=[{"name": "x"}])), "files.0.file_type: field required"),
        (json.dumps(saved()).replace('"seconds": 2.0', '"seconds": 1e999'), "finite number"),
        (json.dumps(saved()).replace('"mode": "transcript"', '"mode": "other"'), "measurements.0.mode"),
    ],
)
def test_a_file_that_is_no_bench_is_refused_in_one_sentence(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=says) as raised:
        load(path)
    assert "\n" not in str(raised.value)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no bench at"):
        load(tmp_path / "none.json")
    with pytest.raises(StorageError, match="Cannot read"):
        load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00GGUF")
    with pytest.raises(UsageError, match="is not JSON"):
        load(tmp_path / "binary")


# --- CSV


def test_csv_has_every_row_and_field(tmp_path: Path) -> None:
    save_csv(make.full(), tmp_path / "bench.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "bench.csv").read_text())))
    assert len(lines) == len(rows(make.full())) + len(peer_rows(make.full()))
    fields = (Row.model_fields.keys() | PeerRow.model_fields.keys()) - {"first_divergence"}
    assert fields | {"first_divergence_index", "first_divergence_margin"} <= lines[0].keys()
    first = rows(make.full())[0]
    assert lines[0]["name"] == "localspec"
    assert lines[0]["config"] == "ngram 2"
    assert float(lines[0]["speedup"]) == first.speedup
    assert lines[0]["identical"] == ""
    assert tuple(map(float, lines[0]["accepted_at"].split())) == first.accepted_at
    assert any(line["first_divergence_index"] == "71" and line["identical"] == "false" for line in lines)
    assert lines[-1]["note"] == "The server ended."


def test_csv_cells_with_commas_stay_one_cell() -> None:
    text = csv_text(make.results(make.measurement(timing=None, note='a, "b"')))
    (line,) = csv.DictReader(io.StringIO(text))
    assert line["note"] == 'a, "b"'


# --- the terminal


def printed(results: Results, width: int = 80) -> str:
    out = io.StringIO()
    print_results(results, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_tables_fit_the_terminal(width: int) -> None:
    text = printed(make.full(), width)
    assert max(map(len, text.splitlines())) <= width
    figures = (
        r"1\.83x +1\.82-1\.84 +95% +2\.90 +27%" if width < 112 else r"1\.83x +1\.82-1\.84 +95% +97% +2\.90"
    )
    assert re.search(rf"^copy +ngram 2 .*{figures}", text, flags=re.MULTILINE)
    assert ("theory" in text) == (width >= 112)


def test_slow_downs_show_without_colour() -> None:
    slow = [line for line in printed(make.full()).splitlines() if "0.70x" in line]
    assert slow
    assert all(line.rstrip().endswith("slower") for line in slow)
    assert "lossy" in next(line for line in printed(make.full()).splitlines() if "typical" in line)


def test_the_terminal_says_who_wins_and_what_is_missing() -> None:
    text = printed(make.full(), 140)
    assert "copy: localspec ngram 8, 1.10x llama-server's best (ngram-mod)" in text
    assert "code, suffix 8: Prompt and reply need 9000 tokens" in text
    assert "explain, llama-server ngram-cache: The server ended." in text
    assert "The bench itself took 0.29% of a run's time at most." in text
    assert "Another program used 12% of the processor." in text
    assert "Start-up and memory" in text
    assert "not complete" not in text


def test_what_is_not_there_is_a_dash_or_a_sentence() -> None:
    text = printed(make.results(make.measurement(counts=None), files=(), complete=False))
    assert re.search(r"copy +ngram 4 256\.0 2\.00x 1\.94-2\.06 +- +- +-", text)
    assert "`--resume` goes on with it" in text
    assert "Nothing has been measured yet." in printed(make.results())


def test_synthetic_runs_are_marked_invalid_everywhere() -> None:
    results = make.results(make.measurement(mode="synthetic", rates=(0.8, 0.64, 0.512, 0.4096)))
    assert "INVALID" in printed(results).splitlines()[0]
    assert "ngram 4 rate 0.8" in printed(results)
    assert re.search(r"invalid\s*\n", printed(results))
    assert "**INVALID" in markdown(results)


def test_text_of_others_cannot_spoil_the_tables() -> None:
    evil = "[bold]x[/]\x1b[2J|\n<b>"
    results = make.results(
        make.measurement(evil, note=evil),
        make.measurement("other", timing=None, note=evil),
        peers=(make.peer(evil, name=evil, config=evil), make.peer(timing=None, note=evil)),
        notes=(evil,),
    )
    text = printed(results)
    assert "\x1b" not in text
    assert "[bold]x[/]" in text
    document = markdown(results)
    assert "\x1b" not in document
    assert "<b>" not in document


def test_long_names_wrap_and_figures_stay() -> None:
    text = printed(make.results(make.measurement("a-task-with-a-very-long-name-from-a-users-own-file")))
    assert max(map(len, text.splitlines())) <= 80
    assert "2.00x 1.94-2.06" in text


# --- Markdown


def tables(document: str) -> list[list[str]]:
    blocks = re.findall(r"(?:^\|.*\n)+", document, flags=re.MULTILINE)
    return [block.splitlines() for block in blocks]


def test_every_table_of_the_document_is_well_formed() -> None:
    found = tables(markdown(make.full()))
    assert len(found) > 15
    for lines in found:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1, lines[0]
        assert re.fullmatch(r"\|( -+:? \|)+", lines[1])


def test_the_document_names_slow_downs_and_winners() -> None:
    document = markdown(make.full(), {"speedup-small.BF16.svg": "bench/speedup.svg"})
    slow = document.split("## Slow-downs")[1].split("\n## ")[0]
    assert "| small.Q4_1 | explain, ngram 8 |" in slow
    assert "rows are slower than plain decoding" in slow
    assert "- copy: localspec ngram 8, 1.10x llama-server's best (ngram-mod)" in document
    assert "![speedup-small.BF16.svg](bench/speedup.svg)" in document
    assert "chain two: token 71, margin 0.031" in document
    assert "nan" not in document.lower().replace("finance", "")


def test_a_bench_without_slow_downs_says_so() -> None:
    assert "No configuration was slower" in markdown(make.results(make.measurement()))


def test_more_than_the_oracle_is_explained_where_it_occurs() -> None:
    fast = make.measurement(timing=make.timing(256, 0.1))
    assert "of the oracle at most: T(n) was taken once" in markdown(make.results(fast))
    assert "of the oracle at most" not in markdown(make.results(make.measurement()))
    assert "of the oracle at most" in " ".join(printed(make.results(fast), 80).split())
    assert "of the oracle at most" not in " ".join(printed(make.results(make.measurement()), 80).split())


def test_how_the_time_of_a_reply_is_estimated_is_told() -> None:
    assert "their median over the rounds" in markdown(make.results())
    four = make.results(settings=make.settings(runs=4))
    assert "their lower quartile over the rounds" in markdown(four)


def test_the_rounds_of_a_bench_lie_beside_it(tmp_path: Path) -> None:
    ledger = ledger_beside(tmp_path / "bench.json")
    assert ledger is not None
    assert ledger.path == tmp_path / "bench.json.rounds.jsonl"
    assert ledger_beside(Path(os.devnull)) is None


@settings(max_examples=40, deadline=None)
@given(anything)
def test_whatever_was_measured_can_be_reported(results: Results) -> None:
    for text in (markdown(results), printed(results), csv_text(results)):
        assert not re.search(r"\b(nan|inf)\b", text)


def test_an_empty_bench_can_be_reported() -> None:
    empty = make.results(files=(), complete=False)
    assert "Nothing has been measured yet." in markdown(empty)
    assert len(csv_text(empty).splitlines()) == 1


# --- the reference experiment


def test_the_reference_stands_beside_ours() -> None:
    text = seed_tables(make.full())
    assert "costs 2.11 of one over one token here (7.50 ms) and 1.37 there (5.7 to 7.8 ms)" in text
    eight = next(line for line in text.splitlines() if line.startswith("| copy | 8 |"))
    assert "| 6.3x | 3.70x (3.47-3.96) | 96% / 8.7 | 87% / 7.98 |" in eight
    # Tokens a pass over its cost, there and here.
    assert "1.37 there: 4.11x at our costs, 5.83x at theirs" in eight.replace("1.94 plain ones here, ", "")
    assert "| there | 84.2% | 79.4% | 77.0% | 74.7% | 4.15 |" in text
    assert "| here | 72.2% | 61.1% | 56.1% | 51.1% | 3.41 |" in text
    assert "10 of 12" in text
    assert "40,208 to 30,832" in text
    assert "2,048 to 2,048 tokens: +0%" in text


def test_the_reference_stands_alone_where_nothing_was_measured() -> None:
    text = seed_tables(make.results())
    assert "| copy | 8 | 6.3x | - | 96% / 8.7 | - | not measured here |" in text


def test_identity_takes_twelve_greedy_free_replies() -> None:
    many = [
        make.measurement(task, f"prompt {number}", mode="free", identical=number != 3)
        for task in ("copy", "chain", "code")
        for number in range(1, 9)
    ]
    sampled = make.measurement("copy", "warm", mode="free", identical=False, temperature=1.0)
    (found,) = identities(make.results(*many, sampled, make.measurement()))
    assert (found.same, found.compared, found.by_task) == (10, 12, "copy 5/6, chain 5/6")


def test_the_report_puts_theory_beside_practice() -> None:
    text = markdown(make.results(make.measurement(), make.measurement("story", policy="ema", length=None)))
    section = text.partition("## Theory beside practice")[2].partition("\n## ")[0]
    (line,) = [line for line in section.splitlines() if "ngram 4" in line]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:4] == ["small.BF16", "copy", "transcript", "ngram 4"]
    assert "ema" not in section
    assert cells[6] == "4.00"
    assert all(cell != "–" for cell in cells)


def test_the_report_says_what_a_head_would_give_on_a_gpu() -> None:
    text = markdown(make.results(make.measurement(), make.measurement(draft="eagle3:small")))
    section = text.partition("## On a consumer GPU")[2].partition("\n## ")[0]
    (line,) = [line for line in section.splitlines() if "eagle3:small 4" in line]
    assert [cell.strip() for cell in line.split("|")[1:-1]][-2:] == ["2.00x", "3.28x"]
    assert "ngram" not in section
    assert "1.4 times" in section
    assert "consumer GPU" not in markdown(make.results(make.measurement()))
