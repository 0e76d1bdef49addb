"""Texts that a target writes, and the states kept of them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from localspec.bench.tasks import load_tasks
from localspec.runtime.context import LlamaContext
from localspec.runtime.features import LayerTap
from localspec.runtime.model import LlamaModel
from localspec.runtime.states import NormedStates
from localspec.train import prompts
from localspec.train.prompts import material
from localspec.train.sizes import LONGEST
from localspec.train.writing import Writer
from tests.heads import randoms
from tests.heads.making import Made

LAYERS = (0, 1, 2)
GIVEN = ("What is a kettle?", "Say: " + "all of this is far too long for one text. " * 40)


@pytest.fixture(scope="module")
def model(made: Made) -> LlamaModel:
    return LlamaModel(made(randoms.target), gpu_layers=0)


@pytest.mark.parametrize("given", [(), GIVEN])
def test_the_states_are_those_of_reading_the_text(model: LlamaModel, given: tuple[str, ...]) -> None:
    writer = Writer(model, LAYERS, 1, 7, given)
    try:
        # More than are written side by side: places are used again.
        texts = list(islice(writer.texts(), 40))
    finally:
        writer.close()
    context = LlamaContext(model, capacity=LONGEST, batch=LONGEST, threads=1)
    tap, final = LayerTap(context, LAYERS), NormedStates(context)
    for text in texts[::3]:
        tokens = text.tokens.tolist()
        context.clear()
        likeliest, states, ends = [], [], []
        for start in range(0, len(tokens) - 1, context.max_rows):
            piece = tokens[start : min(start + context.max_rows, len(tokens) - 1)]
            rows = context.decode(piece, "all")
            likeliest += rows.argmax(axis=1).tolist()
            states.append(tap.rows(slice(0, len(piece))))
            ends.append(final.rows(len(piece)))
        count = len(tokens) - 1
        assert np.allclose(text.states[:count], np.concatenate(states), atol=0.02, rtol=0.01)
        assert np.allclose(text.final[:count], np.concatenate(ends), atol=0.05, rtol=0.05)
        assert np.mean(text.likeliest[:count] == likeliest) > 0.97
        assert not text.states[count].any()
    tap.close()
    final.close()
    context.close()


def test_texts_are_no_longer_than_there_is_room(model: LlamaModel) -> None:
    writer = Writer(model, LAYERS, 1, 7, GIVEN)
    try:
        texts = list(islice(writer.texts(), 4))
    finally:
        writer.close()
    for text in texts:
        assert text.kind == "given"
        assert 0 < text.answer < len(text.tokens) <= LONGEST
        assert len(text.tokens) == len(text.states) == len(text.final) == len(text.likeliest)


def test_one_seed_writes_the_same_texts(model: LlamaModel) -> None:
    written = []
    for seed in (3, 3, 4):
        writer = Writer(model, LAYERS, 1, seed)
        written.append([text.tokens.tolist() for text in islice(writer.texts(), 3)])
        writer.close()
    assert written[0] == written[1] != written[2]


def test_what_is_asked_is_not_the_benchs() -> None:
    """No six words in a row of what is asked are in a prompt of the bench, which judges the head."""
    source = Path(prompts.__file__).read_text(encoding="utf-8")
    ours = _runs(source)
    for task in load_tasks():
        for prompt in task.prompts:
            for message in prompt.messages:
                assert not ours & _runs(message.content), task.name


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z]+", text.lower())
    return {tuple(words[at : at + 6]) for at in range(len(words) - 5)}


def test_material() -> None:
    code = "def double(number):\n    return number * 2\n\n\nprint(double(21), double(4), double(7))"
    assert material(f"Here it is:\n```python\n{code}\n```\nIt doubles.") == (code, True)
    assert material("Too short.") is None
    text = "A kettle heats water. It has a spout, a lid and a handle, and it whistles when it is done."
    assert material(f"Sure!\n\n{text}") == (text, False)
