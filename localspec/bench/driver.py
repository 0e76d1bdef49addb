"""Replies of one loaded model, made the way the bench needs them: plain, forced, free or synthetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from localspec.bench.energy import EnergyMeter
from localspec.bench.records import Configuration, Divergence
from localspec.bench.runs import Run
from localspec.bench.synthetic import SyntheticDrafter, SyntheticVerifier
from localspec.control import DEFAULT_POLICY, Controller, FixedLength, LiveCost, Off, make_controller
from localspec.cost import CostCurve
from localspec.draft_models import DraftModels
from localspec.drafters import DEFAULT_LENGTH, LONGEST, Drafter, make_drafter
from localspec.drafters.base import FeatureDrafter, feature_drafter
from localspec.drafters.none import NoDrafter
from localspec.memory.memory import Memory
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.target import TargetContext, Vocabulary
from localspec.testing import TranscriptVerifier
from localspec.types import Advice, Draft, DraftOptions, Rows, SamplingParams, StepStats
from localspec.verify import CoupledVerifier, Verifier, make_verifier

Watch = Callable[[Verifier], Verifier]

NO_DRAFTS = "none"
_READ_WIDTH = 128


@dataclass(frozen=True, slots=True)
class Reply:
    """What is asked of a run.

    Attributes:
        prompt: token ids.
        tokens: reply tokens at most.
        temperature: of the sampling; the other filters are llama.cpp's defaults.
        seed: of the sampling.
        forced: the recorded reply; None lets the model speak.
        stops: whether the reply ends where the model ends it.
    """

    prompt: tuple[int, ...]
    tokens: int
    temperature: float = 0.0
    seed: int = 1
    forced: tuple[int, ...] | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class TreePass:
    """A pass over a tree that is no draft: what it holds and which path is kept."""

    root: int
    draft: Draft
    path: tuple[int, ...]


class Driver:
    """One context that makes one reply after the other; the prompt's cache is kept between them.

    Args:
        context: the target's cache.
        vocabulary: its tokens.
        clock: nanoseconds, monotonic.
        pass_ms: T(n) in milliseconds, by n, which policies of draft length go by.
        models: draft models by the names that drafters of the grid have for them; None: there are none.
        files: their files, by the same names.
    """

    def __init__(
        self,
        context: TargetContext,
        vocabulary: Vocabulary,
        clock: Callable[[], int] = time.perf_counter_ns,
        pass_ms: Mapping[int, float] | None = None,
        models: DraftModels | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self.context = context
        self.vocabulary = vocabulary
        self._clock = clock
        self._pass_ms = dict(pass_ms or {})
        self._models = models
        self._files = dict(files or {})
        # What drafting takes is the machine's, like T(n): it is not found out anew for every reply.
        self._drafting: dict[str, dict[str, float]] = {}
        self._energy = EnergyMeter()
        self._read: tuple[tuple[int, ...], float] | None = None
        self._width = context.max_batch
        self._anew = False
        self._session = Session(context, vocabulary, drafter=NoDrafter(), controller=Off(), clock=clock)

    def prefill(self, prompt: Sequence[int]) -> float:
        """Seconds to read `prompt` into an empty cache; raises `PromptTooLongError` where it does not fit.

        Passes are as wide as the context allows: the same widths every time, since other ones round otherwise
        and may change a reply. A prompt that the cache still holds is not read again: its time is known.
        """
        held = self._session.tokens[: len(prompt)] == list(prompt)
        if held and self._read is not None and self._read[0] == tuple(prompt):
            return self._read[1]
        began = self._clock()
        self._fill(prompt, self.context.max_batch)
        seconds = (self._clock() - began) * 1e-9
        self._read = (tuple(prompt), seconds)
        return seconds

    def read(self, prompt: Sequence[int]) -> None:
        """Read `prompt` into an empty cache in narrow passes of one width; raises `PromptTooLongError`."""
        self._fill(prompt, min(_READ_WIDTH, self.context.max_batch))
        self._read = None

    def _fill(
        self,
        prompt: Sequence[int],
        width: int,
        reader: FeatureDrafter | None = None,
        advice: Advice | None = None,
    ) -> float:
        """Read `prompt` into an empty cache; seconds that `reader` took to take in the target's states."""
        self.context.clear()
        self._session.tokens = []
        self._session.drafter = NoDrafter()
        self._width = width
        taken = 0
        if reader is not None:
            reader.holds(prompt[:-1], advice)
        if len(prompt) < self.context.capacity:
            held = list(prompt[:-1])
            for start in range(0, len(held), width):
                piece = held[start : start + width]
                self.context.decode(piece, "none")
                if reader is not None:
                    began = self._clock()
                    reader.observe(start, piece)
                    taken += self._clock() - began
            self._session.tokens = held
        # Finds everything there, or says that there is no room.
        self._session.prefill(prompt)
        return taken * 1e-9

    def passes(self, prompt: Sequence[int], pieces: Iterable[Sequence[int] | TreePass]) -> Iterator[Rows]:
        """Rows of the passes that decode `pieces` after `prompt[:-1]`, without a session.

        Yields:
            Rows of one piece, shape [tokens, vocabulary]; a view that the next pass overwrites. The cache is
            empty afterwards.
        """
        self.read(prompt)
        try:
            for piece in pieces:
                if isinstance(piece, TreePass):
                    yield self.context.decode_tree(piece.root, piece.draft)
                    self.context.keep_path(piece.path)
                else:
                    yield self.context.decode(piece, "all")
        finally:
            self.context.clear()
            self._session.tokens = []
            self._read = None

    def plain(self, reply: Reply, watch: Watch | None = None) -> Run:
        """Plain decoding, through the very step that speculation takes; `watch` may wrap its verifier."""
        return self.run(reply, NoDrafter(), Off(), _watched(self.verifier(reply, None), watch))

    def speculative(
        self,
        reply: Reply,
        configuration: Configuration,
        drafter: Drafter | None = None,
        watch: Watch | None = None,
    ) -> Run:
        """Decoding with drafts.

        Args:
            reply: what is asked.
            configuration: drafter, length or policy, rule and rates.
            drafter: one that already remembers something; None makes a new one.
            watch: wraps the verifier in one that looks on.

        Raises:
            UsageError: a policy without a T(n) to go by.
        """
        # A new one for every reply: what a policy learns of a text must not help it in the next run.
        controller = self.controller(configuration)
        own = drafter or self.drafter(configuration)
        if configuration.rates:
            own = SyntheticDrafter(own, self._sequence(reply))
        try:
            verifier = _watched(self.verifier(reply, configuration), watch)
            return self.run(reply, own, controller, verifier)
        finally:
            # A head would have states kept in the runs of others too.
            if drafter is None or feature_drafter(drafter) is not None:
                own.close()

    def drafter(self, configuration: Configuration, memory: Memory | None = None) -> Drafter:
        """A new drafter; raises `LocalspecError` for one that cannot be had."""
        options = DraftOptions(
            configuration.draft, configuration.length, leaves=configuration.leaves, files=self._files
        )
        models = self._models
        model = None if models is None else lambda name: models.drafter(name, options)
        return make_drafter(options, memory, model)

    def controller(self, configuration: Configuration) -> Controller:
        """What chooses the draft length; raises `UsageError` where that needs a T(n) and there is none."""
        if configuration.draft == NO_DRAFTS:
            return Off()
        if configuration.length is not None and configuration.policy is None:
            return FixedLength(configuration.length, leaves=configuration.leaves)
        policy = configuration.policy or DEFAULT_POLICY
        cost = LiveCost(CostCurve(self._pass_ms), self._pass_ms.get(1, 0.0) * 1e-3)
        cost.drafting = self._drafting.setdefault(configuration.draft, {})
        return make_controller(
            policy,
            cost,
            longest=configuration.length or (DEFAULT_LENGTH if policy == "fixed" else LONGEST),
            leaves=configuration.leaves,
        )

    def run(self, reply: Reply, drafter: Drafter, controller: Controller, verifier: Verifier) -> Run:
        """One reply of these parts of a session.

        A drafter that reads the target's states sees the prompt read again, in passes as wide as before; and
        once there was one, all others do too, since the passes after that are slower for half a second.
        """
        session = self._session
        reader = feature_drafter(drafter)
        self._anew = self._anew or reader is not None
        begin_s = self._fill(reply.prompt, self._width, reader, controller) if self._anew else 0.0
        session.drafter = drafter
        session.controller = controller
        session.verifier = verifier
        begin_s += session.prefill(reply.prompt).seconds
        sampler = self.sampler(reply)
        tokens = len(reply.forced) if reply.forced is not None else reply.tokens
        # A recording has no end before its last token, so nothing is cut off; drafts end as in free runs.
        rules = StopRules(max_tokens=tokens, ignore_eos=not reply.stops)
        steps: list[StepStats] = []
        overhead, clock = 0, self._clock
        self._energy.start()
        for emission in session.reply(sampler, rules):
            began = clock()
            steps.append(emission.stats)
            overhead += clock() - began
        joules = self._energy.stop()
        said = tuple(session.tokens[len(reply.prompt) :])
        return Run(
            token_ids=said,
            seconds=sum(step.total_ns for step in steps) * 1e-9,
            steps=tuple(steps),
            begin_s=begin_s,
            overhead_s=overhead * 1e-9,
            energy_j=joules,
        )

    def verifier(self, reply: Reply, configuration: Configuration | None) -> Verifier:
        """The rule for a run: forced where a text is, by name where not."""
        if configuration is not None and configuration.rates:
            return SyntheticVerifier(self._sequence(reply), configuration.rates, reply.seed)
        if reply.forced is not None:
            return TranscriptVerifier(self._sequence(reply))
        return CoupledVerifier() if configuration is None else make_verifier(configuration.verify)

    def sampler(self, reply: Reply) -> Sampler:
        """Filters and noise; end-of-generation tokens are forbidden where the length is fixed."""
        forbidden = None
        if reply.forced is None and not reply.stops:
            forbidden = dict.fromkeys(self.vocabulary.eog_tokens, float("-inf"))
        return Sampler(SamplingParams(temperature=reply.temperature, seed=reply.seed), forbidden)

    def divergence(self, reply: Reply, plain: Sequence[int], other: Sequence[int]) -> Divergence | None:
        """Where `other` left `plain`, and by how little plain decoding preferred its own token there.

        The plain run is decoded once more, token by token, so that its rows are the very ones that decided.
        """
        index = next(
            (place for place, (one, two) in enumerate(zip(plain, other, strict=False)) if one != two), None
        )
        if index is None:
            return None
        self._session.drafter = NoDrafter()
        self._session.prefill(reply.prompt)
        sequence = [*reply.prompt, *plain[:index]]
        row = None
        for token in sequence[len(reply.prompt) - 1 :]:
            row = self.context.decode([token], "all")[0]
        assert row is not None  # noqa: S101 - the last token of the prompt is always decoded
        margin = self.sampler(reply).margin(row, len(sequence), sequence, plain[index], other[index])
        self._session.tokens = sequence
        return Divergence(index=index, plain=plain[index], other=other[index], margin=margin)

    @staticmethod
    def _sequence(reply: Reply) -> list[int]:
        return [*reply.prompt, *(reply.forced or ())]


def _watched(verifier: Verifier, watch: Watch | None) -> Verifier:
    return verifier if watch is None else watch(verifier)
