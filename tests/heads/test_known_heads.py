"""Heads that are known for a model: by name, listed, shown, chosen in the app, and left out where unfit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.errors import IncompatibleError, UsageError
from localspec.model_choice import companions_of, heads_of, known_file, resolve
from localspec.model_files import (
    WantedFiles,
    draft_label,
    resolve_drafts,
    short_draft_label,
    usable_drafts,
)
from localspec.models import own, registry
from localspec.models.registry import Resolved
from localspec.types import DraftOptions, EngineOptions
from tests.heads import alphabet
from tests.heads.making import Made
from tests.models.commands import localspec
from tui.choices import Choice, chosen_draft, chosen_model, draft_choices


@pytest.fixture
def target(made: Made) -> Resolved:
    """A model that the user's registry knows, with heads: one made for it, one for another, one not here."""
    head = made(alphabet.eagle3)
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'[models.abc]\nsource = "{made(alphabet.target).as_posix()}"\n'
        'drafts = ["dspark:hf:o/r/spark.gguf"]\n'
        f'[models.other]\nsource = "{made(alphabet.dflash).as_posix()}"\nhead = "dflash"\ntarget = "xyz"\n'
    )
    found = resolve("abc")
    assert own.register_head(head, kind="eagle3", target=found) == "abc-eagle3"
    return found


def test_heads_of_a_model(made: Made, target: Resolved) -> None:
    found = {head.member: head.resolved.path for head in heads_of(target)}
    assert found == {"eagle3:abc-eagle3": made(alphabet.eagle3), "dspark:hf:o/r/spark.gguf": None}
    assert target.path is not None
    assert [head.member for head in heads_of(known_file(target.path))] == list(found)
    with_layers = known_file(made(alphabet.target_mtp))
    assert [head.member for head in heads_of(with_layers)] == ["mtp"]
    assert heads_of(known_file(made(alphabet.target_mtp, part="trunk"))) == []
    assert companions_of(target, target.path) == {"eagle3:abc-eagle3": made(alphabet.eagle3)}


def test_a_kind_alone_is_the_head_that_is_known(made: Made, target: Resolved) -> None:
    for spec in ("eagle3", "eagle3:abc-eagle3", f"eagle3:{made(alphabet.eagle3)}", "abc-eagle3"):
        assert resolve_drafts(spec, target)[spec].path == made(alphabet.eagle3)
    whole = known_file(made(alphabet.target_mtp))
    assert resolve_drafts("suffix+mtp", whole)["mtp"].path == whole.path
    trunk = known_file(made(alphabet.target_mtp, part="trunk"))
    # What is wrong with layers that are only spoken of is said where they are checked.
    assert resolve_drafts("mtp", trunk)["mtp"].path == trunk.path
    with pytest.raises(IncompatibleError, match="No MTP head is known for abc"):
        resolve_drafts("mtp", target)
    with pytest.raises(IncompatibleError, match="localspec train eagle3 --target "):
        resolve_drafts("eagle3", whole)


def test_a_head_set_for_all_models_need_not_suit_this_one(target: Resolved) -> None:
    options, drafts, notes = usable_drafts(DraftOptions("suffix+mtp"), target, needed=False)
    assert (options.spec, drafts) == ("suffix", {})
    assert notes[0].endswith("The chat goes on with --draft suffix.")
    with pytest.raises(IncompatibleError):
        usable_drafts(DraftOptions("suffix+mtp"), target, needed=True)
    options, drafts, notes = usable_drafts(DraftOptions("eagle3"), target, needed=True)
    assert options.files == {"eagle3": str(drafts["eagle3"].path)}
    assert notes == ()


def test_own_layers_of_a_model_that_is_not_here_are_no_second_download() -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[models.far]\nsource = "hf:o/r/far.gguf"\n')
    far = resolve("far")
    options, drafts, _ = usable_drafts(DraftOptions("mtp"), far, needed=True)
    assert WantedFiles(far, EngineOptions(draft=options), drafts).missing == ("far",)


def test_labels() -> None:
    assert draft_label("suffix+eagle3:/a/b/head.gguf") == "suffix+eagle3:head"
    assert draft_label("mtp") == "mtp"
    assert short_draft_label("suffix+dflash:hf:some/repository/a-rather-long-name.gguf") == "suffix+dflash"


def test_registering_again_replaces_and_never_takes_a_name(made: Made, target: Resolved) -> None:
    other = made(alphabet.eagle3, reduced=True)
    assert own.register_head(other, kind="eagle3", target=target) == "abc-eagle3"
    assert resolve_drafts("eagle3", target)["eagle3"].path == other
    with pytest.raises(UsageError, match="There is a model named abc already"):
        own.register_head(other, kind="eagle3", target=target, name="abc")
    nameless = Resolved("t", made(alphabet.target, seed=3), None)
    own.register_head(other, kind="eagle3", target=nameless)
    assert resolve_drafts("eagle3", nameless)["eagle3"].path == other


def test_commands_know_heads(made: Made, target: Resolved) -> None:
    facts = json.loads(localspec("models", "show", "abc", "--json").stdout)
    assert [(one["name"], one["head"], one["fetched"]) for one in facts["drafters"]] == [
        ("eagle3:abc-eagle3", "EAGLE-3", True),
        ("dspark:hf:o/r/spark.gguf", "DSpark", False),
    ]
    shown = localspec("models", "show", "abc-eagle3").stdout
    assert "EAGLE-3" in shown
    assert "draft head (eagle3)" in shown
    path = localspec("models", "pull", "eagle3:abc-eagle3").stdout.strip()
    assert Path(path) == made(alphabet.eagle3)
    done = localspec("run", "abc", "--model", "abc-eagle3")
    assert done.returncode == IncompatibleError.exit_code
    assert "cannot be a target: it is a draft head" in done.stderr


def test_the_app_offers_them(made: Made, target: Resolved) -> None:
    assert target.path is not None
    found = {choice.id: choice for choice in draft_choices(target.path, "suffix+eagle3:abc-eagle3")}
    head = found["eagle3:abc-eagle3"]
    assert (head.title, head.refusal) == ("EAGLE-3 · abc-eagle3", "")
    assert "hidden states" in head.facts
    assert found["suffix+eagle3:abc-eagle3"].current
    assert "not fetched yet" in found["dspark:hf:o/r/spark.gguf"].refusal
    assert "other" not in found
    assert "abc-eagle3" not in found
    options = chosen_draft("suffix+eagle3:abc-eagle3", DraftOptions(), target.path)
    assert options.files == {"eagle3:abc-eagle3": str(made(alphabet.eagle3))}


def test_the_app_offers_a_models_own_layers(made: Made) -> None:
    whole = made(alphabet.target_mtp)
    (own_layers,) = (choice for choice in draft_choices(whole, "none") if choice.id == "mtp")
    assert own_layers == Choice("mtp", "MTP", "layers of the model itself · reads the model's hidden states")
    assert chosen_draft("mtp", DraftOptions(), whole).files == {"mtp": str(whole)}
    with pytest.raises(IncompatibleError, match="cannot be a target"):
        chosen_model(str(made(alphabet.eagle3)))
