"""From a target to a head: texts, states, training, a file, and what it is worth."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError, NotEnoughMemoryError, StorageError, UsageError
from localspec.models.disk import readable_size
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.heads import highest_tap
from localspec.train.sizes import AT_ONCE, BATCH, DRAFTED, LEARNT_SINCE, LONGEST
from localspec.train.state import CHECKPOINT, Clock, Run, run_folder, write_whole
from localspec.train.target import check_trainable

if TYPE_CHECKING:
    from localspec.runtime.model import LlamaModel
    from localspec.train.writing import Writer

PIECE, PIECE_S = 64, 60.0
"""Texts that are kept together, and seconds they may take: an interrupt loses at most the piece at work."""
MOST_TOKENS = 600_000
FEWEST_TOKENS = 2_000
"""Below it there is too little to learn from."""
_TEXTS, _END = 0.4, 0.06
"""Shares of the time: for texts, and for judging and trying out."""
_HALF = 2
"""Bytes of a number of half precision."""
_TOKENS_A_SECOND = 1e9
"""Tokens that are written in a second by a model of one byte; a rough guess, for the estimate alone."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        name: of the target, as the user has it.
        target: its file.
        minutes: for all of it.
        tokens: of texts at most; None: as many as there is time for.
        threads: of the CPU; None: as many as there are cores, fewer while other programs compute.
        questions: the user's own, in place of the target's; empty for none.
        from_history: whether they come from chats, which go on while a run is interrupted.
        output: the head's file; None: beside the run.
        fresh: begin anew where there is an unfinished run.
        seed: of all that is drawn.
    """

    name: str
    target: Path
    minutes: float
    threads: int | None
    tokens: int | None = None
    questions: tuple[str, ...] = ()
    from_history: bool = False
    output: Path | None = None
    fresh: bool = False
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a course will take, before it begins.

    Attributes:
        tokens: of texts at most.
        disk_bytes: of the states.
        memory_bytes: of the model, the network and what training needs.
    """

    tokens: int
    disk_bytes: int
    memory_bytes: int


Show = Callable[[float, str], None]
"""Called with the share of the work that is done and what is at work."""


def check(request: Request) -> GGUFHeader:
    """The target's header, once it is known that a head can be made for it.

    Raises:
        IncompatibleError: it cannot; says why.
        ModelFileError, NotFoundError: no such file, or no model.
    """
    from localspec.errors import IncompatibleError
    from localspec.models.compat import check_target_file

    header = read_header(request.target)
    check_target_file(header)
    if highest_tap(header.architecture, header.block_count) is None:
        raise IncompatibleError(
            f"No head can be trained for {header.path.name}: llama.cpp hands out no hidden states of models "
            f"of the architecture '{header.architecture}'; choose another model."
        )
    check_trainable(header)
    return header


def estimate(request: Request, header: GGUFHeader, run: Run) -> Estimate:
    """What it will still take; the numbers are upper bounds, but for the memory, which is about right."""
    from localspec.train.widening import copy_bytes

    width, inner = header.embedding_length, header_inner(header)
    wanted = request.tokens or MOST_TOKENS
    writing = _TOKENS_A_SECOND / max(header.tensor_bytes, 1) * 100
    tokens = int(min(wanted, max(FEWEST_TOKENS, request.minutes * 60 * _TEXTS * writing)))
    copy = copy_bytes(header, run.folder)
    weights = DRAFTED * width + 16 * width * width + 3 * width * inner
    # A checkpoint is the weights and two moments of each; the one before stays until it is written.
    disk = tokens * 4 * width * _HALF + copy + 2 * 12 * weights + 64_000_000
    return Estimate(tokens, max(disk - run.size, 0), _memory(header, copy, weights, inner))


def _memory(header: GGUFHeader, copy: int, weights: int, inner: int) -> int:
    """Bytes of memory: the more of what writing and what training takes."""
    width, heads = header.embedding_length, max(header.head_count, default=1)
    rows = AT_ONCE * LONGEST
    layer = sum(header.head_count_kv[:1]) * (header.key_length + header.value_length)
    writing = max(header.tensor_bytes, copy) + rows * _HALF * (layer * header.block_count + 4 * width)
    # Embeddings of all tokens, as they are read and as they are kept; the head, its gradient and two moments.
    fixed = 4 * (header.vocabulary * width * 2 + 4 * weights)
    # Three times what is alive at once: texts of all lengths leave holes in the heap (5.1 GB for SmolLM2).
    places = BATCH * 4 * len(LEARNT_SINCE) * (72 * width + 24 * inner + 30 * heads * LONGEST)
    return max(writing, fixed + places + BATCH * DRAFTED * _HALF) + 800_000_000


def header_inner(header: GGUFHeader) -> int:
    """Width of the feed-forward."""
    value = header.metadata.get(f"{header.architecture}.feed_forward_length", 0)
    return max(value) if isinstance(value, tuple) else int(value or 0)


def check_room(found: Estimate, folder: Path) -> None:
    """Raise `StorageError` or `NotEnoughMemoryError` where disk or memory is short."""
    import psutil

    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < found.disk_bytes:
        raise StorageError(
            f"Training needs {readable_size(found.disk_bytes)} in {there} and {readable_size(free)} are "
            "free; free some space, or give fewer --tokens."
        )
    memory = psutil.virtual_memory().available
    if memory < found.memory_bytes:
        raise NotEnoughMemoryError(
            f"Training needs {readable_size(found.memory_bytes)} of memory and {readable_size(memory)} are "
            "free; close other programs, or choose a smaller model."
        )


