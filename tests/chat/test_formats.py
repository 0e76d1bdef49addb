from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec.chat.formats import CHATML, FORMATS, PLAIN, Format, find_format, fitting_format
from localspec.chat.template import ChatTemplate
from localspec.errors import UsageError
from localspec.runtime.vocabulary import vocabulary
from localspec.types import ChatMessage
from tests.chat.shapes import assistant, system, user
from tests.models.vocabularies import bpe_metadata, write

NAMED_BY_LLAMA_CPP = [known.name for known in FORMATS if known.name not in ("gemma4", "plain")]
TURNS = [user("Hi"), assistant("Hello\n"), user(" Tell\nme more "), assistant("more"), user("Bye")]


@dataclass
class Words:
    """A model with these control tokens."""

    special: Sequence[str]
    eos: int = -1
    bos: int = -1
    architecture: str = "llama"
    chat_template: str | None = None
    path: Path = Path("some-model.gguf")
    name: str = "Some Model"

    def meta(self, key: str) -> str | None:
        return self.name if key == "general.name" else None

    def token_text(self, token: int) -> str:
        return self.special[token] if token >= 0 else ""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert parse_special
        assert not add_special
        return [self.special.index(text)] if text in self.special else [0] * len(text)


def llama_cpps_own(name: str, turns: Sequence[ChatMessage]) -> str:
    """What llama.cpp's built-in format of this name writes."""
    import llama_cpp

    chat = (llama_cpp.llama_chat_message * len(turns))(
        *(llama_cpp.llama_chat_message(turn.role.encode(), turn.content.encode()) for turn in turns)
    )
    buffer = ctypes.create_string_buffer(4096)
    size = llama_cpp.llama_chat_apply_template(name.encode(), chat, len(turns), True, buffer, len(buffer))
    assert 0 < size < len(buffer)
    return buffer.raw[:size].decode()


@pytest.mark.parametrize("turns", [TURNS, [system("Be brief."), *TURNS]], ids=["plain", "system"])
@pytest.mark.parametrize("name", NAMED_BY_LLAMA_CPP)
def test_formats_are_written_as_llama_cpp_writes_them(name: str, turns: list[ChatMessage]) -> None:
    template = ChatTemplate(find_format(name).source)
    assert template.render(turns) == llama_cpps_own(name, turns)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_every_format_is_found_by_its_name_and_its_tokens(known: Format) -> None:
    assert find_format(known.name.upper()) is known
    special = [*known.marks, "</eos>"]
    eos = special.index(known.end) if known.end in special else len(special) - 1
    assert fitting_format(Words(special, eos), had_template=True) is known


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no chat template lama3; give a file, or one of chatml, llama3"):
        find_format("lama3")


def test_of_several_formats_that_fit_the_one_that_ends_as_the_model_does_is_taken() -> None:
    llama = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    both = [*llama, "<|im_start|>", "<|im_end|>"]
    for had_template in (True, False):
        assert fitting_format(Words(both, eos=2), had_template=had_template).name == "llama3"
        assert fitting_format(Words(both, eos=4), had_template=had_template).name == "chatml"
    # Neither ends so: the architecture says more than the number of tokens.
    both += ["<start_of_turn>", "<end_of_turn>", "<eos>"]
    assert fitting_format(Words(both, eos=7), had_template=True).name == "llama3"
    gemma = Words(both, eos=7, architecture="gemma3")
    assert fitting_format(gemma, had_template=True).name == "gemma"


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("Gemma 3 270m", "gemma3-270m.gguf", "plain"),
        ("Gemma 3 270m It", "gemma3.gguf", "gemma"),
        ("", "gemma-2b-it.Q4_K_M.gguf", "gemma"),
        ("gemma-chat", "x.gguf", "gemma"),
        ("Biscuit", "italian-chatter.gguf", "plain"),
    ],
)
def test_a_base_model_is_not_taken_for_one_that_was_taught_turns(name: str, file: str, expected: str) -> None:
    model = Words(["<start_of_turn>", "<end_of_turn>", "<eos>"], eos=2, name=name, path=Path(file))
    assert fitting_format(model, had_template=False).name == expected
    # Mistral's models end texts and turns alike, base models too.
    mistral = Words(["[INST]", "[/INST]", "</s>"], eos=2, name=name.replace("emma", ""), path=Path(file))
    assert (fitting_format(mistral, had_template=False) is PLAIN) == (expected == "plain")


