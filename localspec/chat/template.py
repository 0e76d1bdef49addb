"""Turns to prompt text, with the Jinja template that a model file carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from jinja2.exceptions import SecurityError

from localspec.chat.formats import CHATML, FORMATS, Format, FormatVocabulary, fitting_format
from localspec.chat.sandbox import ChatEnvironment, TemplateRefusalError
from localspec.chat.thinking import shows_marks, split_thinking
from localspec.chat.turns import without_neighbours, without_system
from localspec.errors import ModelFileError
from localspec.text import printable
from localspec.types import ChatMessage

_PROBE = "a-word-that-no-template-has"
_SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates let reasoning be switched."""


class TemplateModel(FormatVocabulary, Protocol):
    """What a chat template needs of a model; `LlamaModel` has it."""

    @property
    def bos(self) -> int:
        """Beginning-of-text token, -1 where there is none."""

    @property
    def chat_template(self) -> str | None:
        """The file's own Jinja chat template."""


class ChatTemplate:
    """A chat template, ready to render.

    Templates find the variables (`messages`, `add_generation_prompt`, `bos_token`, `eos_token`, the date,
    `enable_thinking`) that llama.cpp's server gives them, and the functions of Hugging Face's renderer. One
    that refuses or ignores a system message gets the system text at the head of the first user message, one
    that insists on alternating roles gets neighbours of the same role as one message, and one that wants
    content in parts gets one part.

    Args:
        source: Jinja source; None or blank takes ChatML.
        bos: text of the model's BOS token; `known_text.prompt_tokens` sees to it that it stands once.
        eos: text of the model's EOS token.

    Attributes:
        note: what users should know of the template, in a sentence or two; "" where nothing.
        stops: texts that end a reply, beside the model's own end of text.

    Raises:
        ModelFileError: the source is no valid template.
    """

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self.is_fallback = source is None or not source.strip()
        self.note = ""
        self.stops: tuple[str, ...] = ()
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._stand_in: Callable[[str], ChatTemplate] | None = None
        self._replaced_by: ChatTemplate | None = None
        source = CHATML.source if source is None or self.is_fallback else source
        self._splits_thinking = "reasoning_content" in source
        environment = ChatEnvironment()
        try:
            self._expand: Callable[[dict[str, Any]], str] = environment.expand(source)
            variables = environment.variables(source)
        except Exception as error:
            # Compiling foreign code may fail in any way, Python's own nesting limits included.
            raise _unusable(error) from error
        self._switches = tuple(name for name in _SWITCHES if name in variables)

    @classmethod
    def of(cls, model: TemplateModel, own: str | None = None) -> ChatTemplate:
        """The template of a model: the user's `own`, else the file's.

        Where the file has none, or one that cannot be used, a well-known format that fits the vocabulary
        stands in for it, and `note` says so. The user's own is not replaced: its mistakes are errors.

        Raises:
            ModelFileError: the user's own is no valid template.
        """
        bos, eos = model.token_text(model.bos), model.token_text(model.eos)
        if own:
            template = cls(own, bos=bos, eos=eos)
            template.stops = next((known.stops for known in FORMATS if known.source == own), ())
            return template
        source = model.chat_template or ""
        has_one = bool(source.strip())

        def stand_in(problem: str) -> ChatTemplate:
            return cls._of_format(fitting_format(model, had_template=has_one), problem, bos, eos)

        if not has_one:
            return stand_in("The model has no chat template")
        try:
            template = cls(source, bos=bos, eos=eos)
            if _PROBE not in template._write([ChatMessage("user", _PROBE)], {"add_generation_prompt": True}):
                return stand_in(_problem("it leaves out what the user says"))
        except ModelFileError as error:
            return stand_in(_problem(_reason(error.__cause__ or error)))
        except Exception as error:
            return stand_in(_problem(_reason(error)))
        template._stand_in = stand_in
        return template

    @classmethod
    def _of_format(cls, known: Format, problem: str, bos: str, eos: str) -> ChatTemplate:
        template = cls(known.source, bos=bos, eos=eos)
        template.is_fallback = True
        template.stops = known.stops
        template.note = (
            f"{problem}, so its chats are written in the format {known.name}; "
            "if replies are poor, give the right one with --chat-template."
        )
        return template

    @property
    def can_switch_thinking(self) -> bool:
        """Whether the template has a variable by which reasoning is switched on and off."""
        return bool(self._switches)

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        think: bool | None = None,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """The prompt of a conversation.

        Blocks of thinking and of tool calls within contents are passed on as they are: what of them is kept
        is for the template to say. A template that reads `reasoning_content`, or whose marks it alone may
        write, finds the thinking there.

        Args:
            messages: the turns, oldest first.
            add_generation_prompt: end with the beginning of an assistant turn.
            think: whether the model is to reason first, for a template that `can_switch_thinking`; None is
                what llama.cpp's server does: `enable_thinking` is on, other switches are not touched.
            extra: more variables of the template.

        Raises:
            ModelFileError: the template fails, refuses these turns, or exceeds its bounds, and nothing stands
                in for it.
        """
        variables = {
            **({"enable_thinking": True} if think is None else dict.fromkeys(self._switches, think)),
            **(extra or {}),
            "add_generation_prompt": add_generation_prompt,
        }
        turns = list(messages)
        if self._replaced_by is None:
            try:
                text = self._write(turns, variables)
            except Exception as error:
                if self._stand_in is None:
                    raise _unusable(error) from error
                replacement = self._stand_in(_problem(_reason(error)))
                self.note, self.stops = replacement.note, replacement.stops
                if not isinstance(error, SecurityError):
                    # Another conversation may suit it.
                    return replacement.render(turns, add_generation_prompt=add_generation_prompt)
                # It would take as long each time.
                self._replaced_by = replacement
            else:
                if self._stand_in is not None:
                    self.stops = ()
                return text
        return self._replaced_by.render(turns, add_generation_prompt=add_generation_prompt)

    def _write(self, turns: list[ChatMessage], variables: dict[str, Any]) -> str:
        """The text of turns, changed as the template needs them; raises whatever the template does."""
        if any(turn.role == "system" for turn in turns) and not self._takes_system:
            turns = without_system(turns)
        try:
            return self._fill(turns, variables, self._wants_parts)
        except TemplateRefusalError:
            joined = without_neighbours(turns)
            if joined == turns:
                raise
            return self._fill(joined, variables, self._wants_parts)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether a system message is accepted and shows up in the prompt, found out by trying."""
        turns = [ChatMessage("system", _PROBE), ChatMessage("user", "user")]
        return self._shows(turns, self._wants_parts)

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether content is shown only as a list of parts, as templates of models that see images may do."""
        question = [ChatMessage("user", _PROBE)]
        return not self._shows(question, False) and self._shows(question, True)

    def _shows(self, turns: Sequence[ChatMessage], parts: bool) -> bool:
        try:
            return _PROBE in self._fill(turns, {"add_generation_prompt": True}, parts)
        except SecurityError:
            raise
        except Exception:
            return False

    def _fill(self, turns: Sequence[ChatMessage], variables: dict[str, Any], parts: bool) -> str:
        now = datetime.now()
        return self._expand(
            {
                "date_string": now.strftime("%d %b %Y"),
                "datetime": now.strftime("%b %d %Y"),
                **self._tokens,
                **variables,
                "messages": [self._message(turn, parts) for turn in turns],
            }
        )

    def _message(self, turn: ChatMessage, parts: bool) -> dict[str, Any]:
        content, thinking = turn.content, ""
        if turn.role == "assistant" and (self._splits_thinking or not shows_marks(content)):
            thinking, content = split_thinking(content)
        message: dict[str, Any] = {"role": turn.role, "content": content}
        if parts:
            message["content"] = [{"type": "text", "text": content}]
        if thinking:
            # Most templates look for the one name, that of gpt-oss for the other.
            message["reasoning_content"] = message["thinking"] = thinking
        return message


def _reason(error: BaseException) -> str:
    # The words may be the template's own, so they are cut and made harmless.
    reason = " ".join(printable(str(error) or type(error).__name__).split())[:200].rstrip(".")
    line = getattr(error, "lineno", None)
    return f"line {line}: {reason}" if line else reason


def _unusable(error: Exception) -> ModelFileError:
    return ModelFileError(
        f"The chat template cannot be used ({_reason(error)}); "
        "correct it, or choose another with --chat-template."
    )


def _problem(reason: str) -> str:
    return f"The model's chat template cannot be used ({reason})"
