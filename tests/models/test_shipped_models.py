"""The models that are shipped: complete, plausible, and each one confirmed in docs/MODELS.md."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from localspec.models import registry
from localspec.models.choose import Capacity, choose, estimated_bytes
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.families import Catalogue, Family
from localspec.models.tables import read_tables

GIB = 2**30
SHIPPED = registry.shipped_file()
PAGE = Path(__file__).parents[2] / "docs" / "MODELS.md"

# What localspec knew before there were families: name, hash, size.
EARLIER = {
    "smollm2": ("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432),
    "gemma3-270m": ("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 253113024),
    "gemma3-270m-it": ("0ef57d2c838458a1952664260dcba38e5bdda37494f3af732f06e4add24068e3", 291545600),
    "gemma3-4b": ("882e8d2db44dc554fb0ea5077cb7e4bc49e7342a1f0da57901c0802ea21a0863", 2489757856),
    "qwen3-8b": ("d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785", 5027783488),
    "qwen3-4b": ("7485fe6f11af29433bc51cab58009521f205840f5b4ae3a32fa7f92e8534fdf5", 2497280256),
    "qwen3-1.7b": ("061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a", 1834426016),
    "qwen3-0.6b": ("9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031", 639446688),
    "qwen2.5-coder-7b": ("509287f78cb4d4cf6b3843734733b914b2c158e43e22a7f4bf5e963800894d3c", 4683073536),
    "llama3.2-3b": ("6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff", 2019377696),
    "llama3.2-1b": ("6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83", 807694464),
    "smollm3-3b": ("8334b850b7bd46238c16b0c550df2138f0889bf433809008cc17a8b05761863e", 1915305312),
    "gpt-oss-20b": ("27cd6c432c7672cb812a92f611cf3ba7bbc35928262bb1e1253ff4ee6ae35901", 12109566624),
}


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    return read_tables(SHIPPED)


@pytest.fixture(scope="module")
def families(shipped: Catalogue) -> list[Family]:
    return list(shipped.families.values())


@pytest.fixture(scope="module")
def files(families: list[Family]) -> list[ModelEntry]:
    """Every file of every size of every family."""
    return [entry for family in families for several in family.files.values() for entry in several]


def test_the_file_is_small_enough_to_be_read_at_every_start() -> None:
    assert SHIPPED.stat().st_size < 60_000


def test_there_are_families_enough_and_some_to_recommend(families: list[Family]) -> None:
    assert len(families) >= 10
    recommended = [family for family in families if family.recommended]
    assert 3 <= len(recommended) <= 5
    for family in recommended:
        assert family.license in ("Apache-2.0", "MIT"), family.name
        assert len(family.sizes) >= 3, family.name


def test_every_family_and_size_is_complete(families: list[Family]) -> None:
    for family in families:
        assert re.fullmatch(r"[a-z0-9.-]+", family.name)
        assert family.description.endswith("."), family.name
        assert family.checked is not None, family.name
        assert date(2026, 1, 1) < family.checked < date(2027, 1, 1), family.name
        for entry in family.sizes:
            assert re.fullmatch(r"[a-z0-9.-]+", entry.name)
            assert entry.shape is not None, entry.name
            assert entry.shape.cache_bytes > 0, entry.name
            assert entry.license, entry.name
            assert entry.checked, entry.name
            assert entry.context, entry.name
            assert entry.parameters, entry.name
            assert entry.description.endswith("."), entry.name


def test_counts_of_weights_agree_with_what_people_call_the_sizes(families: list[Family]) -> None:
    for family in families:
        for entry in family.sizes:
            match = re.fullmatch(r"(E?)([\d.]+)([BM])(?:-A([\d.]+)B)?", entry.parameters)
            assert match, entry.parameters
            assert entry.shape is not None
            said = float(match[2]) * (1e9 if match[3] == "B" else 1e6)
            # "E4B" is how many weights a token uses; a 0.5B or 1.5B can have its table of words twice.
            counted = entry.shape.active if match[1] else entry.shape.weights
            assert said * 0.87 < counted < said * 1.28, entry.name
            if match[4]:
                assert entry.shape.active < entry.shape.weights / 3, entry.name
                assert entry.shape.active == pytest.approx(float(match[4]) * 1e9, rel=0.7), entry.name


def test_sizes_of_files_agree_with_counts_of_weights(files: list[ModelEntry]) -> None:
    stated = [entry for entry in files if entry.size and entry.shape]
    assert len(stated) > 20
    for entry in stated:
        assert entry.shape is not None
        assert entry.size is not None
        bits = entry.size * 8 / entry.shape.weights
        lower, upper = {"Q4": (4.4, 5.4), "Q6": (6.5, 6.8), "Q8": (8.4, 8.8), "MX": (4.3, 4.7)}[
            entry.quantization.removeprefix("UD-")[:2]
        ]
        # In small models the table of words, which is kept in more bits, is a large part.
        upper += 1.4 if entry.shape.weights < 2.5e9 and lower < 5 else 0
        assert lower < bits < upper, f"{entry.name}: {bits:.2f} bits a weight"


def test_a_size_is_guessed_where_none_is_stated(files: list[ModelEntry]) -> None:
    for entry in files:
        guess = estimated_bytes(replace(entry, size=None))
        assert guess > 0, entry.name
        if entry.size and entry.shape:
            near = 0.1 if entry.shape.weights > 2.5e9 else 0.25
            assert guess == pytest.approx(entry.size, rel=near), entry.name


def test_files_come_from_the_hub_and_none_twice(files: list[ModelEntry]) -> None:
    seen = set()
    for entry in files:
        (source,) = entry.sources
        assert isinstance(source, HubSource), entry.name
        assert source.file.endswith(".gguf"), entry.name
        # The quantization is in the name of the file, in any case.
        assert entry.quantization.removeprefix("UD-").lower() in source.file.lower(), entry.name
        assert source not in seen, entry.name
        seen.add(source)


def test_drafts_are_smaller_models_or_heads_with_their_kind(shipped: Catalogue) -> None:
    for entry in shipped.models.values():
        for draft in entry.drafts:
            kind, _, source = draft.partition("hf:")
            if source:
                assert kind in ("", "eagle3:", "mtp:", "dflash:", "dspark:"), draft
                assert kind.rstrip(":") in source.lower(), draft
                continue
            known = shipped.models[draft]
            assert known.shape is not None
            assert entry.shape is not None
            assert known.shape.weights < entry.shape.weights / 2, f"{draft} for {entry.name}"


def test_what_descriptions_say_of_memory_is_what_the_choice_of_a_size_holds(shipped: Catalogue) -> None:
    for name, entry in shipped.models.items():
        vram, ram = (re.search(rf"(\d+) GB of {kind}", entry.description) for kind in ("VRAM", "RAM"))
        beside = "beside it" in entry.description or "context of some thousand" in entry.description
        alone = Family(name, sizes=(replace(entry, thinking=""),))
        if vram and not beside:
            assert choose(alone, Capacity(32 * GIB, int(vram[1]) * GIB, 1)).place == "gpu", name
        if ram and not beside:
            quick = Capacity(int(ram[1]) * GIB, ram_bandwidth=1e12)
            assert choose(alone, quick).suits, name


def test_the_page_says_where_every_file_was_seen(shipped: Catalogue, files: list[ModelEntry]) -> None:
    rows = {tuple(cells[-3:-1]): cells[-1] for cells in _rows() if len(cells) in (3, 5)}
    for entry in files:
        (source,) = entry.sources
        assert isinstance(source, HubSource)
        seen = rows[source.repo, source.file]
        assert re.fullmatch(r"[ADKLOPS]( [ADKLOPS])*( \*)?", seen), entry.name
        assert seen.endswith("*") == bool(entry.sha256), entry.name
    for draft in {draft for entry in shipped.models.values() for draft in entry.drafts if "hf:" in draft}:
        owner, repo, file = draft.partition("hf:")[2].split("/", 2)
        assert re.fullmatch(r"[AL]( L)?", rows[f"{owner}/{repo}", file]), draft


def test_the_page_shows_how_the_numbers_came_about(shipped: Catalogue) -> None:
    numbers = {cells[0]: cells[-3:] for cells in _rows() if len(cells) == 9}
    for name, entry in shipped.models.items():
        if entry.shape is None:
            assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
            continue
        weights, active, cache = numbers[f"`{name}`"]
        assert weights == f"{entry.shape.weights:,}", name
        assert (active or weights) == f"{entry.shape.active:,}", name
        assert cache == f"{entry.shape.cache_bytes:,}", name


def _rows() -> list[list[str]]:
    """The cells of every row of every table of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_what_was_known_before_is_still_the_same_file(shipped: Catalogue) -> None:
    for name, (sha256, size) in EARLIER.items():
        assert (shipped.models[name].sha256, shipped.models[name].size) == (sha256, size), name
    # These named one file each; now they are families, and the name means the size that fits.
    assert {"qwen3", "gemma3", "qwen2.5-coder", "llama3.2", "smollm3"} <= set(shipped.families)
    assert registry.DEFAULT_MODEL in shipped.models