def test_a_format_chosen_by_the_user_ends_replies_as_it_does() -> None:
    assert ChatTemplate.of(Words(["<s>"]), PLAIN.source).stops == PLAIN.stops
    assert ChatTemplate.of(Words(["<s>"]), CHATML.source).stops == ()


def test_without_known_tokens_a_transcript_is_written_that_ends_before_the_next_question() -> None:
    assert fitting_format(Words(["<s>", "</s>"], eos=1), had_template=True) is PLAIN
    template = ChatTemplate.of(Words(["<s>", "</s>"], eos=1, bos=0))
    assert template.stops == ("\nUser:",)
    assert template.render([system("Be brief."), user("Hi"), assistant(" Hello"), user("Bye")]) == (
        "Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"
    )


def test_a_missing_template_is_said_and_replaced() -> None:
    for missing in (None, "", " \n"):
        words = Words(["<start_of_turn>", "<end_of_turn>"], eos=1, chat_template=missing)
        template = ChatTemplate.of(words)
        assert template.is_fallback
        assert template.note == (
            "The model has no chat template, so its chats are written in the format gemma; "
            "if replies are poor, give the right one with --chat-template."
        )
        assert template.render([user("Hi")]) == "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
        assert not template.stops


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for m in messages %}\n{{ m | nosuchfilter }}{% endfor %}", "line 2: No filter named"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{{ raise_exception('\x1b[2Jno') }}", "␛[2Jno"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it ran for more"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("A fixed text.", "it leaves out what the user says"),
    ],
    ids=["broken", "failing", "refusing", "endless", "prying", "deaf"],
)
def test_a_template_that_cannot_be_used_is_said_and_replaced(
    source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.chat.bounds.MAX_SECONDS", 0.05)
    template = ChatTemplate.of(Words(CHATML.marks, chat_template=source))
    assert template.is_fallback
    assert template.note.startswith("The model's chat template cannot be used (")
    assert reason in template.note
    assert "), so its chats are written in the format chatml; if" in template.note
    assert template.render([user("Hi")]) == ChatTemplate(None).render([user("Hi")])


def test_a_conversation_that_the_template_refuses_is_written_otherwise_and_others_are_not() -> None:
    source = (
        "{% if messages[0].role != 'user' %}{{ raise_exception('The user speaks first') }}{% endif %}"
        "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    )
    template = ChatTemplate.of(Words(["<s>"], chat_template=source))
    assert (template.note, template.is_fallback) == ("", False)
    turns = [assistant("Hello"), user("Hi")]
    assert template.render(turns) == "Assistant: Hello\n\nUser: Hi\n\nAssistant:"
    assert "(The user speaks first), so its chats are written in the format plain" in template.note
    assert template.stops == PLAIN.stops
    assert template.render([user("Hi")]) == "[Hi]"
    assert template.stops == ()


def test_a_template_that_takes_too_long_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.chat.bounds.MAX_SECONDS", 0.05)
    slow = "{% if messages | length > 2 %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    slow += "{% endfor %}{% endif %}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    template = ChatTemplate.of(Words(CHATML.marks, chat_template=slow))
    assert template.render([user("Hi")]) == "[Hi]"
    turns = [user("Hi"), assistant("Hello"), user("Bye")]
    assert template.render(turns) == ChatTemplate(None).render(turns)
    assert "it ran for more than" in template.note
    assert template.render([user("Hi")]) == ChatTemplate(None).render([user("Hi")])


def test_the_users_own_template_is_never_replaced() -> None:
    template = ChatTemplate.of(Words(CHATML.marks, chat_template="{{ broken"), "{{ messages[0].content }}!")
    assert template.render([user("Hi")]) == "Hi!"
    assert (template.note, template.is_fallback) == ("", False)


def test_tokens_of_a_real_vocabulary_are_found(tmp_path: Path) -> None:
    special = ("<bos>", "<end_of_turn>", "<start_of_turn>")
    path = write(tmp_path / "gemma.gguf", bpe_metadata(special=special, bos=0, eos=1, adds_bos=True))
    with vocabulary(path) as model:
        assert fitting_format(model, had_template=False).name == "gemma"
