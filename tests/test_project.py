"""Rules about the project itself: who imports whom, how long files are, what ships in the wheel."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = sorted((ROOT / "localspec").rglob("*.py"))
APP = sorted((ROOT / "tui").rglob("*.py"))
LONGEST_FILE = 400


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            yield node.module or ""


def tops(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imported(path)}


@pytest.mark.parametrize("path", LIBRARY + APP, ids=name_of)
def test_only_the_runtime_imports_llama_cpp(path: Path) -> None:
    if not name_of(path).startswith("localspec/runtime/"):
        assert "llama_cpp" not in tops(path)


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_the_library_does_not_know_the_app(path: Path) -> None:
    allowed = {
        "localspec/cli/chat.py": {"tui.app"},
        "localspec/cli/config.py": {"tui.keymap", "tui.themes"},
        "localspec/cli/replay.py": {"tui.replay"},
    }
    app = {module for module in imported(path) if module.partition(".")[0] in ("tui", "textual")}
    assert app <= allowed.get(name_of(path), set())


def test_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*LIBRARY, *APP, *sorted((ROOT / "scripts").rglob("*.py"))], ids=name_of)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_children_import_nothing_from_the_users_folder() -> None:
    """`python -m` alone looks into the current folder first, before the standard library."""
    for path in LIBRARY:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'sys\.executable,\s*"-m"', text), path


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_nothing_of_one_machine_is_in_the_repository() -> None:
    # Written in pieces, so that this file does not find itself.
    private = re.compile(
        "|".join(["/ro" + "ot/", "/wo" + "rk/", "/home/[a-z]", "pypi" + r"\.org", "python" + "hosted"])
    )
    for path in tracked_files():
        data = path.read_bytes()
        assert len(data) < 1_000_000, name_of(path)
        if b"\0" not in data:
            found = private.search(data.decode("utf-8"))
            assert found is None, f"{name_of(path)}: {found}"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['localspec', '--help']\n"
        "from localspec.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('llama_cpp', 'textual', 'tui', 'numpy', 'pydantic', 'rich', 'psutil', 'huggingface_hub')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    for verb in ("chat", "run", "models", "doctor"):
        assert verb in done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that users install, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_what_the_product_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "localspec/models/models.toml",
        "localspec/py.typed",
        "localspec/worker.py",
        "tui/app.py",
    } <= names
    styles = {name_of(path) for path in (ROOT / "tui").rglob("*.tcss")}
    assert styles <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)


def test_the_installed_wheel_runs_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--target", str(target), str(wheel)], capture_output=True, check=True)
    # The path comes before the checkout's own entry, so what runs is the wheel's code.
    environment = {**os.environ, "PYTHONPATH": str(target)}
    program = "import localspec; print(localspec.__file__); from localspec.cli import main; main()"
    command = [sys.executable, "-c", program, "models", "list", "--json"]
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True)
    place, listing = done.stdout.split("\n", 1)
    assert place == str(target / "localspec" / "__init__.py")
    assert "smollm2" in json.dumps(json.loads(listing))
