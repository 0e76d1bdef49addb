"""One loaded model that answers chats: templates, context window, session, events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from localspec.calibration.costs import SOME_TEXT
from localspec.calibration.loading import pass_costs
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import opening_of
from localspec.constrained import ConstrainedSampler
from localspec.draft_models import DraftModels
from localspec.drafters import models_in
from localspec.drafting import Drafting, memory_of
from localspec.errors import BadLogitsError, EngineError, PromptTooLongError, UsageError
from localspec.logprobs import check_logprobs
from localspec.messages import (
    Event,
    Finished,
    Generate,
    MemoryChanged,
    MemoryUse,
    ModelInfo,
    Note,
    PrefillProgress,
    Score,
    Scored,
    SpeculationChanged,
    Weigh,
    Weighed,
)
from localspec.models.gguf import read_header
from localspec.prompting import Prompt, Prompting
from localspec.runtime.devices import memory_use
from localspec.runtime.grammar import Grammar
from localspec.runtime.loading import describe, load
from localspec.sampling import Sampler
from localspec.scoring import reply_scores
from localspec.session import Reply, Session, StopRules
from localspec.text import ReplyText
from localspec.types import DraftOptions, EngineOptions, FinishReason
from localspec.verify import is_exact, make_verifier
from localspec.weighing import weighed
from localspec.work import Work

logger = logging.getLogger(__name__)

_MEMORY_EVERY_S = 2.0
_REASON_EVERY_S = 0.3


def _nothing(event: Event) -> None:
    del event


class Engine:
    """A model, its session and its chat template.

    Args:
        path: GGUF file.
        name: what the user calls the model.
        options: how to load it.
        progress: called with the fraction of the weights read.

    Raises:
        LocalspecError: see `localspec.runtime.loading.load`; `UsageError` for an unknown drafter or rule of
            verification, or for two that do not go together.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        options: EngineOptions,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        Drafting.check(options.draft, options.verify)
        began = time.perf_counter()
        header = read_header(path)
        self._memory = memory_of(options, header.fingerprint)
        # Before the weights: what it remembers is read while they are.
        self._drafting = Drafting(
            options.draft,
            options.verify,
            self._memory,
            enabled=options.speculation,
            vocabulary=header.vocabulary or None,
        )
        self._loaded = load(path, options, progress, header)
        self._models = DraftModels(self._loaded, options, progress)
        self._name = name
        self._verify = options.verify
        self._costs = pass_costs(path, options, self._loaded, header.file_type)
        self._calibrates = True
        self._told: set[str] = set()
        with ExitStack() as undo:
            undo.callback(self._free)
            self._open(options)
            undo.pop_all()
        self.load_s = time.perf_counter() - began

    def _open(self, options: EngineOptions) -> None:
        """Session, template and draft models of what was loaded."""
        model = self._loaded.model
        self._drafting.attach(
            self._loaded.context, self._costs.live, self._models, needed=options.needs_draft
        )
        self.session = Session(
            self._loaded.context,
            model,
            drafter=self._drafting.drafter,
            controller=self._drafting.controller(),
        )
        template = ChatTemplate.of(model, options.chat_template)
        self._prompting = Prompting(template, model, self._loaded.context.capacity)

    def _free(self) -> None:
        self._models.close()
        self._loaded.close()

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""
        state = self.speculation
        about = describe(
            self._loaded,
            self._name,
            draft=state.draft,
            speculation=state.enabled,
            reason=state.reason,
            verify=self._verify,
            exact=is_exact(self._verify),
        )
        return replace(about, draft_models=state.draft_models)

    @property
    def speculation(self) -> SpeculationChanged:
        """Whether speculation is on, with which drafter, and why not."""
        return SpeculationChanged(
            self._drafting.enabled,
            self._drafting.options.spec,
            self.session.controller.reason,
            self._models.infos,
        )

    def take_notes(self) -> list[str]:
        """What users should know of template and draft models, in a sentence or two each, each told once."""
        notes = [note for note in self._models.notes if note not in self._told]
        self._told.update(notes)
        notes = self._prompting.take_notes() + notes
        problem = self._drafting.take_problem()
        if problem:
            notes.append(f"{problem} The chat goes on without drafts.")
        return notes

    def memory(self) -> MemoryUse:
        """Memory in use now."""
        return memory_use()

    def calibrate(self) -> bool:
        """Measure one pass, where speculation has use for it; returns whether there is more to measure.

        For idle moments: it takes a second at most and leaves the session as it was.
        """
        if not (self._calibrates and self._drafting.enabled):
            return False
        tokens = self.session.tokens or self._loaded.model.tokenize(
            SOME_TEXT, add_special=True, parse_special=False
        )
        try:
            return self._costs.measure(self._loaded.context, tokens)
        except EngineError:
            logger.exception("calibration failed")
            self._calibrates = False
            # What the cache holds now is not known; the next prompt is read anew.
            self._loaded.context.clear()
            self.session.tokens = []
            return False

    def close(self) -> None:
        """Free everything."""
        self._costs.save()
        self.session.drafter.close()
        self._free()

    # --- speculation

    def set_speculation(self, enabled: bool) -> SpeculationChanged:
        """Switch speculation on or off from the next step on."""
        self._drafting.switch(enabled)
        self.session.controller = self._drafting.controller()
        return self.speculation

    def set_drafter(self, options: DraftOptions) -> SpeculationChanged:
        """Use another drafter from the next step on.

        Raises:
            LocalspecError: an unknown one, one that the rule of verification cannot judge, or a draft model
                that cannot be had; the one before goes on then.
        """
        try:
            self.session.use_drafter(self._drafting.use(options))
        finally:
            # Models of the drafter before, which is closed by now, or of one that could not be made.
            self._models.keep_only(models_in(self._drafting.options))
        self.session.controller = self._drafting.controller()
        return self.speculation

    # --- replies

    def generate(
        self,
        request: Generate,
        emit: Callable[[Event], None] = _nothing,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Finished:
        """Answer `request`.

        Args:
            request: messages or a raw prompt, sampling and stop rules.
            emit: takes the events of the reply as they happen.
            cancelled: asked before every step; may switch speculation meanwhile.

        Raises:
            PromptTooLongError: the newest message does not fit, with every older turn dropped.
            UsageError: sampling parameters out of range, or a grammar that cannot be used.
            LocalspecError: the drafter of a trial, see `Drafting.lend`.
            BadLogitsError: the model returned logits that are not numbers; names the model.
            EngineError: llama.cpp failed; the text emitted before stays valid.
        """
        if request.logprobs is not None:
            check_logprobs(request.logprobs)
        with ExitStack() as stack:
            sampler = self._sampler(request, stack)
            if request.trial is not None:
                stack.enter_context(self._drafting.lend(self.session, request.trial))
            else:
                # What trials have needed.
                self._models.keep_only(models_in(self._drafting.options))
            return self._answer(request, sampler, emit, cancelled)

    def weigh(self, request: Weigh, cancelled: Callable[[], bool] = lambda: False) -> Weighed:
        """Score two tokens where two replies part; raises what `generate` does."""
        prompt = self._prompting.prompt(request.request, request.said).tokens
        with ExitStack() as stack:
            sampler = self._sampler(request.request, stack)
            return weighed(self.session, sampler, prompt, request, cancelled)

    def score(self, request: Score, emit: Callable[[Event], None], cancelled: Callable[[], bool]) -> Scored:
        """Score a reply's tokens, all but the last part through `emit`; raises what `generate` does."""
        return reply_scores(self.session, self._prompting, request, emit, cancelled)

    def _sampler(self, request: Generate, stack: ExitStack) -> Sampler:
        """The sampler of one reply; what it holds is freed with `stack`."""
        if request.grammar is None:
            end = self._loaded.model.eog_tokens
            return Sampler(
                request.sampling, dict.fromkeys(end, float("-inf")) if request.ignore_eos else None
            )
        if request.ignore_eos:
            raise UsageError("A grammar ends the reply where it ends; leave out --ignore-eos.")
        grammar = stack.enter_context(closing(Grammar(self._loaded.model, request.grammar)))
        return ConstrainedSampler(request.sampling, grammar)

    def _answer(
        self,
        request: Generate,
        sampler: Sampler,
        emit: Callable[[Event], None],
        cancelled: Callable[[], bool],
    ) -> Finished:
        stop = self._prompting.stops(request)
        work = Work(request, emit, cancelled, started=time.perf_counter(), reply=Reply(ReplyText(stop)))
        rules = StopRules(request.max_tokens, stop, request.ignore_eos, cancelled)
        # A rule may learn while it judges: a new one each time, so that a reply depends on its seed alone.
        trial = request.trial
        self.session.verifier = make_verifier(self._verify if trial is None else trial.verify)
        if trial is None:
            self._drafting.begin()
        else:
            self.session.controller.begin()
        work.reason = self.session.controller.reason
        self._prefill(work)
        try:
            while work.reply.finish_reason is None:
                if self._extend(work, sampler, rules) == "context":
                    self._make_room(work)
        except BadLogitsError as error:
            raise BadLogitsError(f"{self._name}: {error}") from error
        work.reply.text.finish()
        if request.trial is None:
            self._remember(work)
        emit(MemoryChanged(self.memory()))
        return work.finished(self.load_s, len(self.session.tokens))

    def _prefill(self, work: Work) -> None:
        """Bring prompt and reply so far into the cache, with older turns dropped where they do not fit."""
        prompt = self._prompt(work).tokens
        emit, request = work.emit, work.request
        opening = opening_of(work.prompt_text)
        began = time.perf_counter()
        if self._memory is not None:
            self._memory.begin(request.conversation, prompt, trial=request.trial is not None)
        cached: int | None = None

        def progress(done: int) -> None:
            nonlocal cached
            cached = done if cached is None else cached
            elapsed = time.perf_counter() - began
            emit(PrefillProgress(request.id, done, len(prompt), cached, elapsed, opening))

        prefilled = self.session.prefill(prompt, progress=progress, cancelled=work.cancelled)
        work.prompt_s += prefilled.seconds
        if work.prefilled is None:
            work.prefilled = prefilled
            work.prompt_tokens = len(prompt)
        work.whole = len(self.session.tokens) == len(prompt)
        self._costs.at(len(self.session.tokens))
        if not work.whole:
            work.reply.finish_reason = "cancelled"

    def _extend(self, work: Work, sampler: Sampler, rules: StopRules) -> FinishReason | None:
        """Run steps until a rule ends the reply; returns which."""
        steps = self.session.reply(sampler, rules, work.reply, logprobs=work.request.logprobs)
        for emission in steps:
            now = time.perf_counter()
            if work.first_token_s is None:
                work.first_token_s = now - work.started
            work.tally.add(emission.stats)
            work.emit(emission.step(work.request.id))
            if problem := self._drafting.take_problem():
                self.session.controller = self._drafting.controller()
                work.emit(Note(f"{problem} The chat goes on without drafts."))
                self._tell_reason(work)
            if now - work.reason_at > _REASON_EVERY_S or work.reply.finish_reason:
                work.reason_at = now
                self._tell_reason(work)
            if now - work.memory_at > _MEMORY_EVERY_S:
                work.memory_at = now
                work.emit(MemoryChanged(self.memory()))
        return work.reply.finish_reason

    def _tell_reason(self, work: Work) -> None:
        """Say why speculation is as it is, where that is news."""
        state = self.speculation
        if work.request.trial is None and state.reason != work.reason:
            work.reason = state.reason
            work.emit(state)

    def _make_room(self, work: Work) -> None:
        """The context filled up in the middle of a reply: go on without the oldest turns."""
        if not work.request.messages:
            return
        dropped = work.dropped
        try:
            work.reply.finish_reason = None
            self._prefill(work)
        except PromptTooLongError:
            work.reply.finish_reason = "context"
        if work.dropped == dropped and work.reply.finish_reason is None:
            work.reply.finish_reason = "context"

    def _remember(self, work: Work) -> None:
        """Keep the reply for later drafts, and its tokens for the next prompt if its text says the same."""
        reply, vocabulary = work.reply, self._loaded.model
        said = list(reply.token_ids)
        if said and said[-1] in vocabulary.eog_tokens:
            said.pop()
        if self._memory is not None:
            if work.request.conversation:
                self._memory.add(said, work.request.conversation)
            if problem := self._memory.take_problem():
                work.emit(Note(f"{problem} The chat goes on without it."))
        if not work.whole:
            # The prompt was cancelled half read: the session holds only its beginning.
            return
        prompt = self.session.tokens[: len(self.session.tokens) - len(reply.token_ids)]
        self._prompting.said(work.prompt_text, prompt, reply.text.text, said)

    def _prompt(self, work: Work) -> Prompt:
        """The prompt and the reply so far; says which turns it leaves out."""
        prompt = self._prompting.prompt(work.request, work.reply.token_ids)
        work.prompt_text = prompt.text
        for note in self._prompting.take_notes():
            work.emit(Note(note))
        more = prompt.dropped > work.dropped
        work.dropped = max(prompt.dropped, work.dropped)
        if more and work.request.trial is None:
            work.emit(
                Note(
                    f"The context of {self._loaded.context.capacity} tokens is full: the oldest "
                    f"{prompt.dropped} messages are no longer sent to the model."
                )
            )
        return prompt
