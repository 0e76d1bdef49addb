"""However a head came to know the text, it drafts what it drafts when it reads all of it anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.control import FixedLength
from localspec.runtime.context import LlamaContext
from localspec.target import Tap
from localspec.types import Budget
from tests.heads.cases import ALL, PROMPTS, Case
from tests.heads.making import Made
from tests.heads.rigs import Told, opened, plain

COUNT = 48
PROMPT = PROMPTS[2]


class Toggled(FixedLength):
    """Drafts at some lengths of the text and not at others."""

    def __init__(self, length: int, off: range) -> None:
        super().__init__(length)
        self._off = off

    def budget(self, tokens: Sequence[int]) -> Budget:
        return Budget(0) if len(tokens) in self._off else super().budget(tokens)


def check_against_fresh_reads(made: Made, case: Case, prompt: Sequence[int], told: Told) -> int:
    """Compare every draft with that of a head which read its text from the start; how many there were."""
    text = [*prompt, *told.tokens]
    compared = 0
    with opened(case, made) as rig:
        for place, draft in zip(told.places, told.drafts, strict=True):
            if len(draft) < case.length or place > len(text) - case.length - 1:
                # Cut for the end of the reply; a shorter block is another block.
                continue
            assert rig.draft(text[:place]) == draft, f"after {place} tokens"
            compared += 1
    return compared


@pytest.mark.parametrize("case", ALL, ids=str)
def test_step_by_step_as_read_at_once(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        told = rig.reply(PROMPT, COUNT)
    assert check_against_fresh_reads(made, case, PROMPT, told) > COUNT / (case.length + 1) - 3


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("off", [range(35, 400, 3), range(36, 336)], ids=["often", "long"])
def test_after_drafting_was_off(made: Made, case: Case, off: range) -> None:
    """`long` is more than the rows that are kept back; a head whose drafts came true is fed them all."""
    count = 360 if len(off) > 200 else COUNT
    with opened(case, made) as rig:
        told = rig.reply(PROMPT, count, controller=Toggled(case.length, off))
        straight = rig.reply(PROMPT, count)
    assert told.tokens == straight.tokens
    assert not any(place in off for place in told.places)
    assert max(told.places) > min(off.stop, len(PROMPT) + count - 8)
    if len(off) < 200 or told.accepted > count / 2:
        assert check_against_fresh_reads(made, case, PROMPT, told) > 4


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_prompt_that_goes_on_turns_off_or_is_shorter(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        first = rig.reply(PROMPT, COUNT)
        said = [*PROMPT, *first.tokens]
        for prompt in (
            [*said, *PROMPTS[0]],
            [*said[:50], *PROMPTS[0]],
            said[:40],
            [*said[:40], *PROMPTS[1]],
            list(PROMPTS[0]),
            list(PROMPT),
        ):
            told = rig.reply(prompt, COUNT // 2)
            assert told.tokens == plain(case, made, prompt, COUNT // 2)
            assert check_against_fresh_reads(made, case, prompt, told) > 1


@pytest.mark.parametrize("case", ALL, ids=str)
def test_put_in_where_a_reply_is_under_way(made: Made, case: Case) -> None:
    """It knows nothing of what was read before it came, and all of the next prompt."""
    with opened(case, made) as rig:
        first = rig.reply(PROMPT, COUNT)
        rig.session.use_drafter(rig.recorder)
        said = [*PROMPT, *first.tokens]
        prompt = [*said, *PROMPTS[0]]
        told = rig.reply(prompt, COUNT)
        assert rig.session.tokens == [*prompt, *told.tokens]
    assert check_against_fresh_reads(made, case, prompt, told) > 4


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_drafter_that_was_made_beside_it_and_never_used_changes_nothing(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        first = rig.reply(PROMPT, COUNT)
        rig.another()
        prompt = [*PROMPT, *first.tokens, *PROMPTS[0]]
        told = rig.reply(prompt, COUNT)
        assert rig.session.tokens == [*prompt, *told.tokens]
    assert check_against_fresh_reads(made, case, prompt, told) > 4


class CountingTap:
    """Counts the rows that are copied of each of the target's passes."""

    def __init__(self, inner: Tap, context: LlamaContext) -> None:
        self.inner, self.width, self._context = inner, inner.width, context
        self.copied: Counter[int] = Counter()
        self.reads: Counter[int] = Counter()

    def rows(self, rows: Sequence[int] | slice) -> NDArray[np.float32]:
        taken = self.inner.rows(rows)
        self.copied[self._context.passes] += len(taken)
        self.reads[self._context.passes] += 1
        return taken

    def resume(self) -> None:
        self.inner.resume()

    def pause(self) -> None:
        self.inner.pause()

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("case", ALL, ids=str)
def test_states_are_copied_once_and_only_those_that_stay(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        tap = CountingTap(rig.drafter._tap, rig.session.context)
        rig.drafter._tap = tap
        told = rig.reply(PROMPT, COUNT, controller=Toggled(case.length, range(40, 50)))
        assert max(tap.reads.values()) == 1
        assert sum(tap.copied.values()) == len(PROMPT) + len(told.tokens) - 1
