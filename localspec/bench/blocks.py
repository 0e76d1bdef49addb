"""One block of the grid: a prompt, its recorded reply, every configuration in turn with plain decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.bench.driver import Driver, Reply
from localspec.bench.grid import Block
from localspec.bench.prompts import PromptVocabulary, prompt_tokens, reply_tokens
from localspec.bench.records import Configuration, Measurement, ModelFile, Settings
from localspec.bench.runs import Run, alternate, counts, timing
from localspec.bench.tasks import Prompt
from localspec.bench.transcripts import Transcripts
from localspec.chat.template import ChatTemplate
from localspec.drafters import Drafter, make_drafter
from localspec.errors import LocalspecError, PromptTooLongError
from localspec.types import DraftOptions, Outcome

PLAIN = "plain"
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

    def measure(self, block: Block) -> list[Measurement]:
        """Every configuration of `block`; one that fails keeps its place and says why."""
        try:
            prepared = self.prepare(block)
        except LocalspecError as error:
            return [block.empty(configuration, str(error)) for configuration in block.configurations]
        reply, driver = prepared.reply, self._driver
        drafters: list[Drafter] = []
        failed: dict[str, str] = {}
        contestants: dict[str, Callable[[], Run]] = {PLAIN: lambda: driver.plain(reply)}
        names = {str(place): configuration for place, configuration in enumerate(block.configurations)}
        for name, configuration in names.items():
            try:
                drafter = self._warm(block, configuration) if configuration.memory == "warm" else None
                # A rule or a drafter that cannot be had shows here, not in the middle of a round.
                driver.verifier(reply, configuration)
            except LocalspecError as error:
                failed[name] = str(error)
                continue
            drafters += [drafter] if drafter else []
            contestants[name] = self._contestant(reply, configuration, drafter)
        try:
            runs = self._rounds(reply, contestants, failed)
        finally:
            for drafter in drafters:
                drafter.close()
        return [
            self._measurement(block, configuration, prepared, runs, name, failed.get(name))
            for name, configuration in names.items()
        ]

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

    def _contestant(
        self, reply: Reply, configuration: Configuration, drafter: Drafter | None
    ) -> Callable[[], Run]:
        return lambda: self._driver.speculative(reply, configuration, drafter)

    def _rounds(
        self, reply: Reply, contestants: dict[str, Callable[[], Run]], failed: dict[str, str]
    ) -> dict[str, list[Run]]:
        """Warm up, then run in turn; a contestant that raises is noted and leaves the rounds."""
        warm = replace(reply, tokens=_WARM_UP_TOKENS, forced=reply.forced and reply.forced[:_WARM_UP_TOKENS])
        self._driver.plain(warm)

        def guarded(name: str, contestant: Callable[[], Run]) -> Callable[[], Run]:
            def run() -> Run:
                if name in failed:
                    return Run((), 0.0)
                try:
                    return contestant()
                except LocalspecError as error:
                    if name == PLAIN:
                        raise
                    failed[name] = str(error)
                    return Run((), 0.0)

            return run

        guards = {name: guarded(name, contestant) for name, contestant in contestants.items()}
        try:
            return alternate(
                guards, self._settings.runs, after_each=lambda: self._after_run(self._settings.tokens)
            )
        except LocalspecError as error:
            failed.update(dict.fromkeys(contestants, str(error)))
            return {}

    def _measurement(
        self,
        block: Block,
        configuration: Configuration,
        prepared: Prepared,
        runs: dict[str, list[Run]],
        name: str,
        failure: str | None,
    ) -> Measurement:
        if failure is not None or name not in runs:
            return block.empty(configuration, failure or "It was not run.")
        plain, own = runs[PLAIN], runs[name]
        if min(run.seconds for run in (*plain, *own)) <= 0 or not own[-1].token_ids:
            return block.empty(configuration, "The reply has no tokens, so there is no rate.")
        identical = divergence = None
        if block.mode == "free":
            identical = own[-1].token_ids == plain[-1].token_ids
            if not identical:
                divergence = self._driver.divergence(prepared.reply, plain[-1].token_ids, own[-1].token_ids)
        joules = [run.energy_j for run in (plain[-1], own[-1])]
        return block.empty(configuration, "").model_copy(
            update={
                "baseline": timing(plain),
                "timing": timing(own),
                "counts": counts(own[-1]),
                "lengths": tuple(step.drafted for step in own[-1].steps),
                "prompt_tokens": len(prepared.reply.prompt),
                "prompt_s": prepared.prompt_s,
                "begin_s": statistics.median(run.begin_s for run in own),
                "identical": identical,
                "divergence": divergence,
                "overhead_s": own[-1].overhead_s,
                "energy_j": None if None in joules else tuple(joules),
                "note": prepared.note,
            }
        )

    def _warm(self, block: Block, configuration: Configuration) -> Drafter:
        """A drafter that has been through earlier replies.

        Where the task asks a question again: an earlier, sampled reply to the same prompt. Else the replies
        to the task's other prompts.
        """
        drafter = make_drafter(DraftOptions(configuration.draft, configuration.length))
        prompts: Sequence[Prompt] = [p for p in block.task.prompts if p is not block.prompt]
        seed = self._settings.seed
        if block.task.ask_again:
            prompts, seed = [block.prompt], seed + 1
        for prompt in prompts:
            ids = tuple(prompt_tokens(prompt, self._template, self._vocabulary))
            temperature = EARLIER_TEMPERATURE if block.task.ask_again else block.temperature
            asked = Reply(ids, self._settings.tokens, temperature, seed, stops=True)
            said, _ = self._recorded(asked) if block.task.ask_again else self._text(prompt, asked)
            drafter.begin(list(ids))
            drafter.commit(Outcome(tuple(said), 0, 0))
        return drafter
