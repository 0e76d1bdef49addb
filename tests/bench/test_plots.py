"""Pictures: every one there is a figure for, the same bytes each time, small, with their text as text."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from localspec.bench.records import Measurement, Results
from localspec.bench.report.plots import plots
from localspec.errors import StorageError, UsageError
from tests.bench import report_builders as make

KINDS = ("speedup", "positions", "alpha", "lengths", "concurrency")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return plots(make.full(), tmp_path_factory.mktemp("plots"))


def test_every_picture_is_drawn(drawn: dict[str, Path]) -> None:
    files = ("small.BF16", "small.Q4_1")
    assert set(drawn) == {"passes.svg", *(f"{kind}-{file}.svg" for kind in KINDS for file in files)}
    assert all(path.is_file() and path.name == name for name, path in drawn.items())


def test_pictures_are_small_and_their_text_is_text(drawn: dict[str, Path]) -> None:
    for path in drawn.values():
        assert path.stat().st_size < 200_000
        words = {element.text for element in ET.parse(path).iter() if element.tag.endswith("}text")}
        assert len(words) > 5, path.name
    named = drawn["speedup-small.BF16.svg"].read_text()
    for word in (">copy<", ">ngram 8<", "Speed-up by task: small.BF16"):
        assert word in named


def test_pictures_are_the_same_every_time(drawn: dict[str, Path], tmp_path: Path) -> None:
    import matplotlib as mpl

    # The user's own style changes nothing, and is theirs again afterwards.
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path"}):
        again = plots(make.full(), tmp_path)
        assert mpl.rcParams["font.size"] == 30
    for name, path in again.items():
        assert path.read_bytes() == drawn[name].read_bytes(), name
        assert "dc:date" not in path.read_text()


def test_a_large_bench_stays_readable(tmp_path: Path) -> None:
    found = [
        make.measurement(f"task {task}", draft=draft, length=length, lengths=tuple(range(9)) * 200)
        for task in range(60)
        for draft in ("ngram", "suffix", "auto")
        for length in (2, 4, 8)
    ]
    found += [m.model_copy(update={"parallel": many}) for m in found[:180] for many in (2, 4)]
    for path in plots(make.results(*found), tmp_path).values():
        assert path.stat().st_size < 200_000, path.name


def test_png_beside_svg(tmp_path: Path) -> None:
    written = plots(make.results(make.measurement()), tmp_path / "new" / "folder", ("svg", "png"))
    assert {"passes.svg", "passes.png"} <= set(written)
    assert written["passes.png"].read_bytes().startswith(b"\x89PNG")


def missing() -> Measurement:
    return make.measurement(timing=None, baseline=None, counts=None, lengths=(), note="No room.")


@pytest.mark.parametrize(
    ("results", "kinds"),
    [
        (make.results(files=()), set()),
        (make.results(missing(), files=(make.model_file(pass_ms={}),)), set()),
        (make.results(missing()), {"passes"}),
        (make.results(make.measurement(counts=None, lengths=())), {"passes", "speedup"}),
        (make.results(make.measurement(length=None), files=(make.model_file(pass_ms={1: 5.0}),)),
         {"speedup", "positions", "lengths"}),
        (make.results(make.measurement(mode="synthetic", rates=(0.8,) * 4)),
         {"passes", "speedup", "positions", "alpha"}),
    ],
)  # fmt: skip
def test_only_what_was_measured_is_drawn(results: Results, kinds: set[str], tmp_path: Path) -> None:
    assert {name.partition("-")[0].removesuffix(".svg") for name in plots(results, tmp_path)} == kinds


def test_names_of_users_files_and_tasks_are_shown_as_they_are(tmp_path: Path) -> None:
    # $ would be mathematics to matplotlib, the last characters are not in its font.
    task, names = "cost in $ and a_b^c \x1b", ("my model/1", "my model?1", "模型")
    files = tuple(make.model_file(name) for name in names)
    found = [make.measurement(task, file=name) for name in names]
    written = plots(make.results(*found, files=files), tmp_path)
    assert len([name for name in written if name.startswith("speedup")]) == 3
    picture = written["speedup-my-model-1.svg"].read_text()
    assert "cost in $ and a_b^c" in picture
    ET.fromstring(picture)


def test_without_matplotlib_a_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"-m pip install 'localspec\[plots\]'"):
        plots(make.full(), tmp_path)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="svg or png, not as gif"):
        plots(make.full(), tmp_path, ("gif",))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Cannot make the folder"):
        plots(make.full(), tmp_path / "file")
