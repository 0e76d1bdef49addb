"""One conversation, with all its branches, written to a file of the current folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from localspec.bench.report.disk import write_whole
from localspec.chat import export
from localspec.chat.rows import Tree
from localspec.text import printable

ExportKind = Literal["md", "json"]


def write_export(tree: Tree, kind: ExportKind) -> str:
    """Write a conversation as Markdown or JSON; no file is replaced.

    Returns:
        A sentence that says where it is.

    Raises:
        LocalspecError, OSError: it cannot be written.
    """
    text = export.as_json([tree]) if kind == "json" else export.as_markdown([tree])
    file = _free(Path.cwd() / export.file_name(tree, kind))
    write_whole(file, text.encode())
    return f"Written: {printable(file.name)} in {printable(str(file.parent))}"


def _free(path: Path) -> Path:
    """The path, or one like it that no file has."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
