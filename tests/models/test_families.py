"""Families in `models.toml`: sizes, quantizations, what replaces what, and mistakes."""

from __future__ import annotations

from datetime import date

import pytest

from localspec.errors import NotFoundError, UsageError
from localspec.models import registry, store
from localspec.models.entries import HubSource, Shape
from tests.models.registries import family_text, write_user_file

SMALL = """
[families.f]
[families.f.sizes.1b]
weights = 10
cache_bytes = 2
[families.f.sizes.1b.files]
Q8_0 = { source = "hf:o/r/f.gguf" }
"""


def test_every_size_is_a_model_and_inherits_from_its_family() -> None:
    head = 'thinking = "switch"\nchecked = 2026-01-31\nrecommended = true\nsampling = { temperature = 0.6 }'
    write_user_file(family_text(head=head))
    known = registry.catalogue()
    family = known.families["tall"]
    assert [entry.name for entry in family.sizes] == [
        f"tall-{size}" for size in ("32b", "30b-a3b", "14b", "8b", "4b", "1.7b", "0.6b")
    ]
    assert family.recommended
    entry = registry.entries()["tall-8b"]
    assert entry in family.sizes
    assert entry.family == "tall"
    assert (entry.parameters, entry.quantization, entry.size) == ("8B", "Q4_K_M", 5_027_783_488)
    assert entry.sources == (HubSource("o/tall-8b", "tall-8b-Q4_K_M.gguf"),)
    assert entry.shape == Shape(8_190_735_360, 8_190_735_360, 147_456)
    assert entry.quantizations == ("Q4_K_M", "Q6_K", "Q8_0")
    assert (entry.thinking, entry.checked, entry.context) == ("switch", date(2026, 1, 31), 40960)
    assert entry.sampling.given() == {"temperature": 0.6}
    assert entry.description == "Many sizes."
    mixture = registry.entries()["tall-30b-a3b"].shape
    assert mixture is not None
    assert mixture.active == 3_345_000_000


def test_a_size_can_say_more_than_its_family() -> None:
    write_user_file(
        SMALL.replace(
            "weights = 10", 'weights = 10\nlicense = "Other"\ndrafts = ["g-1b", "eagle3:hf:o/r/e.gguf"]'
        )
    )
    entry = registry.entries()["f-1b"]
    assert entry.license == "Other"
    assert entry.drafts == ("g-1b", "eagle3:hf:o/r/e.gguf")


