from __future__ import annotations

from pathlib import Path

import pytest

from localspec.chat.template import ChatTemplate
from localspec.models.gguf import read_header
from localspec.types import ChatMessage


@pytest.mark.model
def test_the_template_of_the_default_model(smollm2_path: Path) -> None:
    source = read_header(smollm2_path).metadata["tokenizer.chat_template"]
    template = ChatTemplate(source, bos="<|im_start|>", eos="<|im_end|>")
    assert not template.is_fallback
    turns = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hi"), ChatMessage("assistant", "Hello")]
    # It is ChatML, as the fallback is.
    assert template.render(turns) == ChatTemplate(None).render(turns)
    # Left without a system message it adds its own.
    assert template.render(turns[1:]).startswith("<|im_start|>system\nYou are")
