"""A real model in three files: planned for, loaded and run like the one file that it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.models import fit, gguf
from localspec.runtime.loading import describe, load
from localspec.types import EngineOptions
from tests.models.split_files import split_bytes, split_name

pytestmark = pytest.mark.model

OPTIONS = EngineOptions(context=256, threads=1, gpu_layers=0)
TOKENS = [504, 3575, 282, 4649, 314]


@pytest.fixture(scope="module")
def first_part(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split")
    for number, data in enumerate(split_bytes(smollm2_path.read_bytes(), 3), start=1):
        (folder / split_name("smollm2", number, 3)).write_bytes(data)
    return folder / split_name("smollm2", 1, 3)


def test_the_same_memory_is_planned_for(first_part: Path, smollm2_path: Path) -> None:
    parts, whole = (
        fit.sizes(gguf.read_header(path), context=256, batch=256) for path in (first_part, smollm2_path)
    )
    assert parts == whole


def test_it_computes_the_same(first_part: Path, smollm2_path: Path) -> None:
    logits = []
    sizes = []
    for path in (first_part, smollm2_path):
        loaded = load(path, OPTIONS)
        try:
            sizes.append(describe(loaded, "m", draft="none", speculation=False, reason="").file_bytes)
            logits.append(loaded.context.decode(TOKENS, "all").tolist())
        finally:
            loaded.close()
    assert logits[0] == logits[1]
    assert sizes[0] > sizes[1] > 90_000_000
