"""The network that is trained is the one that llama.cpp runs: same states, same logits, step for step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from localspec.models.gguf import read_header
from localspec.models.heads import FILE_KEY, FINGERPRINT_KEY, TYPE_KEY, head_facts, head_note
from localspec.runtime.head_loading import load_head
from localspec.runtime.loading import load
from localspec.train.copying import teach_copying
from localspec.train.export import export
from localspec.train.features import tapped_layers
from localspec.train.network import Cache, Head
from localspec.train.target import TargetWeights
from localspec.types import DraftOptions, EngineOptions
from tests.heads import randoms
from tests.heads.making import Made
from tests.heads.writers import VOCABULARY
from tests.train.targets import qwen3

TOKENS = 24
CHOSEN = np.arange(30, 130)


class SomeLessons:
    """Random tokens, whose lowest states are the sums of their own and the last token's embeddings."""

    def __init__(self, embeddings: NDArray[np.float32]) -> None:
        self._embeddings, self._random = embeddings, np.random.default_rng(5)

    def sample(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        tokens = self._random.integers(32, 127, (count, 2))
        wide = self._random.standard_normal((count, 3 * self._embeddings.shape[1]))
        wide[:, : self._embeddings.shape[1]] = self._embeddings[tokens].sum(1)
        return wide, tokens

    def frequencies(self, vocabulary: int) -> NDArray[np.int64]:
        return np.bincount(self._random.integers(32, 127, 9999), minlength=vocabulary)


def shaken(target: TargetWeights, scale: NDArray[np.float32], *, copies: bool = False) -> Head:
    """A head as it might be after training, with attention that looks at more than one place."""
    head = Head(target, scale, CHOSEN)
    if copies:
        before = head.shape
        teach_copying(head, SomeLessons(target.embeddings()), target.embeddings())
        assert (head.shape.kv_heads, head.k.weight.shape[0]) == (
            before.kv_heads + 2, (before.kv_heads + 2) * before.head_width,
        )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in head.named_parameters():
            spread = 0.3 if weight.ndim == 1 else 0.5 * float(weight.std())
            weight += spread * torch.randn(weight.shape, generator=generator)
            if name in ("q.weight", "k.weight") and not copies:
                weight *= 2
    return head


def far(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("writer", [randoms.target, qwen3])
def test_the_exported_head_computes_what_was_trained(
    writer: Callable[..., Path], copies: bool, made: Made, tmp_path: Path
) -> None:
    path = made(writer)
    header = read_header(path)
    layers = tapped_layers(header.block_count)
    options = EngineOptions(context=256, threads=1, gpu_layers=0, flash_attention=False, kv_type="f32")
    loaded = load(path, options)
    target = TargetWeights(path, header)
    scale = np.random.default_rng(1).uniform(0.5, 2.0, 3 * header.embedding_length).astype(np.float32)
    head = shaken(target, scale, copies=copies)
    file = tmp_path / "head.gguf"
    export(file, head, target, layers=layers, scale=scale, chosen=CHOSEN)
    facts = head_facts(read_header(file))
    assert facts is not None
    assert (facts.kind, facts.target_layers) == ("eagle3", layers)
    opened = load_head(facts, loaded, options, DraftOptions("head"))
    opened.tap.resume()
    tokens = [int(token) for token in np.random.default_rng(2).integers(32, 127, TOKENS + 2)]
    try:
        loaded.context.decode(tokens[:TOKENS], "none")
        features = opened.tap.rows(slice(0, TOKENS))
        mixed = opened.head.encode(features)
        opened.head.decode(0, tokens[1 : TOKENS + 1], mixed, "all")
        logits = [np.array(opened.head.logits(row)) for row in range(TOKENS)]
        states = [np.array(opened.head.state(row)) for row in range(TOKENS)]
        # The next token of the draft goes on from the head's own state.
        opened.head.decode(TOKENS, [tokens[TOKENS + 1]], states[-1][None], "all")
        later = np.array(opened.head.logits(0))
    finally:
        opened.close()
        loaded.close()
    embeddings = torch.from_numpy(target.embeddings())
    cache: Cache = []
    with torch.no_grad():
        state = head.fc(torch.from_numpy(features / scale)[None])
        assert far(state[0].numpy(), mixed) < 0.02
        state = head.step(embeddings[torch.tensor([tokens[1 : TOKENS + 1]])], state, cache, 0)
        said = head.output(head.norm(state))[0].numpy()
        # Every position goes one step further; the last one alone is asked about.
        state = head.step(embeddings[torch.tensor([tokens[2 : TOKENS + 2]])], state, cache, 1)
        said_later = head.output(head.norm(state))[0, -1].numpy()
    assert max(far(said[row], logits[row][CHOSEN]) for row in range(TOKENS)) < 0.08
    assert far(said_later, later[CHOSEN]) < 0.08
    others = np.setdiff1d(np.arange(VOCABULARY), CHOSEN)
    assert np.all(logits[0][others] < logits[0][CHOSEN].min())


def test_the_file_says_what_it_was_made_for(made: Made, tmp_path: Path) -> None:
    path = made(randoms.target)
    header = read_header(path)
    target = TargetWeights(path, header)
    scale = np.ones(3 * header.embedding_length, np.float32)
    file = tmp_path / "head.gguf"
    export(file, Head(target, scale, CHOSEN), target, layers=(1, 1, 2), scale=scale, chosen=CHOSEN)
    found = read_header(file)
    assert found.metadata[FILE_KEY] == path.name
    assert found.metadata.get(TYPE_KEY, "") == header.file_type
    assert found.metadata[FINGERPRINT_KEY] == header.fingerprint
    facts = head_facts(found)
    assert facts is not None
    assert head_note(facts, found, header) == ""


def test_a_head_begins_with_the_targets_output(made: Made) -> None:
    path = made(randoms.target)
    target = TargetWeights(path, read_header(path))
    head = Head(target, np.ones(3 * 64, np.float32), CHOSEN)
    assert not head.output.weight.requires_grad
    assert torch.equal(head.output.weight, torch.from_numpy(target.array("output.weight")[CHOSEN]))
