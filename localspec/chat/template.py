"""Turns to prompt text, with the Jinja template that a model file carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from localspec.chat.sandbox import ChatEnvironment, TemplateRefusalError
from localspec.errors import ModelFileError
from localspec.text import printable
from localspec.types import ChatMessage

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""What a model without a template of its own gets: the most common format."""

_PROBE = "system-role-probe"


class ChatTemplate:
    """A chat template, ready to render.

    Templates are written against Hugging Face's renderer, so they find the same variables (`messages`,
    `add_generation_prompt`, `bos_token`, `eos_token`, `tools`, `documents`) and functions here. One that
    refuses or ignores a system message gets the system text at the head of the first user message instead,
    and one that insists on alternating roles gets neighbours of the same role as one message.

    Args:
        source: Jinja source; None or blank takes ChatML.
        bos: text of the model's BOS token; the caller must not add that token again when the template does.
        eos: text of the model's EOS token.

    Raises:
        ModelFileError: the source is no valid template.
    """

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self.is_fallback = source is None or not source.strip()
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._expand: Callable[[dict[str, Any]], str] = ChatEnvironment().expand(
                CHATML if source is None or self.is_fallback else source
            )
        except Exception as error:
            # Compiling foreign code may fail in any way, Python's own nesting limits included.
            raise _unusable(error) from error

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """The prompt of a conversation.

        Args:
            messages: the turns, oldest first.
            add_generation_prompt: end with the beginning of an assistant turn.
            extra: more variables of the template, such as `enable_thinking`.

        Raises:
            ModelFileError: the template fails, refuses these turns, or exceeds its bounds.
        """
        turns = list(messages)
        if any(turn.role == "system" for turn in turns) and not self._takes_system:
            turns = _without_system(turns)
        try:
            try:
                return self._fill(turns, add_generation_prompt, extra)
            except TemplateRefusalError:
                joined = _without_neighbours(turns)
                if joined == turns:
                    raise
                return self._fill(joined, add_generation_prompt, extra)
        except Exception as error:
            raise _unusable(error) from error

    @cached_property
    def _takes_system(self) -> bool:
        """Whether a system message is accepted and shows up in the prompt, found out by trying."""
        turns = [ChatMessage("system", _PROBE), ChatMessage("user", "user")]
        try:
            return _PROBE in self._fill(turns, True, None)
        except Exception:
            return False

    def _fill(
        self, turns: Sequence[ChatMessage], add_generation_prompt: bool, extra: dict[str, Any] | None
    ) -> str:
        return self._expand(
            {
                "tools": None,
                "documents": None,
                **self._tokens,
                **(extra or {}),
                "messages": [{"role": turn.role, "content": turn.content} for turn in turns],
                "add_generation_prompt": add_generation_prompt,
            }
        )


def _without_system(turns: Sequence[ChatMessage]) -> list[ChatMessage]:
    """System text moved to the head of the first user message."""
    system = "\n\n".join(turn.content for turn in turns if turn.role == "system" and turn.content)
    rest = [turn for turn in turns if turn.role != "system"]
    if not system:
        return rest
    for index, turn in enumerate(rest):
        if turn.role == "user":
            rest[index] = ChatMessage("user", f"{system}\n\n{turn.content}")
            return rest
    return [ChatMessage("user", system), *rest]


def _without_neighbours(turns: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Neighbours of the same role joined, as a reply that was stopped before its first word leaves them."""
    joined: list[ChatMessage] = []
    for turn in turns:
        if joined and joined[-1].role == turn.role:
            joined[-1] = ChatMessage(turn.role, f"{joined[-1].content}\n\n{turn.content}")
        else:
            joined.append(turn)
    return joined


def _unusable(error: Exception) -> ModelFileError:
    # The words may be the template's own, so they are cut and made harmless.
    reason = " ".join(printable(str(error) or type(error).__name__).split())[:200].rstrip(".")
    line = getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return ModelFileError(
        f"The model's chat template cannot be used ({where}{reason}); "
        "replace it with --chat-template and a template file of your own."
    )
