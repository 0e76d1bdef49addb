"""Replies of one loaded model, made the way the bench needs them: plain, forced, free or synthetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from localspec.bench.energy import EnergyMeter
from localspec.bench.records import Configuration, Divergence
from localspec.bench.runs import Run
from localspec.bench.slices import Speaker, take_turns
from localspec.bench.synthetic import SyntheticDrafter, SyntheticVerifier
from localspec.control import DEFAULT_POLICY, Controller, FixedLength, LiveCost, Off, make_controller
from localspec.cost import CostCurve
from localspec.draft_models import DraftModels
from localspec.drafters import DEFAULT_LENGTH, LONGEST, Drafter, make_drafter
from localspec.drafters.base import FeatureDrafter, feature_drafter
from localspec.drafters.none import NoDrafter
from localspec.errors import LocalspecError
from localspec.memory.memory import Memory
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.target import TargetContext, Vocabulary
from localspec.testing import TranscriptVerifier
from localspec.types import Advice, Draft, DraftOptions, Rows, SamplingParams
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


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session speaks with."""

    drafter: Drafter
    controller: Controller
    verifier: Verifier


class Driver:
    """One context that makes one reply after the other; the prompt's cache is kept between them.

    Args:
        context: the target's cache.
        vocabulary: its tokens.
        clock: nanoseconds, monotonic.
        pass_ms: T(n) in milliseconds, by n, which policies of draft length go by.
        models: draft models by the names that drafters of the grid have for them; None: there are none.
        files: their files, by the same names.
        hush: called with True while no hidden states of the target need be kept, though a drafter wants them,
            and with False when they are to be kept again.
    """

    def __init__(
        self,
        context: TargetContext,
        vocabulary: Vocabulary,
        clock: Callable[[], int] = time.perf_counter_ns,
        pass_ms: Mapping[int, float] | None = None,
        models: DraftModels | None = None,
        files: Mapping[str, str] | None = None,
        hush: Callable[[bool], None] = lambda quiet: None,  # noqa: ARG005 - nobody reads states
    ) -> None:
        self.context = context
        self.vocabulary = vocabulary
        self._clock = clock
        self._pass_ms = dict(pass_ms or {})
        self._models = models
        self._files = dict(files or {})
        self._hush = hush
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
        with ExitStack() as made:
            parts = self._parts(reply, configuration, drafter, made)
            return self.run(reply, parts.drafter, parts.controller, _watched(parts.verifier, watch))

    def together(
        self,
        reply: Reply,
        contestants: Mapping[str, Configuration | None],
        drafters: Mapping[str, Drafter],
        number: int = 0,
    ) -> tuple[dict[str, Run], dict[str, LocalspecError]]:
        """Replies of several contestants that grow side by side; see `localspec.bench.slices`.

        Args:
            reply: what is asked; its text is forced.
            contestants: configurations by name, None for plain decoding; no two share a draft model, and one
                at most reads the target's states.
            drafters: those that already remember something, by name.
            number: of the round.

        Returns:
            The runs, and why others failed.
        """
        runs: dict[str, Run] = {}
        failed: dict[str, LocalspecError] = {}
        speakers: dict[str, Speaker] = {}
        begins: dict[str, float] = {}
        with ExitStack() as made:
            made.callback(self._hush, False)
            parts = {}
            for name, configuration in contestants.items():
                try:
                    parts[name] = self._parts(reply, configuration, drafters.get(name), made)
                except LocalspecError as error:
                    failed[name] = error
            # One that reads the prompt again for its states begins; the others find it in the cache.
            readers = {name for name, part in parts.items() if feature_drafter(part.drafter)}
            for name in sorted(parts, key=lambda name: name not in readers):
                part = parts[name]
                session = Session(
                    self.context,
                    self.vocabulary,
                    drafter=part.drafter,
                    controller=part.controller,
                    verifier=part.verifier,
                    clock=self._clock,
                )
                session.tokens = list(self._session.tokens)
                try:
                    speakers[name], begins[name] = self._begin(session, reply, part.drafter, anew=False)
                    self._session.tokens = list(session.tokens)
                    self._anew = self._anew or speakers[name].reads
                except LocalspecError as error:
                    failed[name] = error
                self._hush(True)
            ordered = {name: speakers[name] for name in contestants if name in speakers}
            # States depend on how wide the passes were that filled the cache: the same in every round.
            first = 0 if readers else number
            failed |= take_turns(ordered, self.context, self._width, number=first, hush=self._hush)
            runs = {name: one.run(begins[name]) for name, one in ordered.items() if name not in failed}
            # Behind the prompt there is the text of whoever came last.
            self._session.tokens = list(reply.prompt[: self.context.length + 1])
        return runs, failed

    def _begin(
        self, session: Session, reply: Reply, drafter: Drafter, *, anew: bool
    ) -> tuple[Speaker, float]:
        """A reply with its prompt read, and the seconds that `drafter` took for that."""
        reader = feature_drafter(drafter)
        begin_s = 0.0
        if anew or reader is not None:
            begin_s = self._fill(reply.prompt, self._width, reader, session.controller)
            session.tokens = list(self._session.tokens)
        session.drafter = drafter
        begin_s += session.prefill(reply.prompt).seconds
        tokens = len(reply.forced) if reply.forced is not None else reply.tokens
        # A recording has no end before its last token, so nothing is cut off; drafts end as in free runs.
        rules = StopRules(max_tokens=tokens, ignore_eos=not reply.stops)
        reads = reader is not None
        return Speaker(session, self.sampler(reply), rules, reads=reads, clock=self._clock), begin_s

    def _parts(
        self, reply: Reply, configuration: Configuration | None, drafter: Drafter | None, made: ExitStack
    ) -> Parts:
        """What a run is made with; `made` closes what was opened for it. None is plain decoding."""
        if configuration is None:
            return Parts(NoDrafter(), Off(), self.verifier(reply, None))
        # A new one for every reply: what a policy learns of a text must not help it in the next run.
        controller = self.controller(configuration)
        own = drafter or self.drafter(configuration)
        # A head would have states kept in the runs of others too.
        if drafter is None or feature_drafter(drafter) is not None:
            made.callback(own.close)
        if configuration.rates:
            own = SyntheticDrafter(own, self._sequence(reply))
        return Parts(own, controller, self.verifier(reply, configuration))

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
        self._anew = self._anew or feature_drafter(drafter) is not None
        session.controller = controller
        session.verifier = verifier
        speaker, begin_s = self._begin(session, reply, drafter, anew=self._anew)
        self._energy.start()
        speaker.speak()
        return speaker.run(begin_s, self._energy.stop())

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

    @property
    def counts_energy(self) -> bool:
        """Whether this machine has counters of energy, which are too slow for less than a whole reply."""
        return self._energy.source is not None

    @staticmethod
    def _sequence(reply: Reply) -> list[int]:
        return [*reply.prompt, *(reply.forced or ())]


def _watched(verifier: Verifier, watch: Watch | None) -> Verifier:
    return verifier if watch is None else watch(verifier)
