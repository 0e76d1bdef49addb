"""A rule of verification that is not exact is marked as such wherever its replies are seen."""

from __future__ import annotations

from localspec.types import DraftOptions, EngineOptions
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine


async def test_a_lossy_rule_is_marked_while_it_works_and_in_what_is_kept() -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, options=EngineOptions(verify="typical", draft=DraftOptions("ngram"))) as app:
        assert app.title.endswith("· ngram · lossy")
        await app.ready()
        await app.send("one")
        await app.until(lambda: "lossy (typical)" in app.transcript.text)
        assert app.title.endswith("· ngram · lossy")
        assert "typical · lossy" in app.panel.text
        kept = app.store.messages(app.chat.conversation.id or 0)[1].stats
    assert kept is not None
    assert (kept["verify"], kept["exact"]) == ("typical", False)
