"""Well-known chat formats: what stands in for a template that is missing or cannot be used.

Each is a few lines of Jinja, written without tools and thinking, which only a model's own template knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write turns as text.

    Attributes:
        name: what `--chat-template` knows it by.
        source: Jinja template.
        marks: control tokens that it writes; a vocabulary without one of them was made for another format.
        end: the token that ends a turn of the assistant.
        architecture: how the names of architectures begin that were trained with it; "" for many.
        stops: texts that end a reply, for a format without a token that does.
    """

    name: str
    source: str
    marks: tuple[str, ...] = ()
    end: str = ""
    architecture: str = ""
    stops: tuple[str, ...] = ()


class FormatVocabulary(Protocol):
    """What the choice of a format asks of a model; `LlamaModel` has it."""

    @property
    def eos(self) -> int:
        """End-of-text token, -1 where there is none."""

    @property
    def path(self) -> Path:
        """The GGUF file."""

    @property
    def architecture(self) -> str:
        """Such as "llama" or "qwen3"."""

    def meta(self, key: str) -> str | None:
        """A metadata value as text."""

    def token_text(self, token: int) -> str:
        """The token's text with control tokens spelled out; empty for -1."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`."""


_SYSTEM_FIRST = (
    "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}"
    "{% set ns.system = ns.system ~ m.content | trim ~ '\n\n' %}{% endfor %}"
)
_TAKE_SYSTEM = "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
"""Where there is no system role: the text for it goes into the first question."""


