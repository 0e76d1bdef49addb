"""What a head learns from: texts with the target's own states, as they lie on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.train.state import Run, write_whole
from localspec.train.writing import Text


def tapped_layers(layers: int) -> tuple[int, int, int]:
    """The layers of a target whose inputs a head reads: a low one, the middle one and the last one.

    EAGLE-3's (arXiv 2503.01840): 2, half of them, and the last of which llama.cpp hands out the input.
    """
    return min(2, layers - 1), layers // 2, layers - 1


@dataclass(frozen=True, slots=True)
class Lesson:
    """Some texts with the target's states.

    Attributes:
        tokens: of all texts one after the other, shape [tokens].
        starts: where each text begins, and the end of the last, shape [texts + 1].
        answers: where each answer begins, counted from its text's start, shape [texts].
        likeliest: the target's likeliest token after each, shape [tokens].
        states: inputs of the tapped layers, half precision, shape [tokens, layers x width].
        final: the target's last state, normed: its output layer makes logits of it; shape [tokens, width].
    """

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    answers: NDArray[np.int64]
    likeliest: NDArray[np.int32]
    states: NDArray[np.float16]
    final: NDArray[np.float16]


_FIELDS = ("tokens", "starts", "answers", "likeliest", "states", "final")


def save_lesson(run: Run, number: int, texts: Sequence[Text]) -> None:
    """Keep a piece; its last file is written last, so that a piece is whole where that is.

    Raises:
        StorageError: no room on the disk.
    """
    lesson = Lesson(
        tokens=np.concatenate([text.tokens for text in texts]),
        starts=np.concatenate([[0], np.cumsum([len(text.tokens) for text in texts])]).astype(np.int64),
        answers=np.array([text.answer for text in texts], np.int64),
        likeliest=np.concatenate([text.likeliest for text in texts]),
        states=np.concatenate([text.states for text in texts]),
        final=np.concatenate([text.final for text in texts]),
    )
    for name in _FIELDS:
        write_whole(lesson_path(run, number, name), partial(np.save, arr=getattr(lesson, name)))


def saved_lessons(run: Run) -> list[Lesson]:
    """The pieces that there are; the large arrays stay on the disk until they are used."""
    found: list[Lesson] = []
    while lesson_path(run, len(found), _FIELDS[-1]).is_file():
        paths = {name: lesson_path(run, len(found), name) for name in _FIELDS}
        found.append(
            Lesson(
                **{
                    name: np.load(path, mmap_mode="r" if name in ("states", "final") else None)
                    for name, path in paths.items()
                }
            )
        )
    return found


def lesson_path(run: Run, number: int, name: str) -> Path:
    """Where one array of a piece lies."""
    return run.path(f"{name}-{number:04}.npy")
