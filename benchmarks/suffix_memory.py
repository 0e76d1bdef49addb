"""What suffix drafting costs: at 1M tokens of memory, and at 1k and 100k tokens of conversation.

The memory is a file on disk, written and read as a chat would. Its text is pieces of the bench's own tasks,
with every twentieth token replaced, so that matches of every length are found.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from common import model_file
from numpy.typing import NDArray

from localspec.bench.tasks import TASK_NAMES, load_tasks
from localspec.drafters.suffix import SuffixDrafter
from localspec.memory.log import TokenLog
from localspec.memory.memory import Memory
from localspec.memory.records import Record
from localspec.runtime.vocabulary import vocabulary
from localspec.types import Budget, Outcome

MEMORY_TOKENS = 1_000_000
DOCUMENT = 250


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="smollm2", help="whose tokenizer is used")
    options.add_argument("--draft-length", type=int, default=16)
    given = options.parse_args()
    path = model_file(given.model, None, 1)
    with vocabulary(path) as model:
        texts = [
            np.array(model.tokenize(text, add_special=False, parse_special=False), np.int32)
            for task in load_tasks(TASK_NAMES)
            for prompt in task.prompts
            for text in [*(message.content for message in prompt.messages), prompt.reply or ""]
        ]
        size = model.vocabulary_size
    generator = np.random.default_rng(1)
    report: dict[str, object] = {"draft_length": given.draft_length}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.tokens"
        log = TokenLog(file, "benchmark", 2 * MEMORY_TOKENS)
        documents = [_text(texts, DOCUMENT, size, generator) for _ in range(MEMORY_TOKENS // DOCUMENT)]
        log.append([Record(tokens, f"c{number % 100}", 0.0) for number, tokens in enumerate(documents)])
        began = time.perf_counter()
        memory = Memory(log=TokenLog(file, "benchmark", 2 * MEMORY_TOKENS))
        memory.load(background=False)
        report["load_s"] = time.perf_counter() - began
        report["memory_tokens"] = len(memory.index)
        report["file_bytes_per_token"] = file.stat().st_size / len(memory.index)
        report["index_bytes_per_token"] = memory.index.nbytes / len(memory.index)
        index = memory.index
        began = time.perf_counter()
        for tokens in documents[:100]:
            index.append(tokens)
        report["memory_append_us"] = (time.perf_counter() - began) / (100 * DOCUMENT) * 1e6
        report["local_and_memory_us"] = _draft_times(
            texts, 1_000, memory, given.draft_length, size, generator
        )
    for context in (1_000, 100_000):
        report[f"local_{context}_us"] = _draft_times(
            texts, context, None, given.draft_length, size, np.random.default_rng(2)
        )
    print(json.dumps(report, indent=1))


def _text(
    texts: list[NDArray[np.int32]], length: int, size: int, generator: np.random.Generator
) -> NDArray[np.int32]:
    """Pieces of the texts, with one token in twenty replaced."""
    parts: list[NDArray[np.int32]] = []
    while sum(map(len, parts)) < length:
        text = texts[generator.integers(len(texts))]
        start = int(generator.integers(max(len(text) - 20, 1)))
        parts.append(text[start : start + int(generator.integers(20, 120))])
    tokens = np.concatenate(parts)[:length].copy()
    changed = generator.random(length) < 0.05
    tokens[changed] = generator.integers(size, size=int(changed.sum()))
    return tokens


def _draft_times(
    texts: list[NDArray[np.int32]],
    context: int,
    memory: Memory | None,
    length: int,
    size: int,
    generator: np.random.Generator,
) -> dict[str, float]:
    """Times of one draft that found something, the token before it indexed, after `context` tokens."""
    drafter = SuffixDrafter(memory)
    said = _text(texts, context, size, generator).tolist()
    began = time.perf_counter()
    drafter.begin(said)
    begin = time.perf_counter() - began
    drafts = []
    for token in _text(texts, 4_000, size, generator).tolist():
        began = time.perf_counter()
        draft = drafter.propose((), Budget(length))
        drafted = time.perf_counter()
        drafter.commit(Outcome((token,), 0, 0))
        if len(draft):
            drafts.append(drafted - began)
    return {
        "append": begin / context * 1e6,
        "draft_p50": float(np.percentile(drafts, 50)) * 1e6,
        "draft_p99": float(np.percentile(drafts, 99)) * 1e6,
    }


if __name__ == "__main__":
    main()
