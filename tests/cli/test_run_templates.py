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
