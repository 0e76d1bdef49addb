"""The token view on the real model: what it says of tokens is what `run --json --logprobs` says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.store import Store
from localspec.client import EngineClient
from localspec.model_files import WantedFiles
from localspec.models.registry import resolve
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tests.tui.helpers import Running
from tests.tui.token_engine import Look
from tui.app import LocalspecApp
from tui.launch import Launch
from tui.token_reading import Figures

pytestmark = pytest.mark.model

PROMPT = "Repeat three times: the keeper lights the lamp at dusk and puts it out at dawn."
TOKENS = 60


def told(model: Path) -> dict[str, Any]:
    """What the command says of the same reply."""
    command = [
        sys.executable, "-m", "localspec", "run", PROMPT, "--model", str(model), "--draft", "suffix",
        "--json", "--draft-length", "6", "--policy", "fixed", "--logprobs", "5", "--seed", "5",
        "--temperature", "0.8", "--max-tokens", str(TOKENS), "--context", "512", "--threads", "1",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_tokens_are_those_of_the_command_and_the_chat_goes_on(
    smollm2_path: Path, tmp_path: Path
) -> None:
    wanted = told(smollm2_path)
    draft = DraftOptions("suffix", 6, policy="fixed")
    options = EngineOptions(context=512, threads=1, draft=draft, needs_draft=False)
    launch = Launch(
        WantedFiles(resolve(str(smollm2_path)), options, {}),
        SamplingParams(temperature=0.8, seed=5),
        conversation="new",
        max_tokens=TOKENS,
    )
    store = Store(tmp_path / "conversations.db")
    app = LocalspecApp(launch, EngineClient(log_path=tmp_path / "engine.log"), store)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            found = Running(app, pilot, None, store)
            await found.until(lambda: found.chat.ready, 60)
            await found.send(PROMPT)
            await found.until(lambda: found.chat.state.reply.steps > 3, 60)
            # In the middle of the reply tokens are spelled already, between two of its steps.
            look = Look(found, None)
            await look.open()
            await found.until(lambda: look.tokens.item is not None and look.text != "", 60)
            await found.until(lambda: look.reading.figures is Figures.KNOWN, 60)
            await pilot.pause()

            (record,) = found.chat.tokens.records
            assert list(record.tokens) == wanted["token_ids"]
            assert record.counts["accepted"] == wanted["speculation"]["accepted_tokens"] > 0
            drafted = sum(one.drafted for one in record.passes)
            assert drafted == wanted["speculation"]["draft_tokens"]
            apart = []
            for score, one in zip(record.scores, wanted["logprobs"], strict=True):
                assert score.text == one["text"]
                best = one["top"][0]["logprob"]
                apart += [abs(score.logprob - one["logprob"]), abs(score.top[0].logprob - best)]
            # The same model over the same text, in passes of another width.
            assert max(apart) < 0.5
            assert sum(apart) / len(apart) < 0.05

            text = "".join(spelling_of(look, token) for token in record.tokens)
            assert text == wanted["text"]
            await look.press("home", "n")
            assert look.details.startswith("≠")
            item = look.tokens.item
            assert item is not None
            assert f"{record.scores[item.place].logprob:.2f}" in look.details

            await look.press("escape")
            await found.until(lambda: app.screen is found.screen)
            await found.send("And once more.")
            await found.until(lambda: not found.chat.ready)
            await found.until(lambda: found.chat.ready, 60)
            assert len(found.chat.tokens.records) == 2
            assert found.chat.tokens.records[-1].length == found.chat.state.reply.emitted
    finally:
        app.chat_screen.chat.close()
        store.close()


def spelling_of(look: Look, token: int) -> str:
    record = look.reading.record
    assert record is not None
    spelling = look.app.chat.tokens.spelling(record.path, token)
    assert spelling is not None
    return spelling.text if spelling.kind == "text" else ""
