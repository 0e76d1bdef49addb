"""The bench with heads: they see the prompt, say what a GPU would give, and go where llama-server looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.bench.options import Given, find_drafts, find_tasks, settings_of
from localspec.bench.records import Results
from localspec.bench.rows import Row, rows
from localspec.bench.runner import Bench
from localspec.errors import IncompatibleError, NotFoundError, UsageError
from tests.heads import alphabet
from tests.heads.making import Made


def given(model: Path, **more: Any) -> Given:
    usual: dict[str, Any] = {
        "tasks": "copy",
        "modes": "free",
        "lengths": "3",
        "tokens": 24,
        "runs": 1,
        "threads": 1,
        "context": 2048,
        "startup": False,
        "passes": "1,2,4",
    }
    return Given(model=str(model), **{**usual, **more})


def measured(model: Path, **more: Any) -> tuple[Results, list[Row]]:
    asked = settings_of(given(model, **more))
    tasks, _ = find_tasks(asked)
    bench = Bench(asked, [model], tasks, save=lambda results: None, drafts=find_drafts(asked))
    results = bench.run()
    return results, list(rows(results))


@pytest.mark.parametrize("method", ["eagle3", "dflash", "dspark"])
def test_a_head_drafts_in_the_bench_as_in_a_chat(made: Made, method: str) -> None:
    target, head = made(alphabet.target), made(getattr(alphabet, method))
    results, (row,) = measured(target, drafts=f"{method}:{head}")
    assert row.identical
    assert row.note is None
    assert row.drafted
    assert row.acceptance_rate
    assert row.acceptance_rate > 0.5
    assert row.gpu_speedup is not None
    (one,) = results.measurements
    assert one.begin_s is not None
    assert one.begin_s > 0
    assert row.label == f"{method}:{head.name} 3"


def test_prediction_layers_of_the_file_itself_and_behind_the_suffix_drafter(made: Made) -> None:
    _, found = measured(
        made(alphabet.target_mtp), drafts="mtp,suffix+mtp", parallel="2", modes="free,transcript"
    )
    free = [row for row in found if row.mode == "free"]
    assert [row.draft for row in free] == ["mtp", "suffix+mtp", "suffix+mtp"]
    assert all(row.identical for row in free)
    assert all(row.accepted for row in free)
    together = [row for row in found if row.parallel == 2]
    # What cannot be measured has a row that says so.
    assert together
    assert all(row.note and "keep up with one sequence" in row.note for row in together)


def test_drafts_accepted_by_dice_cost_a_heads_own_time(made: Made) -> None:
    target, head = made(alphabet.target), made(alphabet.eagle3)
    _, (row,) = measured(target, drafts=f"eagle3:{head}", modes=None, synthetic=("0.5",))
    assert row.mode == "synthetic"
    assert row.note is None
    assert row.drafted


def test_the_files_of_the_grids_heads(made: Made) -> None:
    target, head = made(alphabet.target_mtp), made(alphabet.eagle3)
    settings = settings_of(given(target, drafts=f"mtp,eagle3:{head},{head}"))
    assert find_drafts(settings) == {"mtp": "", f"eagle3:{head}": str(head), str(head): str(head)}
    with pytest.raises(IncompatibleError, match="No MTP head is known"):
        find_drafts(settings_of(given(made(alphabet.target), drafts="mtp")))
    with pytest.raises(NotFoundError, match="There is no file"):
        settings_of(given(target, drafts="eagle3:/nowhere/head.gguf"))
    with pytest.raises(UsageError, match="eagle3:nobody"):
        settings_of(given(target, drafts="eagle3:nobody"))


def test_a_head_that_does_not_fit_leaves_the_others_their_rows(made: Made, tmp_path: Path) -> None:
    target = made(alphabet.target)
    far = alphabet.dflash(tmp_path / "far.gguf", layers=(1, 9))
    _, found = measured(target, drafts=f"dflash:{far},ngram")
    bad, good = found
    assert bad.prompts == 0
    assert bad.note is not None
    assert "it reads layer 9" in bad.note
    assert good.note is None
