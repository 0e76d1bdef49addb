"""Files that are too much to import."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.chat import imports
from localspec.errors import UsageError


def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MOST_BYTES", 1 << 20)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (1 << 20) + b"[]")
    with pytest.raises(UsageError, match="at most 1 MiB"):
        imports.read_trees(large)


def test_a_device_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Path("/dev/zero")
    if not endless.is_char_device():
        pytest.skip("this system has no such device")
    monkeypatch.setattr(imports, "MOST_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="too large"):
        imports.read_trees(endless)
