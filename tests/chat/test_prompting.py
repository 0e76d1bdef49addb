from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from localspec.chat.template import ChatTemplate
from localspec.known_text import prompt_tokens
from localspec.messages import Generate
from localspec.prompting import Prompting
from localspec.runtime.model import LlamaModel
from localspec.runtime.vocabulary import vocabulary
from tests.chat.shapes import SHAPES, Shape, assistant, user, write_model

Opened = tuple[Prompting, LlamaModel]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Shape], Opened]]:
    """Prompts for a model of that shape, and the model."""
    with ExitStack() as stack:

        def open_shape(shape: Shape) -> Opened:
            path = write_model(tmp_path / "model.gguf", shape.tokenizer())
            model = stack.enter_context(vocabulary(path))
            return Prompting(ChatTemplate.of(model), model, 256), model

        yield open_shape


def test_a_missing_template_is_told_once_and_its_stand_in_ends_replies(
    opened: Callable[[Shape], Opened],
) -> None:
    prompting, _ = opened(Shape("", ("<s>", "</s>")))
    request = Generate(1, (user("Hi"),), stop=("END",))
    (note,) = prompting.take_notes()
    assert "no chat template, so its chats are written in the format plain" in note
    assert prompting.prompt(request, ()).text == "User: Hi\n\nAssistant:"
    assert prompting.take_notes() == []
    assert prompting.stops(request) == ("END", "\nUser:")
    assert prompting.stops(Generate(2, prompt="Hi", stop=("END",))) == ("END",)


def test_a_template_that_fails_in_the_middle_of_a_chat_is_told_once(
    opened: Callable[[Shape], Opened],
) -> None:
    source = "{% for m in messages %}{{ m.content }}{{ 1 // (3 - loop.index) }}{% endfor %}"
    prompting, _ = opened(Shape(source, SHAPES["gemma"].special))
    assert prompting.take_notes() == []
    turns = (user("Hi"), assistant("Hello"), user("Bye"))
    for _ in range(2):
        assert prompting.prompt(Generate(1, turns), ()).text.startswith("<start_of_turn>user\nHi")
    (note,) = prompting.take_notes()
    assert note == (
        "The model's chat template cannot be used (integer division or modulo by zero), so its chats are "
        "written in the format gemma; if replies are poor, give the right one with --chat-template."
    )


def test_thinking_is_switched_request_by_request(opened: Callable[[Shape], Opened]) -> None:
    prompting, _ = opened(SHAPES["qwen3"])
    quiet = prompting.prompt(Generate(1, (user("Hi"),), think=False), ()).text
    assert quiet.endswith("<think>\n\n</think>\n\n")
    for think in (None, True):
        shown = prompting.prompt(Generate(2, (user("Hi"),), think=think), ()).text
        assert shown.endswith("<|im_start|>assistant\n")
    assert prompting.take_notes() == []


def test_a_switch_that_the_template_does_not_have_is_told_once(opened: Callable[[Shape], Opened]) -> None:
    prompting, _ = opened(SHAPES["llama3"])
    prompting.prompt(Generate(1, prompt="Hi", think=True), ())
    assert prompting.take_notes() == []
    for number in range(2):
        prompting.prompt(Generate(number, (user("Hi"),), think=number == 0), ())
    (note,) = prompting.take_notes()
    assert "has no switch for thinking" in note


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("writes_bos", [True, False])
def test_the_beginning_of_text_stands_where_template_or_vocabulary_want_it_and_once(
    opened: Callable[[Shape], Opened], name: str, adds_bos: bool, writes_bos: bool
) -> None:
    source = ("{{ bos_token }}" if writes_bos else "") + "{{ messages[0].content }}"
    prompting, model = opened(Shape(source, SHAPES[name].special, adds_bos))
    tokens = prompting.prompt(Generate(1, (user("hello"),)), ()).tokens
    begins = adds_bos or writes_bos
    assert tokens[: int(begins)] == [model.bos] * int(begins)
    assert model.bos not in tokens[int(begins) :]
    # One that the user writes is another one.
    again = prompting.prompt(Generate(2, (user(f"hello{model.token_text(model.bos)}"),)), ()).tokens
    assert again == [*tokens, model.bos]


def test_a_bos_that_is_no_control_token_is_not_read_as_letters(opened: Callable[[Shape], Opened]) -> None:
    _, model = opened(SHAPES["gemma"])

    class Letters:
        """A vocabulary whose BOS is only known by its number."""

        bos, adds_bos = 7, True

        def token_text(self, token: int) -> str:
            return "<bos>"

        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            return [7] * add_special + model.tokenize(text, add_special=False, parse_special=False)

    assert prompt_tokens("<bos>hello", Letters()) == [
        7,
        *model.tokenize("hello", add_special=False, parse_special=False),
    ]
