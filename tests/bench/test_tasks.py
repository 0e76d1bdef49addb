"""The shipped tasks: each file loads, each reply is what its task says it is; and their tokens."""

from __future__ import annotations

import ast
import difflib
import json
import re
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from localspec.bench.prompts import prompt_tokens, random_prompt, reply_tokens
from localspec.bench.tasks import TASK_NAMES, Prompt, Task, load_tasks
from localspec.chat.template import ChatTemplate
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.messages import Generate
from localspec.runtime.loading import load
from localspec.testing import ScriptedModel
from localspec.types import ChatMessage, EngineOptions, SamplingParams

ORDER = "copy chain code edit explain random chat story summary json agent retrieval regenerate"
GIVEN = {"copy", "code", "edit", "summary", "json", "agent", "retrieval"}
TASKS = {task.name: task for task in load_tasks()}
ROOT = Path(__file__).parents[2]


def asked(prompt: Prompt) -> str:
    return prompt.messages[-1].content


def fenced(text: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)\n```", text, flags=re.DOTALL)
    return str(code)


def pairs(name: str) -> list[tuple[str, str]]:
    """What each prompt of a task asks for, and the given reply."""
    return [(asked(prompt), prompt.reply or "") for prompt in TASKS[name].prompts]


def test_the_names_and_their_order() -> None:
    assert " ".join(TASK_NAMES) == ORDER
    assert tuple(TASKS) == TASK_NAMES


def test_tasks_are_chosen_by_name_in_the_tables_order() -> None:
    assert [task.name for task in load_tasks(["json", "copy", "json"])] == ["copy", "json"]
    assert load_tasks([]) == ()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r'no bench task "copie"; choose among copy, chain, .*regenerate'):
        load_tasks(["copy", "copie"])


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_each_task_is_whole(task: Task) -> None:
    assert task.title
    assert task.why.endswith(".")
    assert len(task.prompts) >= (6 if task.name in ("copy", "chain") else 3)
    assert len({prompt.name for prompt in task.prompts}) == len(task.prompts)
    assert task.temperature == (1.0 if task.name == "random" else 0.0)
    assert task.ask_again == (task.name == "regenerate")
    assert task.stops == (task.name not in ("copy", "chain", "random"))
    for prompt in task.prompts:
        assert (prompt.reply is not None) == (task.name in GIVEN)
        assert (prompt.random_tokens > 0) == (task.name == "random")
        texts = [turn.content for turn in prompt.messages] + [prompt.reply or ""]
        for text in texts:
            assert "{text}" not in text
            assert text == text.strip("\n")
        if prompt.messages:
            assert prompt.messages[-1].role == "user"


def test_no_text_stands_in_two_prompts() -> None:
    texts = [asked(prompt) for task in TASKS.values() for prompt in task.prompts if prompt.messages]
    assert len(set(texts)) == len(texts)


def test_copy_is_the_text_twice() -> None:
    for prompt, reply in pairs("copy"):
        text = prompt.partition("\n\n")[2]
        assert reply == f"{text}\n\n{text}"
        code = re.search(r"^(?:def|class) \w+[(:].*", text, flags=re.DOTALL | re.MULTILINE)
        assert code is not None
        ast.parse(code[0])


def test_the_chain_has_two_hundred_words_of_thirty() -> None:
    for prompt in TASKS["chain"].prompts:
        words = asked(prompt).partition(":\n\n")[2].split(" ")
        assert len(words) == 200
        assert 28 <= len(set(words)) <= 30


def test_code_is_the_same_function_with_one_variable_renamed() -> None:
    for prompt, reply in pairs("code"):
        renaming = re.search(r"variable (\w+) to (\w+)", prompt)
        assert renaming is not None
        old, new = renaming.groups()
        source = ast.parse(fenced(prompt))
        for node in ast.walk(source):
            if isinstance(node, ast.Name) and node.id == old:
                node.id = new
        assert ast.dump(source) == ast.dump(ast.parse(fenced(reply)))
        assert reply.startswith("```python\n")
        assert reply.endswith("\n```")


def test_edits_change_several_lines_and_keep_most() -> None:
    for prompt, reply in pairs("edit"):
        before, after = fenced(prompt).split("\n"), fenced(reply).split("\n")
        ast.parse(fenced(prompt))
        ast.parse(fenced(reply))
        assert len(before) >= 25
        blocks = [op for op in difflib.SequenceMatcher(None, before, after).get_opcodes() if op[0] != "equal"]
        assert len(blocks) >= 3
        assert sum(max(op[2] - op[1], op[4] - op[3]) for op in blocks) >= 6
        kept = sum(block.size for block in difflib.SequenceMatcher(None, before, after).get_matching_blocks())
        assert kept >= 0.6 * len(before)


@pytest.mark.parametrize(("name", "quoted"), [("summary", 3), ("retrieval", 4)])
def test_replies_quote_whole_sentences_of_their_source(name: str, quoted: int) -> None:
    for prompt, reply in pairs(name):
        quotes = re.findall(r'"(.*?)"', reply)
        assert all(quote.lower() in prompt.lower() for quote in quotes)
        sentences = [quote for quote in quotes if quote[0].isupper() and quote.endswith(".")]
        assert len(sentences) >= quoted - 1
        assert len(quotes) >= quoted
        assert sum(map(len, quotes)) < 0.85 * len(reply)


