"""Model files made when they are first asked for, each once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Writer = Callable[..., Path]


class Made:
    """Writes models into a folder: `made(alphabet.eagle3, reduced=True)` is the path of one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}

    def __call__(self, writer: Writer, **settings: object) -> Path:
        """The file that `writer` writes with `settings`; the same call names the same file."""
        key = f"{writer.__module__}.{writer.__name__} {sorted(settings.items(), key=str)}"
        if key not in self._paths:
            kind = writer.__module__.rpartition(".")[2]
            path = self._folder / f"{kind}-{writer.__name__}-{len(self._paths)}.gguf"
            self._paths[key] = writer(path, **settings)
        return self._paths[key]
