"""One block of the grid: a prompt, its recorded reply, every configuration in turn with plain decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from localspec.bench.driver import Driver, Reply
from localspec.bench.grid import Block
from localspec.bench.prompts import PromptVocabulary, prompt_tokens, reply_tokens
from localspec.bench.records import Configuration, Divergence, Measurement, ModelFile, Settings
from localspec.bench.rounds import PLAIN, BlockRuns, Round, plain_beside, side_by_side
from localspec.bench.runs import Run, counts, turn, undisturbed
from localspec.bench.tasks import Prompt
from localspec.bench.transcripts import Transcripts
from localspec.chat.template import ChatTemplate
from localspec.drafters import Drafter, models_of
from localspec.errors import LocalspecError, PromptTooLongError, StorageError
from localspec.memory.memory import Memory

EARLIER_TEMPERATURE = 0.8
"""An earlier reply to a question asked again was sampled, as in a chat: a greedy one is the same text."""
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the runs of a block need."""

    reply: Reply
    prompt_s: float
    note: str | None


class BlockRunner:
    """Measures blocks of one loaded file.

    Args:
        driver: makes replies.
        vocabulary: the model's tokens; also tells which may stand in a random prompt.
        template: the model's chat template.
        file: the file's facts.
        settings: the grid.
        transcripts: recorded replies.
        after_run: called after each run with the tokens that it decoded.
    """

    def __init__(
        self,
        driver: Driver,
        vocabulary: PromptVocabulary,
        template: ChatTemplate,
        file: ModelFile,
        settings: Settings,
        transcripts: Transcripts,
        after_run: Callable[[float], None],
    ) -> None:
        self._driver = driver
        self._vocabulary = vocabulary
        self._template = template
        self._file = file
        self._settings = settings
        self._transcripts = transcripts
        self._after_run = after_run

    def visit(
        self, block: Block, so_far: BlockRuns, rounds: int, keep: Callable[[Round], None]
    ) -> list[Measurement]:
        """Make `rounds` more rounds of `block`; every configuration with all its runs, or why it has none.

        Args:
            block: one sequence at a time.
            so_far: its earlier rounds; takes in the new ones.
            rounds: how many; 0 only adds up those that are there.
            keep: called with each round.
        """
        names = {str(place): configuration for place, configuration in enumerate(block.configurations)}
        with ExitStack() as drafters:
            try:
                prepared = self.prepare(block)
                memories = [self._memories(block, names, so_far, drafters) for _ in range(rounds)]
                # An earlier reply that had to be recorded first has taken the prompt's place in the cache.
                prompt_s = self._driver.prefill(prepared.reply.prompt)
                if rounds:
                    self._warm_up(prepared.reply)
                for remembering in memories:
                    made = self._round(block, prepared.reply, names, so_far, prompt_s, remembering)
                    so_far.add(made)
                    keep(made)
                return [
                    self._measurement(block, configuration, prepared, so_far, name)
                    for name, configuration in names.items()
                ]
            except StorageError:
                # That rounds cannot be kept is no fault of the block's.
                raise
            except LocalspecError as error:
                return [block.empty(configuration, str(error)) for configuration in block.configurations]

    def _memories(
        self, block: Block, names: Mapping[str, Configuration], so_far: BlockRuns, drafters: ExitStack
    ) -> dict[str, Drafter]:
        """The drafters of one round that have been through earlier replies.

        Every round has its own: one that has answered this prompt before would remember that very reply.
        """
        found = {}
        for name, configuration in names.items():
            if configuration.memory == "warm" and name not in so_far.failed:
                try:
                    found[name] = self._warm(block, configuration)
                except LocalspecError as error:
                    so_far.failed[name] = str(error)
                else:
                    drafters.callback(found[name].close)
        return found

    def prepare(self, block: Block, prompt: Prompt | None = None) -> Prepared:
        """Prompt tokens in the cache, and the text to force.

        Raises:
            PromptTooLongError: prompt and reply do not fit into the context.
            LocalspecError: the prompt cannot be rendered or decoded.
        """
        prompt = prompt or block.prompt
        settings = self._settings
        ids = tuple(prompt_tokens(prompt, self._template, self._vocabulary))
        asked = Reply(ids, settings.tokens, block.temperature, settings.seed, stops=block.task.stops)
        self._check_room(asked)
        seconds = self._driver.prefill(ids)
        if block.mode == "free":
            return Prepared(asked, seconds, None)
        given, note = self._text(prompt, asked)
        return Prepared(replace(asked, forced=tuple(given[: settings.tokens])), seconds, note)

    def _text(self, prompt: Prompt, asked: Reply) -> tuple[Sequence[int], str | None]:
        """The reply to force: the one that is given, else the model's own."""
        given = reply_tokens(prompt, self._vocabulary)
        return self._recorded(asked) if given is None else (given, None)

    def _recorded(self, asked: Reply) -> tuple[Sequence[int], str | None]:
        """The model's own reply, from disk or said now; a sentence where it could not be kept."""
        path = self._transcripts.path(self._file.sha256, asked)
        return self._transcripts.reply(path, lambda: self._driver.plain(asked).token_ids)

    def _check_room(self, reply: Reply) -> None:
        needed, capacity = len(reply.prompt) + reply.tokens, self._driver.context.capacity
        if needed > capacity:
            raise PromptTooLongError(
                f"Prompt and reply need {needed} tokens and the context holds {capacity}; "
                "raise --context or lower --max-tokens."
            )

    def _warm_up(self, reply: Reply) -> None:
        """A beginning of the reply that does not count."""
        self._driver.plain(
            replace(reply, tokens=_WARM_UP_TOKENS, forced=reply.forced and reply.forced[:_WARM_UP_TOKENS])
        )

    def _round(
        self,
        block: Block,
        reply: Reply,
        names: Mapping[str, Configuration],
        so_far: BlockRuns,
        prompt_s: float,
        memories: Mapping[str, Drafter],
    ) -> Round:
        """Plain decoding and every configuration once; one that raises is noted and leaves the rounds.

        Raises:
            LocalspecError: plain decoding failed.
        """
        runs: dict[str, Run] = {}
        failed: dict[str, str] = {}
        told = 0.0
        driver, number = self._driver, so_far.done
        going = {name: configuration for name, configuration in names.items() if name not in so_far.failed}
        # Energy is counted over whole replies, so the first round has them.
        slices = reply.forced is not None and driver.context.can_trim_far
        if slices and not (driver.counts_energy and number == 0):
            for group in side_by_side(going):
                made, broken = driver.together(reply, group, memories, number)
                for name, error in broken.items():
                    if group[name] is None:
                        raise error
                    failed[name] = str(error)
                runs |= made
                told += self._tell(len(group))
        else:
            for name in turn([PLAIN, *going], number):
                try:
                    if name == PLAIN:
                        runs[name] = driver.plain(reply)
                    else:
                        runs[name] = driver.speculative(reply, going[name], memories.get(name))
                except LocalspecError as error:
                    if name == PLAIN:
                        raise
                    failed[name] = str(error)
                told += self._tell(1)
            for name, configuration in going.items():
                if slices and models_of(configuration.draft):
                    runs[plain_beside(name)] = runs[PLAIN]
        # Of those that are out, and of plain decodings that were not needed.
        self._after_run(max(block.weight(self._settings, self._settings.runs - 1) - told, 0.0))
        return Round(block.key, self._file.sha256, number, prompt_s, runs, failed)

    def _tell(self, runs: int) -> float:
        """Say that so many runs are done; their tokens."""
        tokens = float(self._settings.tokens * runs)
        self._after_run(tokens)
        return tokens

    def _measurement(
        self, block: Block, configuration: Configuration, prepared: Prepared, so_far: BlockRuns, name: str
    ) -> Measurement:
        if name in so_far.failed or name not in so_far.series:
            return block.empty(configuration, so_far.failed.get(name, "It was not run."))
        plain = so_far.series.get(plain_beside(name)) or so_far.series[PLAIN]
        own = so_far.series[name]
        said, last = plain.last, own.last
        assert said is not None and last is not None  # noqa: S101, PT018 - a series begins with a run
        if min(*plain.seconds, *own.seconds) <= 0 or not last.token_ids:
            return block.empty(configuration, "The reply has no tokens, so there is no rate.")
        identical = divergence = None
        if block.mode == "free":
            identical = last.token_ids == said.token_ids
            if not identical:
                divergence = self._divergence(prepared.reply, said.token_ids, last.token_ids, so_far, name)
        joules = [series.energy_j for series in (plain, own)]
        return block.empty(configuration, "").model_copy(
            update={
                "baseline": plain.timing(whole=not own.aligned),
                "timing": own.timing(),
                "counts": counts(last),
                "lengths": tuple(step.drafted for step in last.steps),
                "prompt_tokens": len(prepared.reply.prompt),
                "prompt_s": undisturbed(so_far.prompt_s),
                "begin_s": statistics.median(own.begins),
                "identical": identical,
                "divergence": divergence,
                "overhead_s": last.overhead_s,
                "energy_j": None if None in joules else tuple(joules),
                "note": prepared.note,
            }
        )

    def _divergence(
        self, reply: Reply, plain: tuple[int, ...], other: tuple[int, ...], so_far: BlockRuns, name: str
    ) -> Divergence | None:
        """Where two replies part; looked up once as long as the replies stay the same."""
        known = so_far.divergences.get(name)
        if known is None or known[:2] != (plain, other):
            known = so_far.divergences[name] = (plain, other, self._driver.divergence(reply, plain, other))
        return known[2]

    def _warm(self, block: Block, configuration: Configuration) -> Drafter:
        """A drafter that has been through earlier replies.

        Where the task asks a question again: an earlier, sampled reply to the same prompt. Else the replies
        to the task's other prompts.
        """
        memory = Memory()
        prompts: Sequence[Prompt] = [p for p in block.task.prompts if p is not block.prompt]
        seed = self._settings.seed
        if block.task.ask_again:
            prompts, seed = [block.prompt], seed + 1
        for prompt in prompts:
            ids = tuple(prompt_tokens(prompt, self._template, self._vocabulary))
            temperature = EARLIER_TEMPERATURE if block.task.ask_again else block.temperature
            asked = Reply(ids, self._settings.tokens, temperature, seed, stops=True)
            said, _ = self._recorded(asked) if block.task.ask_again else self._text(prompt, asked)
            # As a chat remembers it: without the token that ended it.
            ended = bool(said) and said[-1] in self._vocabulary.eog_tokens
            memory.add(said[:-1] if ended else said, "earlier")
        return self._driver.drafter(configuration, memory)