def open_run(request: Request, header: GGUFHeader) -> Run:
    """The run of a request, which goes on where it was left unless that was another one.

    Nothing is written before its `begin`.
    """
    stat = request.target.stat()
    asked = hashlib.sha256("\0".join(request.questions).encode()).hexdigest()
    settings = {
        "target": str(request.target.absolute()), "bytes": stat.st_size, "tokenizer": header.fingerprint,
        "questions": "of chats" if request.from_history else asked, "seed": request.seed,
    }  # fmt: skip
    return Run(run_folder(request.name, "eagle3"), settings, fresh=request.fresh)


def _writer(
    path: Path, layers: tuple[int, ...], threads: int | None, seed: int, questions: Sequence[str]
) -> tuple[LlamaModel, Writer]:
    """The target, and what writes with it: on the GPU where both fit there."""
    from localspec.runtime.model import LlamaModel
    from localspec.train.writing import Writer

    def opened(gpu_layers: int) -> tuple[LlamaModel, Writer]:
        model = LlamaModel(path, gpu_layers=gpu_layers)
        try:
            return model, Writer(model, layers, threads, seed, questions)
        except BaseException:
            model.close()
            raise

    try:
        return opened(-1)
    except LocalspecError:
        return opened(0)


class Course:
    """The work itself; each part goes on where an earlier start has left it.

    Args:
        request: what is asked for.
        header: of the target.
        run: where it is kept.
        show: takes the progress.
    """

    def __init__(self, request: Request, header: GGUFHeader, run: Run, show: Show) -> None:
        from localspec.train.features import tapped_layers

        self._request, self._header, self._run, self._show = request, header, run, show
        self._total = request.minutes * 60
        self.layers = tapped_layers(header.block_count)

    def write_texts(self) -> int:
        """Have the target write; returns the tokens there are.

        Raises:
            StorageError: no room on the disk.
        """
        from localspec.train.features import save_lesson, saved_lessons
        from localspec.train.widening import file_to_write_with
        from localspec.train.writing import Text

        request = self._request
        written = saved_lessons(self._run)
        pieces, tokens = len(written), sum(len(piece.tokens) for piece in written)
        most = request.tokens or MOST_TOKENS
        clock = Clock(self._run, "texts", self._total * _TEXTS)
        # What a head in training drafts, and the scale of its inputs, come from all texts: no more then.
        training = self._run.path(CHECKPOINT).is_file()
        if training or tokens >= most or (clock.share >= 1 and tokens >= FEWEST_TOKENS):
            return tokens
        self._tell("making ready to write", clock)
        path = file_to_write_with(request.target, self._header, self._run, request.threads)
        questions = self._questions()
        seed = request.seed + pieces
        model, writer = _writer(path, self.layers, request.threads, seed, questions)
        try:
            piece: list[Text] = []
            saved = clock.seconds
            for text in writer.texts():
                piece.append(text)
                tokens += len(text.tokens)
                enough = tokens >= most or (clock.share >= 1 and tokens >= FEWEST_TOKENS)
                if len(piece) == PIECE or clock.seconds - saved > PIECE_S or enough:
                    save_lesson(self._run, pieces, piece)
                    pieces, piece, saved = pieces + 1, [], clock.seconds
                    clock.tick(save=True)
                self._tell(f"{request.name} writes texts: {tokens} tokens", clock)
                if enough:
                    break
        finally:
            writer.close()
            model.close()
        return tokens

    def train(self, output: Path) -> Sequence[float]:
        """Train on the states and write the head; returns the acceptance by place on held-out texts.

        Raises:
            StorageError: no room on the disk.
            UsageError: no time was left to learn in.
        """
        import torch

        from localspec.runtime.cores import physical_cores
        from localspec.train.copying import teach_copying
        from localspec.train.export import export
        from localspec.train.features import saved_lessons
        from localspec.train.lessons import Lessons
        from localspec.train.loop import Trainer
        from localspec.train.network import Head
        from localspec.train.target import TargetWeights

        torch.set_num_threads(self._request.threads or physical_cores())
        torch.manual_seed(self._request.seed)
        lessons = Lessons(saved_lessons(self._run))
        target = TargetWeights(self._request.target, self._header)
        chosen = lessons.chosen(self._header.vocabulary)
        head, embeddings = Head(target, lessons.scale, chosen), target.embeddings()
        teach_copying(head, lessons, embeddings)
        trainer = Trainer(head, lessons, embeddings, chosen, self._run)
        # What was learnt after the last checkpoint is lost, and so is not counted.
        self._run.spent.training = trainer.seconds
        left = self._total * (1 - _END) - self._run.spent.texts
        clock = Clock(self._run, "training", max(left, 0.0))
        trainer.train(clock, lambda word: self._tell(f"training: {word}", clock))
        if not trainer.steps:
            raise UsageError(
                f"{self._request.minutes:g} minutes are not enough to learn anything from the texts; begin "
                "again with more --minutes: the texts stay."
            )
        self._tell("judging by texts that were held out", clock)
        judged = trainer.judge()
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(
            output,
            lambda path: export(path, head, target, layers=self.layers, scale=lessons.scale, chosen=chosen),
        )
        return judged.conditional

    def _questions(self) -> tuple[str, ...]:
        """The user's own questions, which are those of the run's first start."""
        path = self._run.path("questions.json")
        if not path.is_file():
            text = json.dumps(self._request.questions)
            write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
        return tuple(json.loads(path.read_text(encoding="utf-8")))

    def _tell(self, word: str, clock: Clock) -> None:
        clock.tick()
        done = self._run.spent.texts + self._run.spent.training
        self._show(min(done / self._total if self._total else 1.0, 1.0), word)
