"""Recordings from files, conversations and the bench's transcripts; what is wrong with them is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.bench.driver import Reply
from localspec.bench.prompts import prompt_tokens
from localspec.bench.tasks import load_tasks
from localspec.bench.transcripts import Transcripts
from localspec.chat.store import Store
from localspec.chat.template import ChatTemplate
from localspec.errors import NotFoundError, UsageError
from localspec.runtime.model import LlamaModel
from localspec.runtime.vocabulary import load_vocabulary, vocabulary
from localspec.simulate.inputs import Text, Tokenizer, from_file, from_history, from_tasks, tokens_only


class Letters:
    """A token a character."""

    vocabulary_size = 0x110000
    bos = -1
    eog_tokens = frozenset({0})

    def token_text(self, token: int) -> str:
        return "" if token < 0 else chr(token)

    def token_bytes(self, token: int) -> bytes:
        return self.token_text(token).encode()

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return [ord(letter) for letter in text]


TOKENIZER = Tokenizer(Letters(), ChatTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}"))


def written(tokens: tuple[int, ...]) -> str:
    return "".join(map(chr, tokens))


def file_of(folder: Path, *lines: object) -> Path:
    path = folder / "replies.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_lines_of_text_messages_and_tokens(tmp_path):
    path = file_of(
        tmp_path,
        {"prompt": "ab", "reply": "cd", "name": "one"},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
        "",
        {"prompt": [7, 8], "reply": [9], "conversation": "mine"},
    )
    found = [TOKENIZER.recording(source) for source in from_file(path)]
    assert [(written(r.prompt), written(r.reply)) for r in found[:2]] == [("ab|", "cd"), ("x|", "y")]
    assert [(r.name, r.conversation) for r in found] == [
        ("one", "replies.jsonl 1"),
        ("replies.jsonl 2", "replies.jsonl 2"),
        ("replies.jsonl 4", "mine"),
    ]
    assert (found[2].prompt, found[2].reply) == ((7, 8), (9,))
    assert tokens_only(from_file(path)) == [found[2]]


def test_plain_text_begins_with_its_prompt(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("\ufeffonce upon", encoding="utf-8")
    (source,) = from_file(path, 3)
    assert source.content == Text("once upon", 3)
    found = TOKENIZER.recording(source)
    assert (written(found.prompt), written(found.reply)) == ("onc", "e upon")
    # Of a short text half is left to say.
    found = TOKENIZER.recording(from_file(path, 100)[0])
    assert (written(found.prompt), written(found.reply)) == ("once", " upon")
    path.write_text("o")
    with pytest.raises(UsageError, match="too short"):
        TOKENIZER.recording(from_file(path)[0])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt":', "line 2: this is not JSON .* at column 11"),
        ("[1]", "line 2: this is not an object"),
        ({"prompt": "a"}, "line 2: there is no reply"),
        ({"prompt": "a", "reply": " "}, "line 2: the reply is empty"),
        ({"reply": "b"}, 'line 2: it must have either "prompt" or "messages"'),
        ({"prompt": "a", "reply": "b", "answer": "c"}, 'line 2: "answer" is not known here'),
        ({"prompt": "a", "reply": "b", "conversation": 3}, 'line 2: "conversation" should be a text'),
        ({"prompt": [], "reply": [1]}, 'line 2: "prompt" should have at least 1 item'),
        ({"prompt": [1]}, 'line 2: "reply" is missing'),
        ({"prompt": [1], "reply": [-1]}, "line 2: -1 is no token id"),
        ({"prompt": [1], "reply": [1.5]}, 'line 2: "reply.0" should be a valid integer'),
        ("[" * 100_000, "line 2: this is nested too deeply"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, words):
    with pytest.raises(UsageError, match=words) as error:
        from_file(file_of(tmp_path, {"prompt": "a", "reply": "b"}, line))
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(NotFoundError, match="no file"):
        from_file(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(UsageError, match="is empty"):
        from_file(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(UsageError, match=r"not UTF-8 text \(line 2\)"):
        from_file(tmp_path / "latin.txt")
    with pytest.raises(UsageError, match="Cannot read"):
        from_file(tmp_path)


def test_every_reply_of_the_conversations_in_the_order_they_were_given(tmp_path):
    store = Store(tmp_path / "chats.db")
    first = store.create(model="m", system_prompt="be brief").id
    second = store.create(model="m").id
    for chat, role, content in (
        (first, "user", "a"),
        (first, "assistant", "A"),
        (second, "user", "b"),
        (second, "assistant", "B"),
        (first, "user", "c"),
        (first, "assistant", "C"),
    ):
        store.add_message(chat, role, content)
    store.close()
    sources = from_history(tmp_path / "chats.db")
    found = [TOKENIZER.recording(source) for source in sources]
    assert [written(r.reply) for r in found] == ["A", "B", "C"]
    assert written(found[2].prompt) == "be brief|a|A|c|"
    assert [r.conversation for r in found] == [f"chat-{first}", f"chat-{second}", f"chat-{first}"]


def test_no_conversation_is_said_without_options_of_other_verbs():
    with pytest.raises(UsageError, match="no conversation") as error:
        from_history()
    assert "--prompts" not in str(error.value)


def test_tasks_with_given_and_with_recorded_replies(tmp_path):
    story = from_tasks(["story"])[0]
    assert TOKENIZER.recording(story) is None
    transcripts = Transcripts(tmp_path)
    (task,) = load_tasks(["story"])
    template = ChatTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}")
    prompt = tuple(prompt_tokens(task.prompts[0], template, Letters()))
    asked = Reply(prompt, 64, task.temperature, 1, stops=task.stops)
    transcripts.reply(transcripts.path("sha", asked), lambda: [1, 2, 3])
    tokenizer = Tokenizer(
        Letters(), template, transcripts=transcripts, model_sha256=lambda: "sha", tokens=64, seed=1
    )
    assert tokenizer.recording(story).reply == (1, 2, 3)
    other = Tokenizer(Letters(), template, transcripts=transcripts, model_sha256=lambda: "other", tokens=64)
    assert other.recording(story) is None
    given = [TOKENIZER.recording(source) for source in from_tasks(["copy"])]
    assert all(recording is None or recording.reply for recording in given)


@pytest.mark.model
def test_a_vocabulary_without_weights_is_the_models(smollm2_path):
    text = "Hello <|im_start|>user wörld\n def f(): \U0001f44d"
    model = LlamaModel(smollm2_path, gpu_layers=0)
    try:
        with vocabulary(smollm2_path) as words:
            for special in (False, True):
                tokens = words.tokenize(text, add_special=special, parse_special=special)
                assert tokens == model.tokenize(text, add_special=special, parse_special=special)
            for name in ("vocabulary_size", "eog_tokens", "bos", "eos", "adds_bos", "chat_template"):
                assert getattr(words, name) == getattr(model, name)
            ids = range(0, words.vocabulary_size, 97)
            assert [words.token_bytes(i) for i in ids] == [model.token_bytes(i) for i in ids]
    finally:
        model.close()


def test_a_vocabulary_of_no_model_is_refused(tmp_path):
    with pytest.raises(NotFoundError):
        load_vocabulary(tmp_path / "missing.gguf")
