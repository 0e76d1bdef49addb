"""llama-server drafts the same: text, counts, and draft by draft."""

from __future__ import annotations

import pytest

from tests.heads.cases import ALL, PROMPTS, Case
from tests.heads.making import Made
from tests.heads.rigs import opened
from tests.heads.server_child import served

COUNT = 80


@pytest.mark.parametrize("length", [3, 1], ids=["full", "single"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_servers_drafts_are_ours(made: Made, case: Case, length: int) -> None:
    target, head = case.files(made)
    length = case.length if length > 1 else 1
    with opened(case, made, length=length) as rig:
        for prompt in PROMPTS:
            # A new one for each: with MTP the server begins a prompt with a state of the reply before.
            theirs = served(target, case.kind, prompt, head=head, length=length, count=COUNT)
            # The server drafts once it has a token of its own; ours from the prompt's last token on.
            ours = rig.reply([*prompt, theirs.tokens[0]], COUNT - 1)
            assert ours.tokens == list(theirs.tokens[1:])
            assert (ours.accepted, ours.drafted) == (theirs.accepted, theirs.drafted)
            assert len(ours.drafts) == len(theirs.drafts)
            for our_draft, their_draft in zip(ours.drafts, theirs.drafts, strict=True):
                # Towards the end the server drafts more than it has use for; a shorter block is another.
                if len(our_draft) == len(their_draft) or case.kind not in ("dflash", "dspark"):
                    assert our_draft == their_draft[: len(our_draft)]
