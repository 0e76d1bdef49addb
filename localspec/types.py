"""What flows through a step, immutable: drafts, verdicts, sampling parameters and raw counters.

Token ids are plain `int`; times are integer nanoseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
"""Logits, shape [n_rows, vocabulary]; a view that the next decode overwrites."""

VerdictKind = Literal["correction", "bonus"]
FinishReason = Literal["stop", "length", "context", "cancelled"]

MEMORY_CAPACITY = 2_000_000
"""Tokens of replies that are remembered for each tokenizer where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A token tree proposed for verification, as flat tuples in topological order.

    `parents[i] < i`, and -1 stands for the root (the last verified token). A chain is the usual special
    case; the empty draft means plain decoding, so no code path handles "no draft".

    Attributes:
        tokens: token ids, one a node.
        parents: index of each node's parent, -1 for children of the root.
        confidence: estimated probability that the node survives verification, cumulative from the root.
        probs: for each node the distribution that its token was drawn from, shape [vocabulary]; empty for
            deterministic drafters (a one-hot distribution). A shorter array is 0 beyond its end (a reduced
            draft vocabulary).
        replacement: how the children of one node were drawn from `probs`, in index order: independently, or,
            where False, without replacement (each then holds the distribution of the first draw, from which
            its elder siblings are to be taken out). Gumbel top-k is without replacement.
        source: name of the drafter, for telemetry and for acceptance estimates.
        match_length: how many trailing tokens the drafter recognised, 0 where that has no meaning.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    probs: tuple[NDArray[np.float32], ...] = ()
    source: str = ""
    match_length: int = 0
    replacement: bool = True

    @classmethod
    def chain(
        cls,
        tokens: tuple[int, ...] | list[int],
        *,
        source: str = "",
        confidence: tuple[float, ...] = (),
        match_length: int = 0,
    ) -> Draft:
        """A draft without branches."""
        return cls(
            tokens=tuple(tokens),
            parents=tuple(range(-1, len(tokens) - 1)),
            confidence=confidence,
            source=source,
            match_length=match_length,
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node continues the one before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def child_with(self, node: int, token: int) -> int:
        """Index of the child of `node` (-1: the root) that carries `token`, or -1."""
        for index in range(node + 1, len(self.tokens)):
            if self.parents[index] == node and self.tokens[index] == token:
                return index
        return -1

    def prefix(self, length: int) -> Draft:
        """The first `length` nodes; parents precede children, so the result is a valid draft."""
        if length >= len(self.tokens):
            return self
        length = max(length, 0)
        return replace(
            self,
            tokens=self.tokens[:length],
            parents=self.parents[:length],
            confidence=self.confidence[:length],
            probs=self.probs[:length],
        )

    def path_to(self, node: int) -> tuple[int, ...]:
        """Node indices from a child of the root down to `node`."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def eldest_path(self) -> tuple[int, ...]:
        """Node indices from the root's first child down to a leaf, always by the first child."""
        path: list[int] = []
        for index, parent in enumerate(self.parents):
            if parent == (path[-1] if path else -1):
                path.append(index)
        return tuple(path)

    def best_chain(self) -> Draft:
        """The path to the deepest most confident leaf, for contexts that cannot verify a tree.

        Where tokens were drawn at random it is the eldest path: to choose among draws by how likely they are
        would change the distribution that they follow, and the eldest is the likeliest to be accepted anyway.
        """
        if not self.tokens or self.is_chain:
            return self
        if self.probs:
            return self.subtree(self.eldest_path())
        depth = [len(self.path_to(node)) for node in range(len(self))]
        expected = [
            sum(self.confidence[i] for i in self.path_to(node)) if self.confidence else float(depth[node])
            for node in range(len(self))
        ]
        best = max(range(len(self)), key=lambda node: (expected[node], depth[node], -node))
        return self.subtree(self.path_to(best))

    def subtree(self, nodes: Sequence[int]) -> Draft:
        """The nodes of ascending indices `nodes`, among which is every node's parent."""
        place = {-1: -1} | {node: index for index, node in enumerate(nodes)}
        return replace(
            self,
            tokens=tuple(self.tokens[i] for i in nodes),
            parents=tuple(place[self.parents[i]] for i in nodes),
            confidence=tuple(self.confidence[i] for i in nodes) if self.confidence else (),
            probs=tuple(self.probs[i] for i in nodes) if self.probs else (),
        )


EMPTY_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Candidates for one place of a draft, the first of which is its token.

    Attributes:
        tokens: their ids; none where a grammar forbids all that the drafter knows.
        chances: estimated probability of each that the target says it, everything before it being right.
        probs: the distribution that they were drawn from, without replacement, shape [vocabulary]; None where
            the rule of verification has no use for it.
    """

    tokens: tuple[int, ...]
    chances: tuple[float, ...]
    probs: NDArray[np.float32] | None = None


class Drawing(Protocol):
    """How a drafter that has logits of its own draws, so that the target's rule can judge its tokens."""

    def draw(
        self, row: NDArray[np.float32], tokens: Sequence[int], drafted: Sequence[int], count: int
    ) -> Drawn:
        """Candidates for the place after `tokens` (verified) and `drafted`.

        Args:
            row: the drafter's logits there, shape [vocabulary of the target]; not modified.
            tokens: the session's tokens.
            drafted: draft tokens after them.
            count: candidates at most.
        """


class Advice(Protocol):
    """What a drafter may ask about a draft in the making: whether and which tokens are worth their time."""

    def more(self, draft: Draft) -> bool:
        """Whether one more token than `draft` has, which may be none, is worth a pass of its `source`."""

    def block(self, source: str) -> bool:
        """Whether a draft of `source` is worth its pass, where one pass makes all of its tokens."""

    def wants(self, source: str) -> bool:
        """Whether a draft of `source` would be asked for at this step; the question commits to nothing."""

    @property
    def looking(self) -> bool:
        """Whether the draft in the making is only to learn from: little should be read for it."""

    def rate(self, draft: Draft) -> float:
        """Tokens that a pass over the best beginning of `draft` promises, a unit of time."""

    def prospect(self, source: str) -> float:
        """The same for a draft of `source` that has yet to be made, its making included."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be proposed: `tokens` nodes, on `leaves` branches at most, drawn as `drawing` says."""

    tokens: int
    leaves: int = 1
    drawing: Drawing | None = None
    advice: Advice | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier decided about a draft.

    Attributes:
        path: indices of the accepted nodes, from the root downwards.
        next_token: the target's own token after the path.
        kind: *bonus* after a fully accepted path (an empty draft included), else *correction*.
    """

    path: tuple[int, ...]
    next_token: int
    kind: VerdictKind


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step added to the session, handed to the drafter: `tokens` verified, `accepted` of the draft.

    `rows` are those of the target's pass that its cache keeps: the root's (0), then one a token but for the
    last. The row `rows[i]` belongs to the position `i` places after the root's.
    """

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    rows: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Filters in llama.cpp's order: penalties, top-k, top-p, min-p, temperature, then the draw.

    Defaults are llama.cpp's. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 switch a filter
    off. Penalties look at the last `penalty_last_n` tokens, prompt included (-1: all of them).
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StepStats:
    """Raw counters and nanoseconds of one step; every figure shown anywhere is a fold over these.

    Attributes:
        index: number of the step within its reply, from 0.
        time_ns: engine clock at the end of the step, since the reply began (after prefill).
        position: tokens in the session before the step.
        budget: draft tokens that the controller allowed; 0 is a skipped step.
        drafted: draft tokens that were verified (after trimming).
        accepted: draft tokens that were accepted and kept, the target's own token excluded.
        emitted: tokens added to the session.
        kind: what the last emitted token is; *accepted* where a stop rule ended the reply inside the draft.
        source: drafter that proposed, "" for an empty draft.
        match_length: the draft's match length.
        threads: CPU threads that the target pass used.
        draft_ns: proposing, committing and trimming.
        verify_ns: the target pass.
        sample_ns: filters, draws and comparison.
        other_ns: the rest of the step.
        leaves: branches of the draft; 1 for a chain, and without a draft.
        depth: nodes on the longest branch of a tree; 0 for a chain, which is as deep as it is long.
    """

    index: int
    time_ns: int
    position: int
    budget: int
    drafted: int
    accepted: int
    emitted: int
    kind: Literal["accepted", "correction", "bonus"]
    source: str
    match_length: int
    threads: int
    draft_ns: int
    verify_ns: int
    sample_ns: int
    other_ns: int
    leaves: int = 1
    depth: int = 0

    @property
    def total_ns(self) -> int:
        """Wall time of the step."""
        return self.draft_ns + self.verify_ns + self.sample_ns + self.other_ns

    @property
    def positions(self) -> int:
        """Positions that the draft reached ahead: its depth."""
        return self.depth or self.drafted


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn, as chat templates know it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """Which drafter, and its settings. `spec` is the value of `--draft`.

    `policy` chooses how much of it is drafted, see `localspec.control`: `length` draft tokens a step at most
    (exactly so many with the policy "fixed"), on `leaves` branches at most. The n-gram drafter's are
    described with `localspec.drafters.ngram.NgramDrafter`.

    Attributes:
        files: for each member of `spec` that is a draft model, the path of its GGUF file.
        companions: installed draft models, files by name, that "auto" takes in where they can be loaded and
            lie where the target does; one that cannot is left out.
        window: tokens of context that a draft model looks back on; None: as many as the target.
        gpu_layers: layers of a draft model on the GPU; None offloads all that fit beside the target.
    """

    spec: str = "auto"
    length: int | None = None
    ngram_min: int = 2
    ngram_max: int = 5
    ngram_pick: str = "recent"
    ngram_min_hits: int = 1
    leaves: int = 1
    policy: str = "cost"
    files: dict[str, str] = field(default_factory=dict, hash=False)
    companions: dict[str, str] = field(default_factory=dict, hash=False)
    window: int | None = None
    gpu_layers: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """How a single reply is made that is to be compared with another one.

    It is made with a drafter and a policy of its own, which know what was learnt so far and teach nothing to
    those of the chat. It is not remembered, and what its conversation said earlier is not drafted from the
    memory, which may hold a reply to this very prompt.
    """

    draft: DraftOptions
    verify: str = "coupled"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is loaded.

    Attributes:
        context: tokens of context; None takes the model's training context, at most 8192.
        threads: fixed number of CPU threads; None lets the engine follow the machine's load.
        gpu_layers: layers on the GPU; None offloads all that fit.
        batch: tokens of one prefill batch at most.
        flash_attention: None lets llama.cpp decide.
        kv_type: element type of the KV cache, such as "f16" or "q8_0".
        draft: the drafter to start with.
        needs_draft: whether a draft model that cannot be had is an error; else replies have no drafts.
        speculation: whether it starts switched on.
        chat_template: Jinja source that replaces the file's own.
        verify: the rule of verification, a name of `localspec.verify.VERIFIERS`.
        memory: folder in which replies are remembered for later drafts; None remembers nothing.
        memory_capacity: tokens of replies that are kept there.
    """

    context: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    batch: int = 512
    flash_attention: bool | None = None
    kv_type: str = "f16"
    draft: DraftOptions = field(default_factory=DraftOptions)
    needs_draft: bool = True
    speculation: bool = True
    chat_template: str | None = None
    verify: str = "coupled"
    memory: str | None = None
    memory_capacity: int = MEMORY_CAPACITY
