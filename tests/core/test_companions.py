"""Installed draft models that `--draft auto` takes in by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.draft_models import DraftModels
from localspec.drafters import make_drafter, models_in
from localspec.drafters.cascade import CascadeDrafter
from localspec.drafters.eagle3 import Eagle3Drafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.messages import Event, Generate, Step
from localspec.model_choice import companions_of, resolve_head
from localspec.model_files import WantedFiles
from localspec.models import own, registry
from localspec.runtime.loading import load
from localspec.testing import OracleDrafter
from localspec.types import Budget, DraftOptions, EngineOptions, SamplingParams
from tests.heads import alphabet

QUESTION = "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox"


def options(spec: str, **companions: str) -> DraftOptions:
    return DraftOptions(spec, companions=companions)


def test_auto_takes_them_in_and_nobody_else_does() -> None:
    def companion(name: str) -> OracleDrafter:
        assert name == "small"
        return OracleDrafter([])

    assert isinstance(make_drafter(options("auto", small="x"), companion=companion), CascadeDrafter)
    assert isinstance(make_drafter(options("suffix", small="x"), companion=companion), SuffixDrafter)
    assert models_in(options("auto", small="x")) == ("small",)
    assert models_in(options("suffix", small="x")) == ()


def test_one_that_cannot_be_had_is_left_out() -> None:
    drafter = make_drafter(options("auto", small="x"), companion=lambda name: None)
    assert isinstance(drafter, SuffixDrafter)


def test_installed_ones_of_the_family_that_are_small_enough(tmp_path: Path) -> None:
    sizes = {"big": 6_000_000, "middle": 1_100_000, "small": 1_000_000, "stranger": 10_000, "gone": 0}
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    with registry.user_file().open("w") as file:
        for name, size in sizes.items():
            path = tmp_path / f"{name}.gguf"
            if size:
                path.write_bytes(b"\0" * size)
            family = "others" if name == "stranger" else "ours"
            file.write(f'[models.{name}]\nsource = "{path}"\nfamily = "{family}"\n')
    found = companions_of(registry.resolve("big"), tmp_path / "big.gguf")
    assert found == {"small": tmp_path / "small.gguf"}
    assert companions_of(registry.resolve("middle"), tmp_path / "middle.gguf") == {}
    assert companions_of(registry.resolve(str(tmp_path / "big.gguf")), tmp_path / "big.gguf") == {}
    files = WantedFiles(registry.resolve("big"), EngineOptions()).find()
    assert files.options.draft.companions == {"small": str(tmp_path / "small.gguf")}


def test_of_a_mixture_of_experts_counts_what_a_token_reads(tmp_path: Path) -> None:
    path, small = tmp_path / "big.gguf", tmp_path / "small.gguf"
    path.write_bytes(b"\0" * 6_000_000)
    small.write_bytes(b"\0" * 500_000)
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    for active, found in ((3, {"f-small:Q4_0": small}), (2, {"f-small:Q4_0": small}), (1, {})):
        registry.user_file().write_text(f"""
