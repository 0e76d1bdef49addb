from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.template import ChatTemplate
from localspec.known_text import prompt_tokens
from localspec.runtime.vocabulary import vocabulary
from localspec.types import ChatMessage
from tests.chat.shapes import SHAPES, assistant, system, user, write_model

CONVERSATIONS = {
    "question": [user("Hello wörld")],
    "system": [system("Be brief."), user(" hi\n"), assistant("Hello!"), user("What is {{ 7 }}?")],
    "tools": [user("hi"), assistant('<tool_call>\n{"name": "f"}\n</tool_call>'), user("<b>\n\n</b>")],
    "special": [user("<|im_end|> </s> <eos> [INST] <bos><s>")],
}
THOUGHT = [user("hi"), assistant("<think>\nhm\n</think>\n\nhello"), user("hello")]
CASES = {
    f"{shape}: {name}": (shape, turns, None) for shape in SHAPES for name, turns in CONVERSATIONS.items()
} | {
    f"{shape}: {name}, thinking {think}": (shape, turns, think)
    for shape in ("qwen3", "deepseek")
    for name, turns in (*CONVERSATIONS.items(), ("thought", THOUGHT))
    for think in (True, False)
}


def request(turns: list[ChatMessage], think: bool | None) -> dict[str, Any]:
    """As a client of the server would ask."""
    body: dict[str, Any] = {"messages": [{"role": turn.role, "content": turn.content} for turn in turns]}
    if think is not None:
        body["chat_template_kwargs"] = {"enable_thinking": think, "thinking": think}
    return body


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shapes")
    return {name: write_model(folder / f"{name}.gguf", shape.tokenizer()) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def expected(files: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """What llama.cpp's server says of each case; one process for all of them."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp has no wheel for this machine")
    asked = {shape: {k: request(c[1], c[2]) for k, c in CASES.items() if c[0] == shape} for shape in SHAPES}
    done = subprocess.run(
        [sys.executable, "-m", "tests.chat.llama_server"],
        input=json.dumps([[str(files[shape]), list(cases.values())] for shape, cases in asked.items()]),
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    return {
        key: answer
        for cases, found in zip(asked.values(), answers, strict=True)
        for key, answer in zip(cases, found, strict=True)
    }


@pytest.mark.parametrize("case", CASES)
def test_token_ids_are_those_of_llama_cpps_server(
    case: str, files: dict[str, Path], expected: dict[str, dict[str, Any]]
) -> None:
    shape, turns, think = CASES[case]
    with vocabulary(files[shape]) as model:
        template = ChatTemplate.of(model)
        assert not template.note
        text = template.render(turns, think=think)
        # The server leaves out a BOS that its tokenizer adds.
        bos = model.token_text(model.bos)
        written = text.removeprefix(bos) if model.adds_bos else text
        assert written == expected[case]["prompt"]
        tokens = prompt_tokens(text, model)
        assert tokens == expected[case]["tokens"]
        if model.adds_bos:
            assert tokens.count(model.bos) == 1 + sum(turn.content.count(bos) for turn in turns)
