from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli.conftest import Command
from tests.cli.test_run import said


def test_a_chat_template_may_be_a_format_known_by_name(
    scripted: Command, tiny_gguf: Path, tmp_path: Path
) -> None:
    def asked(template: str) -> subprocess.CompletedProcess[bytes]:
        return scripted("echo", "run", "Hi", "--model", str(tiny_gguf), "--chat-template", template)

    engine = said(asked("ChatML"))["load"]["options"]
    assert "<|im_start|>{{ m.role }}" in engine["chat_template"]
    unknown = asked("lama3")
    assert unknown.returncode == 2
    assert b"no chat template lama3; give a file, or one of chatml, llama3" in unknown.stderr
    missing = asked(str(tmp_path / "llama3"))
    assert missing.returncode == 3
    assert b"There is no chat template" in missing.stderr


def test_thinking_has_no_switch_where_there_is_no_template(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("echo", "run", "Hi", "--raw", "--think", "--model", str(tiny_gguf))
    assert done.returncode == 2
    assert b"--think has no place beside --raw" in done.stderr


def test_a_chat_template_that_is_no_text(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    def refused(template: Path) -> bytes:
        done = scripted("echo", "run", "Hi", "--model", str(tiny_gguf), "--chat-template", str(template))
        assert done.returncode == 2
        return done.stderr

    (tmp_path / "latin.jinja").write_bytes(b"caf\xe9")
    assert b"it is not UTF-8 text" in refused(tmp_path / "latin.jinja")
    assert b"Cannot read the chat template" in refused(tmp_path)
    if Path("/dev/zero").exists():
        assert b"is larger than 64 MiB" in refused(Path("/dev/zero"))
