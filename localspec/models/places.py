"""Where other programs keep their models: what each of them documents, on each system."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with models in it.

    Attributes:
        program: whose folder it is; "" for one that the user named.
        folder: the folder, which is there.
    """

    program: str
    folder: Path


HUB, LM_STUDIO, OLLAMA, LLAMA_CPP, JAN, GPT4ALL = (
    "hub cache",
    "LM Studio",
    "Ollama",
    "llama.cpp",
    "Jan",
    "GPT4All",
)


def known_places(
    environment: Mapping[str, str] | None = None, home: Path | None = None, platform: str = sys.platform
) -> list[Place]:
    """The folders of known programs that there are, each once.

    Args:
        environment: variables, in place of this process's own.
        home: the user's home folder, in place of the real one.
        platform: as `sys.platform`.
    """
    if home is None:
        try:
            home = Path.home()
        except RuntimeError:
            # A user without a home folder has no models in it.
            return []
    places: dict[Path, Place] = {}
    for program, folder in _candidates(os.environ if environment is None else environment, home, platform):
        try:
            if folder.is_dir():
                places.setdefault(folder.resolve(), Place(program, folder.absolute()))
        except (OSError, RuntimeError):
            continue
    return list(places.values())


def _candidates(environment: Mapping[str, str], home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    def given(variable: str) -> Path | None:
        value = environment.get(variable, "").strip()
        return _under(home, value) if value else None

    mac, windows = platform == "darwin", platform in ("win32", "cygwin")
    local = given("LOCALAPPDATA") or home / "AppData" / "Local"
    roaming = given("APPDATA") or home / "AppData" / "Roaming"
    library = home / "Library"
    cache = given("XDG_CACHE_HOME") or home / ".cache"
    data = library / "Application Support" if mac else given("XDG_DATA_HOME") or home / ".local" / "share"

    for variable, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        folder = given(variable)
        if folder is not None:
            yield HUB, folder / below
    yield HUB, cache / "huggingface" / "hub"

    moved = small_text(home / ".lmstudio-home-pointer")
    if moved:
        yield LM_STUDIO, _under(home, moved) / "models"
    yield LM_STUDIO, home / ".lmstudio" / "models"
    yield LM_STUDIO, home / ".cache" / "lm-studio" / "models"

    folder = given("OLLAMA_MODELS")
    if folder is not None:
        yield OLLAMA, folder
    yield OLLAMA, home / ".ollama" / "models"
    if not mac and not windows:
        # Where the service that its installer sets up keeps them.
        yield OLLAMA, Path("/usr/share/ollama/.ollama/models")
        yield OLLAMA, Path("/var/lib/ollama/.ollama/models")

    folder = given("LLAMA_CACHE")
    if folder is not None:
        yield LLAMA_CPP, folder
    yield LLAMA_CPP, (library / "Caches" if mac else local if windows else cache) / "llama.cpp"

    yield JAN, (roaming if windows else data) / "Jan" / "data"
    yield JAN, home / "jan" / "models"
    yield GPT4ALL, (local if windows else data) / "nomic.ai" / "GPT4All"


def _under(home: Path, text: str) -> Path:
    """A path that may begin with `~`, of this home folder."""
    if text == "~" or text.startswith(("~/", "~\\")):
        return home / text[2:]
    return Path(text)


def small_text(file: Path, most: int = 4096) -> str:
    """The beginning of a text file; "" for what is none, such as a pipe, which could be read for ever."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as data:
            return data.read(most).decode().strip()
    except (OSError, ValueError):
        return ""