[families.f.sizes.big]
weights = 4
active = {active}
cache_bytes = 0
files.Q4_0 = {{ source = "big.gguf" }}
[families.f.sizes.small]
weights = 1
cache_bytes = 0
[families.f.sizes.small.files]
Q8_0 = {{ source = "hf:o/r/not-here.gguf" }}
Q4_0 = {{ source = "{small}" }}
""")
        assert companions_of(registry.resolve("f-big"), path) == found


@pytest.mark.model
def test_the_engine_drafts_with_one_and_says_why_another_does_not(smollm2_path: Path, tmp_path: Path) -> None:
    twin = shutil.copy(smollm2_path, tmp_path / "twin.gguf")
    replies = []
    for companions in ({"twin": str(twin)}, {"gone": str(tmp_path / "gone.gguf")}):
        draft = DraftOptions("auto", policy="fixed:3", companions=companions)
        engine = Engine(smollm2_path, "smollm2", EngineOptions(context=512, threads=1, draft=draft))
        try:
            seen: list[Event] = []
            request = Generate(1, prompt=QUESTION, sampling=SamplingParams(temperature=0), max_tokens=24)
            replies.append(engine.generate(request, seen.append).reply.token_ids)
            sources = {step.stats.source for step in seen if isinstance(step, Step)}
            names = [model.name for model in engine.info.draft_models]
            notes = engine.take_notes()
            if "twin" in companions:
                assert names == ["twin"]
                assert any("twin" in source for source in sources)
                assert not notes
            else:
                assert not names
                assert notes
                assert all("gone does not draft along" in note for note in notes)
        finally:
            engine.close()
    assert replies[0] == replies[1]


@pytest.fixture
def heads(tmp_path: Path) -> dict[str, Path]:
    """A target, one with prediction layers, and heads; the stranger reads layers that there are not."""
    made = {
        "target": alphabet.target(tmp_path / "target.gguf"),
        "predicting": alphabet.target_mtp(tmp_path / "predicting.gguf"),
        "one": alphabet.eagle3(tmp_path / "one.gguf"),
        "two": alphabet.dflash(tmp_path / "two.gguf"),
        "stranger": alphabet.dflash(tmp_path / "stranger.gguf", layers=(1, 7)),
    }
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    with registry.user_file().open("w") as file:
        file.write(f'[models.target]\nsource = "{made["target"]}"\n')
    return made


def test_an_installed_head_is_taken_before_a_draft_model(heads: dict[str, Path]) -> None:
    target = registry.resolve("target")
    assert companions_of(target, heads["target"]) == {}
    stranger = own.register_head(heads["stranger"], kind="dflash", target=target, name="stranger")
    # What cannot draft for it is left out.
    assert registry.heads_for(target) == (f"dflash:{stranger}",)
    assert companions_of(target, heads["target"]) == {}
    name = own.register_head(heads["one"], kind="eagle3", target=target)
    assert name == "target-eagle3"
    assert companions_of(target, heads["target"]) == {"eagle3:target-eagle3": heads["one"]}
    # The newest is the first.
    own.register_head(heads["two"], kind="dflash", target=target)
    assert list(companions_of(target, heads["target"])) == ["dflash:target-dflash"]
    assert resolve_head("eagle3", "", target).path == heads["one"]


@pytest.fixture
def beside_a_gpu(heads: dict[str, Path]) -> Iterator[DraftModels]:
    """Drafters for a target that says it is on a GPU, where they are on the CPU."""
    options = EngineOptions(context=128, threads=1, gpu_layers=0, flash_attention=False)
    loaded = load(heads["target"], options)
    models = DraftModels(replace(loaded, gpu_layers=99), options)
    yield models
    models.close()
    loaded.close()


def test_one_that_would_be_slow_is_freed_and_not_where_somebody_uses_it(
    beside_a_gpu: DraftModels, heads: dict[str, Path]
) -> None:
    models, chosen = beside_a_gpu, options("auto", **{"eagle3:one": str(heads["one"])})
    assert models.companion("eagle3:one", chosen) is None
    assert models.infos == ()
    assert models.notes == ["eagle3:one does not draft along: the GPU has no room for all of it."]
    asked_for = DraftOptions("dflash:two", files={"dflash:two": str(heads["two"])})
    drafter = models.drafter("dflash:two", asked_for)
    assert models.companion("dflash:two", options("auto", **{"dflash:two": str(heads["two"])})) is None
    assert [info.name for info in models.infos] == ["dflash:two"]
    drafter.close()


def test_one_that_fails_ends_alone(heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    given = EngineOptions(context=128, threads=1, gpu_layers=0, flash_attention=False)
    loaded = load(heads["target"], given)
    models = DraftModels(loaded, given)
    chosen = options("auto", **{"eagle3:one": str(heads["one"])})
    try:
        drafter = make_drafter(chosen, companion=lambda name: models.companion(name, chosen))
        assert isinstance(drafter, CascadeDrafter)
        monkeypatch.setattr(Eagle3Drafter, "propose", lambda *_: [][0])
        for text, drafted in (([*range(40, 60)], ()), ([40, 41, 42, 43, 44] * 4, (40, 41, 42, 43))):
            drafter.begin(text)
            assert drafter.propose(text, Budget(4)).tokens == drafted, "the others draft on"
        assert len(models.notes) == 1
        assert models.notes[0].startswith("eagle3:one drafts along no more (IndexError")
    finally:
        models.close()
        loaded.close()


def test_prediction_layers_of_its_own_draft_too(heads: dict[str, Path]) -> None:
    plain = registry.resolve(str(heads["predicting"]))
    assert companions_of(plain, heads["predicting"]) == {"mtp": heads["predicting"]}
    assert resolve_head("mtp", "", plain).path == heads["predicting"]


def test_a_head_for_a_file_without_a_name_is_found_by_its_path(heads: dict[str, Path]) -> None:
    plain = registry.resolve(str(heads["predicting"]))
    own.register_head(heads["one"], kind="eagle3", target=plain)
    assert list(companions_of(plain, heads["predicting"])) == ["eagle3:predicting-eagle3"]
    assert registry.heads_for(registry.resolve("target")) == ()


def test_a_head_registered_again_takes_the_place_of_the_first(heads: dict[str, Path]) -> None:
    target = registry.resolve("target")
    own.register_head(heads["one"], kind="eagle3", target=target)
    again = heads["one"].with_name("again.gguf")
    shutil.copy(heads["one"], again)
    own.register_head(again, kind="eagle3", target=target)
    assert registry.heads_for(target) == ("eagle3:target-eagle3",)
    assert resolve_head("eagle3", "", target).path == again
    with pytest.raises(UsageError, match="There is a model named target"):
        own.register_head(again, kind="eagle3", target=target, name="target")
    own.remove_entry("target-eagle3")
    assert registry.heads_for(target) == ()
    assert registry.user_file().read_text().count("#") == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('head = "medusa"\ntarget = "smollm2"', '"head" must be one of: eagle3, mtp, dflash, dspark'),
        ('head = "eagle3"', 'needs both "head" and "target"'),
        ('target = "smollm2"', 'needs both "head" and "target"'),
    ],
)
def test_a_head_that_is_written_wrongly_is_said(heads: dict[str, Path], fields: str, said: str) -> None:
    with registry.user_file().open("a") as file:
        file.write(f'[models.mine]\nsource = "{heads["one"]}"\n{fields}\n')
    with pytest.raises(UsageError, match=said):
        registry.catalogue()
