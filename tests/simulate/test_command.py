"""`localspec simulate` as a command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from localspec.chat.store import Store
from localspec.cli import app
from tests.cli.conftest import environment

RUNNER = CliRunner()
LINES = [
    {"prompt": [1, 2, 3, 4, 5], "reply": [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]},
    {"prompt": [7, 8, 9, 7, 8], "reply": [9, 7, 8, 6], "name": "second"},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    return str(path)


def call(*args: str) -> tuple[int, str, str]:
    done = RUNNER.invoke(app, ["simulate", *args])
    return done.exit_code, done.stdout, done.stderr


def test_tokens_need_no_model(file, monkeypatch):
    monkeypatch.setattr("localspec.runtime.library.lib", lambda: pytest.fail("llama.cpp was asked for"))
    code, out, _ = call(
        file, "--json", "--draft", "none,ngram", "--draft-length", "2,8", "--cost", "cpu-bf16"
    )
    assert code == 0
    found = json.loads(out)
    assert {row["label"] for row in found["rows"]} == {"none", "ngram 2", "ngram 8"}
    assert [each["reply_tokens"] for each in found["recordings"]] == [10, 4]
    assert found["cost"]["token_ms"] == 7.5
    plain = next(row for row in found["rows"] if row["draft"] == "none")
    assert (plain["steps"], plain["drafted"], plain["speedup_without_drafting_time"]) == (14, 0, 1.0)


def test_ids_of_any_size_of_vocabulary(tmp_path):
    """A recording's ids are only bounded by what an int32 holds; the second text cuts the first one back."""
    large = [2**20, 2**21, 5, 7, 2**20 + 1, 2**31 - 1, 9, 9, 9]
    lines = [{"prompt": large, "reply": large}, {"prompt": large[:4], "reply": large[4:]}]
    path = tmp_path / "large.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    code, out, _ = call(str(path), "--json", "--draft", "auto,ngram,suffix:arctic")
    assert code == 0
    assert json.loads(out)["rows"][0]["accepted"] > 0


def test_policies_beside_fixed_lengths(file):
    policies = "ema:0/1/3,fixed:4,cost"
    code, out, err = call(
        file, "--json", "--draft", "none,ngram", "--draft-length", "2,auto", "--policy", policies
    )
    assert code == 0, err
    found = {row["label"]: (row["draft_length"], row["policy"]) for row in json.loads(out)["rows"]}
    assert found == {
        "none": (None, None),
        "ngram 2": (2, "fixed"),
        "ngram 4": (4, "fixed"),
        "ngram auto": (None, "cost"),
        "ngram ema:0/1/3": (None, "ema:0/1/3"),
    }


def test_the_n_gram_family_side_by_side(file):
    code, out, _ = call(
        file,
        "--json",
        "--draft",
        "ngram",
        "--ngram-pick",
        "recent,frequent,first",
        "--ngram-min",
        "1,3",
        "--ngram-max",
        "2,4",
    )
    assert code == 0
    found = [row["ngram"] for row in json.loads(out)["rows"]]
    # Of the pairs of lengths 3-2 is none.
    assert {(n["min"], n["max"]) for n in found} == {(1, 2), (1, 4), (3, 4)}
    assert len(found) == 9


def test_settings_are_the_defaults(file, private_home):
    (private_home / "config").mkdir()
    (private_home / "config" / "config.toml").write_text(
        '[draft]\nspec = "ngram"\nlength = 3\nngram_pick = "first"\n'
    )
    code, out, err = call(file, "--json")
    assert code == 0, err
    assert [row["label"] for row in json.loads(out)["rows"]] == ["ngram 3, first"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "Name a file with recorded replies"),
        (["missing.txt"], 3, "There is no file missing.txt"),
        (["FILE", "--draft", "telepathy"], 2, "no drafting method 'telepathy'"),
        (["FILE", "--draft", "smollm2"], 2, "--draft smollm2 needs a model"),
        (["FILE", "--cost", "2:1"], 2, "the cost of a pass over one token"),
        (["FILE", "--cost", "nothing"], 3, "There is no cost curve nothing"),
        (["FILE", "--token-ms", "-1"], 2, "--token-ms"),
        (["FILE", "--draft-length", "0"], 2, "--draft-length: 0 is out of range"),
        (["FILE", "--policy", "luck"], 2, "There is no policy 'luck'"),
        (["FILE", "--leaves", "17"], 2, "1 to 16 branches"),
        (["FILE", "--draft", "ngram", "--ngram-min", "7"], 2, "min 7, max 5"),
        (["FILE", "--draft", "ngram", "--ngram-pick", "best"], 2, "no n-gram pick 'best'"),
        (["FILE", "--prompt-tokens", "0"], 2, "--prompt-tokens must be 1 or more"),
        (["--from-history"], 2, "There is no conversation with a complete reply yet"),
        (["--tasks", "telepathy"], 2, 'no bench task "telepathy"'),
    ],
)
def test_bad_input_is_one_sentence(file, args, code, words):
    done, out, err = call(*(file if arg == "FILE" else arg for arg in args))
    assert (done, out) == (code, "")
    assert words in err
    assert err.startswith("localspec: ")
    assert err.count("\n") == 1


def test_as_a_process(file):
    command = [sys.executable, "-m", "localspec", "simulate", file, "--draft", "ngram", "--per-reply"]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("2 replies, 14 tokens; passes cost as: gpu, 5.7 ms a token\n")
    assert "second" in text
    assert "Best: ngram 8" in text


@pytest.mark.model
def test_text_and_history_take_the_models_vocabulary(smollm2_path, tmp_path):
    store = Store()
    chat = store.create(model="m").id
    store.add_message(chat, "user", "Say it twice.")
    store.add_message(chat, "assistant", "one two three four, one two three four")
    store.close()
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog; " * 8)
    code, out, err = call(
        str(text), "--from-history", "--tasks", "copy,story", "-m", str(smollm2_path), "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    names = [each["name"] for each in found["recordings"]]
    assert names[0] == "text.txt"
    assert names[-1].startswith("chat ")
    assert len(names) > 2
    assert found["recordings"][0]["prompt_tokens"] == 32
    assert found["rows"][0]["per_reply"][0]["predicted_speedup"] > 3
    assert "story" in found["notes"][0]