def _turns(turn: str, opening: str = "", *, head: str = "") -> str:
    """A template that writes each message `m` as `turn`; `opening` begins the assistant's next one."""
    which = " if m.role != 'system'" if head == _SYSTEM_FIRST else ""
    return (
        f"{head}{{% for m in messages{which} %}}{turn}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    )


def _roles(system: str, user: str, assistant: str) -> str:
    """A turn that each role writes in a way of its own."""
    return (
        f"{{% if m.role == 'system' %}}{system}{{% elif m.role == 'user' %}}{user}"
        f"{{% else %}}{assistant}{{% endif %}}"
    )


_CHAT_NAME = re.compile(
    r"(?<![a-z0-9])(it|instruct|chat|assistant|sft|dpo|thinking|reasoning)(?![a-z])", re.IGNORECASE
)
_MODEL_ROLE = "{{ 'model' if m.role == 'assistant' else m.role }}"
_COHERE = "<|START_OF_TURN_TOKEN|><|{0}_TOKEN|>{{{{ m.content | trim }}}}<|END_OF_TURN_TOKEN|>"

CHATML = Format(
    "chatml",
    _turns("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n", "<|im_start|>assistant\n"),
    ("<|im_start|>", "<|im_end|>"),
    "<|im_end|>",
)
PLAIN = Format(
    "plain",
    _turns(
        _roles(
            "{{ m.content | trim }}\n\n",
            "User: {{ m.content | trim }}\n\n",
            "Assistant: {{ m.content | trim }}\n\n",
        ),
        "Assistant:",
    ),
    stops=("\nUser:",),
)
"""For models that were never taught turns: a transcript, as their training text may have held some."""

FORMATS: tuple[Format, ...] = (
    CHATML,
    Format(
        "llama3",
        _turns(
            "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
        "llama",
    ),
    Format(
        "llama4",
        _turns(
            "<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content | trim }}<|eot|>",
            "<|header_start|>assistant<|header_end|>\n\n",
        ),
        ("<|header_start|>", "<|header_end|>", "<|eot|>"),
        "<|eot|>",
        "llama4",
    ),
    Format(
        "gemma",
        _turns(
            f"<start_of_turn>{_MODEL_ROLE}\n{_TAKE_SYSTEM}{{{{ m.content | trim }}}}<end_of_turn>\n",
            "<start_of_turn>model\n",
            head=_SYSTEM_FIRST,
        ),
        ("<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        "gemma",
    ),
    Format(
        "gemma4",
        _turns(f"<|turn>{_MODEL_ROLE}\n{{{{ m.content | trim }}}}<turn|>\n", "<|turn>model\n"),
        ("<|turn>", "<turn|>"),
        "<turn|>",
        "gemma4",
    ),
    Format(
        "phi3",
        _turns("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n", "<|assistant|>\n"),
        ("<|user|>", "<|assistant|>", "<|end|>"),
        "<|end|>",
        "phi",
    ),
    Format(
        "phi4",
        _turns(
            "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>",
            "<|im_start|>assistant<|im_sep|>",
        ),
        ("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "<|im_end|>",
        "phi",
    ),
    Format(
        "mistral-v7-tekken",
        _turns(
            _roles(
                "[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]",
                "[INST]{{ m.content }}[/INST]",
                "{{ m.content }}</s>",
            )
        ),
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        "</s>",
    ),
    Format(
        "mistral-v3-tekken",
        _turns(
            _roles("", f"[INST]{_TAKE_SYSTEM}{{{{ m.content }}}}[/INST]", "{{ m.content }}</s>"),
            head=_SYSTEM_FIRST,
        ),
        # Vocabularies of this kind have a thousand reserved places, the older kind does not.
        ("[INST]", "[/INST]", "<SPECIAL_999>"),
        "</s>",
    ),
    Format(
        "mistral-v3",
        _turns(
            _roles("", f"[INST] {_TAKE_SYSTEM}{{{{ m.content }}}}[/INST]", " {{ m.content | trim }}</s>"),
            head=_SYSTEM_FIRST,
        ),
        ("[INST]", "[/INST]"),
        "</s>",
    ),
    Format(
        "deepseek3",
        _turns(
            _roles(
                "{{ m.content }}\n\n",
                "<｜User｜>{{ m.content }}",  # noqa: RUF001 - the tokens are spelt so
                "<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>",  # noqa: RUF001
            ),
            "<｜Assistant｜>",  # noqa: RUF001
        ),
        ("<｜User｜>", "<｜Assistant｜>"),  # noqa: RUF001
        "<｜end▁of▁sentence｜>",  # noqa: RUF001
        "deepseek",
    ),
    Format(
        "command-r",
        _turns(
            _roles(*(_COHERE.format(role) for role in ("SYSTEM", "USER", "CHATBOT"))),
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
        ("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "<|END_OF_TURN_TOKEN|>",
        "co",
    ),
    Format(
        "granite",
        _turns(
            "<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n",
            "<|start_of_role|>assistant<|end_of_role|>",
        ),
        ("<|start_of_role|>", "<|end_of_role|>"),
        "<|end_of_text|>",
        "granite",
    ),
    Format(
        "chatglm4",
        _turns("<|{{ m.role }}|>\n{{ m.content }}", "<|assistant|>\n", head="[gMASK]<sop>"),
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        "<|user|>",
        "glm",
    ),
    Format(
        "gpt-oss",
        _turns(
            "<|start|>{{ m.role }}<|message|>{{ m.content }}"
            "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' }}",
            "<|start|>assistant",
        ),
        ("<|start|>", "<|message|>", "<|end|>", "<|return|>"),
        "<|return|>",
        "gpt-oss",
    ),
    PLAIN,
)


def find_format(name: str) -> Format:
    """The format of this name; raises `UsageError` where there is none."""
    for known in FORMATS:
        if known.name == name.lower():
            return known
    names = ", ".join(known.name for known in FORMATS)
    raise UsageError(f"There is no chat template {name}; give a file, or one of {names}.")


def fitting_format(model: FormatVocabulary, *, had_template: bool) -> Format:
    """The format that a model was most likely taught, by the control tokens of its vocabulary.

    Where several fit, the one whose turns end with the model's own end of text comes first, then one of its
    architecture, then the one with most tokens of its own. Where none fits, a plain transcript is written; so
    it is for a base model, whose vocabulary may have all those tokens while nothing was taught with them.

    Args:
        model: its vocabulary and metadata.
        had_template: whether it has a template, which is then of no use: base models have none.
    """
    eos = model.token_text(model.eos)
    fits = _by_tokens(model)
    if not had_template and not _is_named_as_chat_model(model):
        # A base model does not end its texts with the end of a turn.
        fits = (known for known in fits if known.end == eos and known.end in known.marks)
    return max(
        fits,
        key=lambda known: (
            known.end == eos,
            bool(known.architecture) and model.architecture.startswith(known.architecture),
            len(known.marks),
        ),
        default=PLAIN,
    )


def _is_named_as_chat_model(model: FormatVocabulary) -> bool:
    names = (model.meta("general.name"), model.meta("general.finetune"), model.path.stem)
    return any(_CHAT_NAME.search(name) for name in names if name)


def _by_tokens(model: FormatVocabulary) -> Iterator[Format]:
    for known in FORMATS:
        if known.marks and all(_is_token(model, mark) for mark in known.marks):
            yield known


def _is_token(model: FormatVocabulary, text: str) -> bool:
    tokens = model.tokenize(text, add_special=False, parse_special=True)
    return len(tokens) == 1 and model.token_text(tokens[0]) == text