@pytest.mark.parametrize("typed", ["tall-8b:Q6_K", "tall-8b:q6_k"])
def test_other_quantizations_are_named_after_a_colon(typed: str) -> None:
    write_user_file(family_text())
    for found in (registry.resolve(typed).entry, registry.find_entry(typed)):
        assert found is not None
        assert found.name == "tall-8b:Q6_K"
        assert found.sources == (HubSource("o/tall-8b", "tall-8b-Q6_K.gguf"),)
        assert ":" not in store.final_path(found).parent.name
    assert registry.find_entry("tall-8b:q4_k_m").name == "tall-8b", "the default file has one name only"
    assert registry.find_entry("smollm2:Q4_1").name == "smollm2"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("tall-8b:Q9", 'no "Q9" of tall-8b; there is Q4_K_M, Q6_K, Q8_0'),
        ("tall:8b", 'use "tall-8b"'),
        ("tall:Q6_K", "name a size of it before the colon, one of: tall-32b, "),
        ("tall-9b", "nearest: .*tall-4b"),
        ("tal", "nearest: tall"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(typed: str, told: str) -> None:
    write_user_file(family_text())
    for find in (registry.resolve, registry.find_entry):
        with pytest.raises(NotFoundError, match=told):
            find(typed)


def test_a_family_is_no_exact_model() -> None:
    write_user_file(family_text())
    assert "tall" not in registry.entries()
    for find in (registry.resolve, registry.find_entry):
        with pytest.raises(UsageError, match=r'"tall" is a family of models; name one of them: tall-32b, '):
            find("tall")


# --- whose name wins


def test_the_users_model_wins_over_a_shipped_family() -> None:
    family = next(iter(registry.catalogue().families.values()))
    write_user_file(f'[models."{family.name}"]\nsource = "hf:o/r/f.gguf"\n')
    known = registry.catalogue()
    assert family.name not in known.families
    assert registry.resolve(family.name).entry == known.models[family.name]
    assert not {entry.name for entry in family.sizes} & set(known.models)


def test_the_users_family_wins_over_a_shipped_model() -> None:
    write_user_file(family_text("smollm2", ("4b",)))
    known = registry.catalogue()
    assert "smollm2" not in known.models
    assert "smollm2-4b" in known.models


def test_the_users_family_replaces_a_shipped_one_as_a_whole() -> None:
    family = next(iter(registry.catalogue().families.values()))
    write_user_file(family_text(family.name, ("4b",)).replace('sizes."4b"', 'sizes."own"'))
    known = registry.catalogue()
    assert [entry.name for entry in known.families[family.name].sizes] == [f"{family.name}-own"]
    assert {name for name in known.models if known.models[name].family == family.name} == {
        f"{family.name}-own"
    }


def test_the_users_model_of_a_sizes_name_stands_for_that_size() -> None:
    family = next(iter(registry.catalogue().families.values()))
    entry = family.sizes[0]
    write_user_file(f'[models."{entry.name}"]\nsource = "own.gguf"\nquantization = "Q2_K"\n')
    known = registry.catalogue()
    own = known.families[family.name].sizes[0]
    assert own.is_local
    assert own == registry.entries()[entry.name] == registry.resolve(f"{entry.name}:Q2_K").entry
    assert own.shape == entry.shape, "how large it is stays known"


def test_a_quantization_of_the_users_own_takes_the_place_of_the_same_one() -> None:
    write_user_file('[models."qwen3-8b"]\nsource = "own.gguf"\nquantization = "Q6_K"\n')
    own = registry.entries()["qwen3-8b"]
    assert own.quantizations == ("Q6_K", "Q5_K_M", "Q8_0")
    assert registry.find_entry("qwen3-8b:Q6_K").is_local


def test_the_users_family_takes_the_name_of_a_shipped_size() -> None:
    write_user_file(family_text("qwen3-8b", ("4b",)))
    known = registry.catalogue()
    assert "qwen3-8b" not in known.models
    assert "qwen3-8b" not in {entry.name for entry in known.families["qwen3"].sizes}
    assert "qwen3-8b-4b" in known.models
    with pytest.raises(UsageError, match="is a family"):
        registry.find_entry("qwen3-8b")


# --- mistakes


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[families]\nf = 3\n", 2, "must be a table; use [families.f]"),
        ("families = []\n", 1, "must be a table; use [families.NAME]"),
        ("[families.f]\n", 1, '"f" needs sizes: [families.f.sizes.NAME]'),
        ("[families.f]\nsizes = 3\n", 2, "must be a table; use [families.f.sizes.NAME]"),
        ("[families.f]\nsises = 3\n", 2, '"sises" is not known here; use one of: checked, '),
        ('[families.f]\nsource = "hf:o/r/f.gguf"\n', 2, '"source" is not known here'),
        ("[families.f]\nrecommended = 1\n", 2, "true or false"),
        ("[families.f]\nthinking = true\n", 2, "must be text"),
        ("[families.f]\ncontext = 99999999999\n", 2, "far too large"),
        ('[families."a:b"]\n', 1, "not a usable name"),
        ('[families."a\\nb\\u001b[31m"]\n', 1, '"a b␛[31m" is not a usable name'),
        (f"[families.{'f' * 101}]\n", 1, "not a usable name"),
        ("[families.f.sizes.1b]\n", 1, '"f-1b" needs "weights"'),
        ("[families.f.sizes.1b]\nweights = 1\n", 1, '"f-1b" needs "cache_bytes"'),
        (
            "[families.f.sizes.1b]\nweights = 1\ncache_bytes = 0\n",
            1,
            'needs files: [families.f.sizes."1b".files]',
        ),
        (SMALL.replace("weights = 10", "weights = 0"), 4, "above 0"),
        (SMALL.replace("weights = 10", "weights = 1.5"), 4, "above 0"),
        (SMALL.replace("weights = 10", f"weights = {10**30}"), 4, "far too large"),
        (SMALL.replace("weights = 10", "weights = 10\nactive = 11"), 5, 'more than "weights"'),
        (SMALL.replace("cache_bytes = 2", "cache_bytes = -1"), 5, "at least 0"),
        (SMALL.replace("cache_bytes = 2", "cache_bytes = 9999999999"), 5, "far too large"),
        (SMALL.replace('"hf:o/r/f.gguf"', '"hf:o/r/../f.gguf"'), 7, "does not name a file"),
        (SMALL.replace('"hf:o/r/f.gguf"', '"hf:o/r/f-00002-of-00003.gguf"'), 7, "first part"),
        (SMALL.replace('"hf:o/r/f.gguf"', '["hf:o/r/f.gguf"]'), 7, '"Q8_0" needs a "source": text'),
        (SMALL.replace('{ source = "hf:o/r/f.gguf" }', '"hf:o/r/f.gguf"'), 7, "use { source = ... }"),
        (SMALL.replace('f.gguf"', 'f.gguf", license = "x"'), 7, '"license" is not known here'),
        (SMALL.replace('f.gguf"', 'f.gguf", sha256 = "12"'), 7, "64 hexadecimal"),
        (SMALL + 'q8_0 = { source = "hf:o/r/f.gguf" }\n', 8, "in other letters"),
        (SMALL.replace("Q8_0", '"Q8:0"'), 7, "not a usable name"),
        (SMALL + "[families.f.sizes.1B]\nweights = 1\n", 8, "in other letters"),
        (SMALL + '[models.f]\nsource = "hf:o/r/f.gguf"\n', 2, "is a model already"),
        (SMALL + '[models.f-1b]\nsource = "hf:o/r/f.gguf"\n', 3, "name of another model"),
        (
            SMALL + SMALL.replace("families.f", "families.f-1b").replace("sizes.1b", "sizes.x"),
            3,
            "another model",
        ),
        (
            SMALL.replace("1b", "a-b") + SMALL.replace("families.f", "families.f-a").replace("1b", "b"),
            10,
            "another",
        ),
    ],
)
def test_a_mistake_names_file_and_line(text: str, line: int, reason: str) -> None:
    file = write_user_file(text)
    with pytest.raises(UsageError) as caught:
        registry.catalogue()
    message = str(caught.value)
    assert message.startswith(f"{file}, line {line}: ")
    assert reason in message
    assert "\n" not in message
    assert len(message) < 600
