"""What a head learns from: the target's own states of the texts, read from the very file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.runtime.context import LlamaContext
from localspec.runtime.features import LayerTap
from localspec.runtime.model import LlamaModel
from localspec.runtime.states import NormedStates
from localspec.train.state import Run, write_whole
from localspec.train.writing import LONGEST, Text


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


class Reader:
    """Reads texts through a target and keeps its states.

    Args:
        model: the target.
        layers: of which to keep the inputs.
        threads: CPU threads.
    """

    def __init__(self, model: LlamaModel, layers: Sequence[int], threads: int) -> None:
        self._context = LlamaContext(model, capacity=LONGEST, batch=LONGEST, threads=threads)
        self._tap = LayerTap(self._context, layers)
        self._final = NormedStates(self._context)

    def read(self, texts: Sequence[Text]) -> Lesson:
        """The states of `texts`."""
        total = sum(len(text.tokens) for text in texts)
        states = np.empty((total, self._tap.width), np.float16)
        final = np.empty((total, self._final.width), np.float16)
        likeliest = np.empty(total, np.int32)
        at = 0
        for text in texts:
            self._context.clear()
            for start in range(0, len(text.tokens), self._context.max_rows):
                piece = text.tokens[start : start + self._context.max_rows].tolist()
                rows = self._context.decode(piece, "all")
                there = slice(at, at + len(piece))
                np.clip(self._tap.rows(slice(0, len(piece))), -6e4, 6e4, out=states[there], casting="unsafe")
                final[there] = self._final.rows(len(piece))
                likeliest[there] = rows.argmax(axis=1)
                at += len(piece)
        lengths = [len(text.tokens) for text in texts]
        return Lesson(
            tokens=np.concatenate([text.tokens for text in texts]),
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            answers=np.array([text.answer for text in texts], np.int64),
            likeliest=likeliest,
            states=states,
            final=final,
        )

    def close(self) -> None:
        """Free the cache."""
        self._final.close()
        self._tap.close()
        self._context.close()


# --- on the disk


def save_texts(run: Run, number: int, texts: Sequence[Text]) -> None:
    """Keep a piece of the texts; raises `StorageError`."""
    arrays = {
        "tokens": np.concatenate([text.tokens for text in texts]),
        "lengths": np.array([len(text.tokens) for text in texts], np.int64),
        "answers": np.array([text.answer for text in texts], np.int64),
        "kinds": np.array([text.kind for text in texts]),
    }
    write_whole(run.path(f"texts-{number:04}.npz"), lambda path: np.savez(path, **arrays))


def saved_texts(run: Run) -> list[list[Text]]:
    """The pieces of texts that there are, in order."""
    pieces: list[list[Text]] = []
    for path in sorted(run.folder.glob("texts-????.npz")):
        with np.load(path) as found:
            ends = np.cumsum(found["lengths"])
            parts = np.split(found["tokens"], ends[:-1])
            pieces.append(
                [
                    Text(tokens, int(answer), str(kind))
                    for tokens, answer, kind in zip(parts, found["answers"], found["kinds"], strict=True)
                ]
            )
    return pieces


_FIELDS = ("tokens", "starts", "answers", "likeliest", "states", "final")


def save_lesson(run: Run, number: int, lesson: Lesson) -> None:
    """Keep the states of a piece; the last file is written last, so that a piece is whole where it is."""
    for name in _FIELDS:
        array = getattr(lesson, name)
        write_whole(lesson_path(run, number, name), lambda path, array=array: np.save(path, array))


def has_lesson(run: Run, number: int) -> bool:
    """Whether the states of a piece are there."""
    return lesson_path(run, number, _FIELDS[-1]).is_file()


def saved_lesson(run: Run, number: int) -> Lesson:
    """The states of a piece; the large arrays stay on the disk until they are used."""
    large = ("states", "final")
    return Lesson(
        **{
            name: np.load(lesson_path(run, number, name), mmap_mode="r" if name in large else None)
            for name in _FIELDS
        }
    )


def lesson_path(run: Run, number: int, name: str) -> Path:
    """Where one array of a piece lies."""
    return run.path(f"{name}-{number:04}.npy")
