"""How many draft tokens of the alphabet's heads are accepted is known; the text is the plain one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from tests.heads import alphabet
from tests.heads.cases import ALL, ALPHABET, PROMPTS, Case
from tests.heads.making import Made
from tests.heads.rigs import WARM, opened, plain

COUNT = 80


def expected_draft(kind: str, tokens: Sequence[int], length: int, wrong: Collection[int]) -> list[int]:
    """What a head of the alphabet drafts after `tokens`: it skips a letter after those in `wrong`."""

    def following(letter: int, steps: int = 1) -> int:
        return (letter + steps + (letter in wrong)) % alphabet.LETTERS

    letters = [alphabet.letter(token) for token in tokens]
    if kind == "dflash":
        # Every place is told from the letter that stands a block before it.
        drafted = [following(letters[place - length - 2], length) + 1 for place in range(1, length + 1)]
    elif kind == "dspark":
        drafted, letter = [], letters[-1]
        for _ in range(length):
            letter = following(letter)
            drafted.append(letter)
    else:
        # The state behind the last token is the one before it, which the head moves on.
        drafted, letter = [], letters[-2]
        for _ in range(length):
            letter = following(letter)
            drafted.append(letter + 1)
    return [alphabet.text_after(ord("a") + (letter - 1) % alphabet.LETTERS, 1)[0] for letter in drafted]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("case", ALPHABET, ids=str)
def test_drafts_and_accepted_tokens_are_those_of_the_alphabet(
    made: Made, case: Case, prompt: tuple[int, ...]
) -> None:
    with opened(case, made) as rig:
        reply = rig.reply(prompt, COUNT)
    text = [*prompt, *alphabet.text_after(prompt[-1], COUNT)]
    assert reply.tokens == text[len(prompt) :]
    drafted = accepted = 0
    place = len(prompt)
    steps = 0
    while place < len(text):
        room = min(case.length, len(text) - place - 1)
        draft = expected_draft(case.kind, text[:place], case.length, alphabet.WRONG)[:room]
        right = next(
            (i for i, (one, two) in enumerate(zip(draft, text[place:], strict=False)) if one != two), room
        )
        if room:
            assert list(reply.drafts[steps][:room]) == draft
            steps += 1
        drafted += room
        accepted += right
        place += right + 1
    assert (reply.accepted, reply.drafted) == (accepted, drafted)


@pytest.mark.parametrize("case", ALPHABET, ids=str)
def test_a_head_that_is_never_wrong_has_every_token_accepted(made: Made, case: Case) -> None:
    with opened(case.with_head(wrong=()), made) as rig:
        reply = rig.reply(tuple(b"abcdefgh"), COUNT)
    assert reply.accepted == reply.drafted > 0
    assert reply.tokens == alphabet.text_after(ord("h"), COUNT)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_text_is_that_of_plain_decoding(made: Made, case: Case, prompt: tuple[int, ...]) -> None:
    with opened(case, made) as rig:
        reply = rig.reply(prompt, COUNT)
    assert reply.tokens == plain(case, made, prompt, COUNT)
    assert reply.drafted > 0


@pytest.mark.parametrize("case", ALL, ids=str)
def test_seeded_text_at_a_temperature_is_the_same_with_and_without_drafts(made: Made, case: Case) -> None:
    warm = case.with_target(sharpness=9.0) if case in ALPHABET else case
    with opened(warm, made) as rig:
        replies = [rig.reply(prompt, COUNT, params=WARM) for prompt in PROMPTS]
    assert [reply.tokens for reply in replies] == [
        plain(warm, made, prompt, COUNT, WARM) for prompt in PROMPTS
    ]
    # The seed has to matter, or this is the greedy text again.
    assert [reply.tokens for reply in replies] != [plain(warm, made, prompt, COUNT) for prompt in PROMPTS]
