"""`localspec run` with --json-schema, --grammar and --logprobs: what reaches the engine, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from localspec.grammar import grammar_of_schema
from tests.cli.conftest import Command

SCHEMA = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of files by what is in them."""
    contents = {
        "schema": SCHEMA.encode(),
        "grammar": b'root ::= "yes" | "no"\n',
        "empty": b"",
        "unreadable": b"root ::= \xff",
        "faulty": b"root ::=\n  [a",
        "unsupported": b'{"type": "string", "pattern": "^a$"}',
        "nothing": rb"root ::= [^\x00-\U0010FFFF]",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in [*contents, "missing"]} | {"folder": str(tmp_path)}


def test_a_grammar_reaches_the_engine(scripted: Command, tiny_gguf: Path, files: dict[str, str]) -> None:
    asked = ("run", "Hi", "--model", str(tiny_gguf))
    for options, grammar, logprobs in (
        ((), None, None),
        (("--grammar", files["grammar"]), 'root ::= "yes" | "no"\n', None),
        (("--json-schema", files["schema"]), grammar_of_schema(SCHEMA), None),
        (("--json", "--logprobs", "0"), None, 0),
    ):
        done = scripted("echo", *asked, *options)
        assert (done.returncode, done.stderr) == (0, b"")
        printed = json.loads(done.stdout)
        told = json.loads(printed["text"]) if "--json" in options else printed
        assert (told["generate"]["grammar"], told["generate"]["logprobs"]) == (grammar, logprobs)


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        (("--grammar", "missing"), 3, "no grammar"),
        (("--json-schema", "missing"), 3, "no JSON schema"),
        (("--grammar", "folder"), 2, "Cannot read the grammar"),
        (("--grammar", "unreadable"), 2, "UTF-8"),
        (("--grammar", "empty"), 2, "is empty"),
        (("--grammar", "faulty"), 2, "line 2: a class"),
        (("--json-schema", "empty"), 2, "not valid JSON"),
        (("--json-schema", "grammar"), 2, "not valid JSON"),
        (("--json-schema", "unsupported"), 2, "'pattern'"),
        (("--json-schema", "schema", "--grammar", "grammar"), 2, "exclude each other"),
        (("--logprobs", "3"), 2, "add --json"),
        (("--logprobs", "21", "--json"), 2, "between 0 and 20"),
        (("--logprobs", "-1", "--json"), 2, "between 0 and 20"),
    ],
)
def test_bad_input_is_one_sentence(
    scripted: Command, tiny_gguf: Path, files: dict[str, str], options: tuple[str, ...], code: int, what: str
) -> None:
    given = [files.get(option, option) for option in options]
    done = scripted("reply", "run", "Hi", "--model", str(tiny_gguf), *given)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.count(b"\n") == 1
    assert what in done.stderr.decode()


@pytest.mark.model
def test_json_as_a_schema_wants_it_with_logprobs(
    localspec: Command, smollm2_path: Path, files: dict[str, str]
) -> None:
    asked = ["run", "Is water wet? Answer as JSON.", "--model", str(smollm2_path), "--threads", "1"]
    asked += ["--seed", "5"]
    done = localspec(*asked, "--json-schema", files["schema"], "--json", "--logprobs", "2")
    assert (done.returncode, done.stderr) == (0, b"")
    reply = json.loads(done.stdout)
    assert reply["finish_reason"] == "stop"
    assert list(json.loads(reply["text"])) == ["ok"]
    assert [token["id"] for token in reply["logprobs"]] == reply["token_ids"]
    for token in reply["logprobs"]:
        assert list(token) == ["id", "text", "logprob", "top"]
        assert [list(other) for other in token["top"]] == [["id", "text", "logprob"]] * 2
        assert token["logprob"] <= token["top"][0]["logprob"] <= 0
        assert sum(math.exp(other["logprob"]) for other in token["top"]) <= 1


@pytest.mark.model
def test_a_grammar_that_forbids_everything_exits_2(
    localspec: Command, smollm2_path: Path, files: dict[str, str]
) -> None:
    done = localspec(
        "run", "Hi", "--model", str(smollm2_path), "--threads", "1", "--grammar", files["nothing"]
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"localspec: The grammar forbids every token as the first of the reply; correct it.\n"
    )