def test_retrieval_names_known_sources() -> None:
    for prompt, reply in pairs("retrieval"):
        ids = re.findall(r"[\[(](\S*\d)[\])]", reply)
        assert len(set(ids)) >= 3
        assert all(re.search(rf"^[\[(]{id_}[\])] ", prompt, flags=re.MULTILINE) for id_ in ids)


def test_json_records_have_equal_keys_and_different_values() -> None:
    for _, reply in pairs("json"):
        records = json.loads(reply)
        assert 10 <= len(records) <= 12
        assert len({tuple(record) for record in records}) == 1
        assert len({tuple(record.values()) for record in records}) == len(records)


def test_the_agents_turns_hold_calls_and_output_that_the_reply_takes_up() -> None:
    for prompt in TASKS["agent"].prompts:
        calls = [turn.content for turn in prompt.messages if turn.role == "assistant"]
        assert len(calls) >= 3
        reply = prompt.reply or ""
        for said in (*calls, reply):
            assert isinstance(json.loads(said.split("\n")[-1]), dict)
        assert "\n```python\n" not in reply or ast.parse(fenced(reply))
        output = "\n".join(turn.content for turn in prompt.messages if turn.role == "user")
        longest = difflib.SequenceMatcher(None, output, reply, autojunk=False).find_longest_match()
        assert longest.size >= 60


def test_conversations_have_several_turns() -> None:
    assert all(len(prompt.messages) >= 5 for prompt in TASKS["chat"].prompts)


def test_random_tokens_are_drawn_by_seed_from_what_is_allowed() -> None:
    first, again, other = (Prompt("p", random_tokens=500, random_seed=seed) for seed in (1, 1, 2))
    forbidden = frozenset(range(20)) | {99}
    drawn = random_prompt(100, first, forbidden)
    assert len(drawn) == 500
    assert drawn == random_prompt(100, again, forbidden) != random_prompt(100, other, forbidden)
    assert set(drawn) == set(range(20, 99))
    assert all(type(token) is int for token in drawn)
    seeds = {prompt.random_seed for prompt in TASKS["random"].prompts}
    assert len(seeds) == len(TASKS["random"].prompts)


class BosVocabulary(ScriptedModel):
    """One whose texts begin with token 31, written `^` in templates."""

    vocabulary_size = 32
    bos = 31
    adds_bos = True

    def token_text(self, token: int) -> str:
        return "^" if token == 31 else ""

    def token_bytes(self, token: int) -> bytes:
        return b"" if token == 31 else super().token_bytes(token)

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        begin = [31] if add_special or (parse_special and text.startswith("^")) else []
        return begin + super().tokenize(text)


@pytest.mark.parametrize("source", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"])
def test_the_beginning_of_text_stands_once(source: str) -> None:
    prompt = Prompt("p", (ChatMessage("user", "hello"),), reply="abc")
    tokens = prompt_tokens(prompt, ChatTemplate(source, bos="^"), BosVocabulary())
    assert tokens == [31, *(4 + ord(char) - ord("a") for char in "hello")]
    assert reply_tokens(prompt, BosVocabulary()) == [4, 5, 6]


def test_random_prompts_begin_as_texts_do_and_hold_no_control_token() -> None:
    tokens = prompt_tokens(Prompt("p", random_tokens=400), ChatTemplate(None), BosVocabulary())
    assert tokens[0] == 31
    assert len(tokens) == 401
    assert set(tokens[1:]) == set(range(1, 31))
    assert reply_tokens(Prompt("p", random_tokens=400), BosVocabulary()) is None


@pytest.mark.model
def test_lengths_with_the_default_model(smollm2_path: Path) -> None:
    loaded = load(smollm2_path, EngineOptions(context=512, threads=1))
    try:
        model = loaded.model
        template = ChatTemplate(model.chat_template, bos=model.token_text(model.bos))
        for task in TASKS.values():
            for prompt in task.prompts:
                tokens = prompt_tokens(prompt, template, model)
                assert len(tokens) <= 1200
                reply = reply_tokens(prompt, model)
                if reply is not None:
                    # Copy is a text of about 300 tokens, twice.
                    low, high = (500, 680) if task.name == "copy" else (150, 400)
                    assert low <= len(reply) <= high, (task.name, prompt.name)
                    assert b"".join(map(model.token_bytes, reply)).decode() == prompt.reply
                if prompt.random_tokens:
                    assert len(tokens) == 200
                    assert all(map(model.token_bytes, tokens))
    finally:
        loaded.close()


@pytest.mark.model
def test_prompts_have_the_tokens_of_a_chat(smollm2_path: Path) -> None:
    engine = Engine(smollm2_path, "smollm2", EngineOptions(context=512, threads=1))
    try:
        model = engine.session.vocabulary
        prompt = TASKS["regenerate"].prompts[0]
        finished = engine.generate(
            Generate(id=1, messages=prompt.messages, sampling=SamplingParams(temperature=0.0), max_tokens=1)
        )
        template = ChatTemplate(model.chat_template, bos=model.token_text(model.bos))
        tokens = prompt_tokens(prompt, template, model)
        assert engine.session.tokens[: finished.reply.timings.prompt_tokens] == tokens
    finally:
        engine.close()


def test_a_wheel_has_the_files(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"localspec/bench/tasks/{name}.toml" for name in TASK_NAMES} <= set(names)
