"""Several drafters in one: the better draft wins, chains go on, and exact rules stay exact."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control import FixedLength, Off
from localspec.drafters.cascade import CascadeDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.testing import OracleDrafter
from localspec.text import ReplyText
from localspec.types import Budget, Draft, Outcome, SamplingParams
from localspec.verify import make_verifier
from tests.core.test_model_drafter import GREEDY, Asked, Near, drafter_on, scripted
from tests.core.test_session import PROMPT, VOCABULARY


class Rated(FixedLength):
    """Advice under which a draft wins where its model is sure of the tokens after the first."""

    def rate(self, draft: Draft) -> float:
        return draft.confidence[-1] if draft.source == "model" else 0.25

    def prospect(self, source: str) -> float:
        return 1.0 if source == "model" else 0.0


class Fixed(OracleDrafter):
    """Drafts the same token always."""

    name = "fixed"

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        del tokens, budget
        return Draft.chain(self._sequence[:1], source=self.name, confidence=(0.5,))


def test_rejection_follows_the_target_in_a_cascade() -> None:
    """How sure a model is of its second token depends on the first: no draft may be chosen by that."""
    from scipy.stats import chisquare

    count = 8_000
    chosen = {"temperature": 1.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0}
    target, near = scripted(), Near(VOCABULARY, eog_logit=-30.0)
    ids, probs = Sampler(SamplingParams(**chosen)).distribution(target.row(PROMPT))
    seen = dict.fromkeys(ids.tolist(), 0)
    session = Session(
        target,
        target,
        drafter=CascadeDrafter([Fixed(ids[:1].tolist()), drafter_on(near)]),
        controller=Rated(2),
        verifier=make_verifier("rejection"),
    )
    for seed in range(count):
        session.prefill(PROMPT)
        into = Reply(ReplyText(()))
        for _ in session.reply(Sampler(SamplingParams(**chosen, seed=seed)), StopRules(max_tokens=3), into):
            break
        seen[into.token_ids[0]] += 1
    assert chisquare(list(seen.values()), probs * count).pvalue > 1e-6


def test_a_cascade_lets_the_better_draft_win_and_tells_the_losers() -> None:
    text = [*PROMPT, *PROMPT, *PROMPT[:4]]
    model = scripted()
    cascade = CascadeDrafter([SuffixDrafter(), drafter_on(model)])
    assert cascade.name == "suffix+model"
    cascade.begin(text)
    # The suffix draft promises more than the model's prospect of 3: the model is not asked.
    model.passes.clear()
    draft = cascade.propose(text, Budget(8, advice=Asked(8)))
    assert draft.source == "suffix"
    assert draft.tokens == tuple(PROMPT[4:] + PROMPT[:4])
    assert model.passes == []
    # Shorter than the prospect: the model is asked, and takes the step.
    draft = cascade.propose(text, Budget(2, advice=Asked(8)))
    assert model.passes != []
    cascade.commit(Outcome((PROMPT[4],), 1, 2))
    assert model.cached == tuple(text)
    # Without advice the first draft that is not empty wins.
    assert cascade.propose([*text, PROMPT[4]], Budget(2)).source == "suffix"


def test_a_models_draft_goes_on_where_its_end_was_said_before() -> None:
    """The suffix drafter has nothing for the last tokens, but for what the model drafts from there."""
    target = scripted()
    session = Session(target, target, drafter=drafter_on(scripted()), controller=Off())
    session.prefill(PROMPT)
    reply = Reply(ReplyText(()))
    list(session.reply(Sampler(GREEDY), StopRules(max_tokens=40), reply))
    said = reply.token_ids
    # The text said once, something else, and the beginning of the text again.
    text = [*PROMPT, *said, 30, 31, 30, PROMPT[-2], PROMPT[-1]]
    suffix = SuffixDrafter()
    cascade = CascadeDrafter([suffix, OneToken(said)])
    cascade.begin(text)
    size = len(suffix._text)
    draft = cascade.propose(text, Budget(12))
    assert draft.tokens[:1] == tuple(said[:1])
    assert draft.tokens == tuple(said[: len(draft)])
    assert len(suffix._text) == size
    assert list(draft.confidence) == sorted(draft.confidence, reverse=True)


class OneToken(OracleDrafter):
    """Drafts the first token of a text, and is not sure."""

    name = "one"

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        del tokens, budget
        return Draft.chain(self._sequence[:1], source=self.name, confidence=(0.6,))
