"""The user's settings: flags beat the environment, the environment beats `config.toml`.

A setting `temperature` of the group `sampling` is `[sampling] temperature = 0.2` in the file and
`LOCALSPEC_SAMPLING__TEMPERATURE=0.2` in the environment. Each source is checked by itself, so that an error
names the very place to correct.
"""

from __future__ import annotations

import difflib
import os
import secrets
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from localspec.config_keys import KEYMAP, keys_by_action, path_of
from localspec.errors import UsageError
from localspec.paths import config_dir, memory_dir
from localspec.trees import MAX_LEAVES
from localspec.types import MEMORY_CAPACITY, DraftOptions, EngineOptions, SamplingParams

PREFIX = "LOCALSPEC_"
NOT_SETTINGS = frozenset(
    {"LOCALSPEC_HOME", "LOCALSPEC_DEBUG", "LOCALSPEC_TEST_MODEL", "LOCALSPEC_TEST_GEMMA"}
)
"""Variables with our prefix that mean something else."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DraftSettings(_Group):
    """Who drafts; `draft = "suffix"` is short for the first of these."""

    spec: str = Field(
        default="auto", description="Drafting method, draft model, or several of them, as for --draft."
    )
    policy: str = Field(default="cost", description="What chooses the draft length, as for --policy.")
    length: int | None = Field(default=None, ge=1, description="Draft tokens a step at most.")
    ngram_min: int = Field(default=2, ge=1, description="Shortest match of the n-gram drafter, in tokens.")
    ngram_max: int = Field(default=5, ge=1, description="Longest match of the n-gram drafter, in tokens.")
    ngram_pick: Literal["recent", "frequent", "first"] = Field(
        default="recent", description="Which match of one length the n-gram drafter copies."
    )
    ngram_min_hits: int = Field(
        default=1, ge=1, description="How often what it copies must have followed the match."
    )
    leaves: int = Field(default=1, ge=1, le=MAX_LEAVES, description="Branches of a draft at most.")
    context: int | None = Field(
        default=None,
        ge=64,
        lt=2**31,
        description="Tokens that a draft model looks back on; else as many as the model itself.",
    )
    gpu_layers: int | None = Field(
        default=None, ge=0, description="Layers of a draft model on the GPU; else all that still fit."
    )

    @model_validator(mode="after")
    def _ordered(self) -> DraftSettings:
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min ({self.ngram_min}) is greater than ngram_max ({self.ngram_max})")
        return self


class SamplingSettings(_Group):
    """How tokens are chosen; what is not set follows the model's recommendation, then llama.cpp's default."""

    temperature: float | None = Field(default=None, ge=0, description="0 is greedy.")
    top_k: int | None = Field(default=None, ge=0, description="Keep the best tokens, this many; 0 keeps all.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Keep the smallest set of this mass.")
    min_p: float | None = Field(
        default=None, ge=0, le=1, description="Drop tokens under this share of the best."
    )
    repeat_penalty: float | None = Field(default=None, gt=0, description="Divide what was said; 1 is off.")
    presence_penalty: float | None = Field(
        default=None, description="Subtract once from what was said; 0 is off."
    )
    frequency_penalty: float | None = Field(
        default=None, description="Subtract each time it was said; 0 is off."
    )
    penalty_last_n: int | None = Field(
        default=None, ge=-1, description="Tokens that penalties look at; -1: all."
    )
    seed: int | None = Field(
        default=None, ge=0, lt=2**63, description="Same seed, same reply; else a new one each."
    )


class EngineSettings(_Group):
    """How a model is loaded."""

    context: int | None = Field(
        default=None, ge=1, lt=2**31, description="Tokens of context; else the model's, at most 8192."
    )
    threads: int | None = Field(
        default=None, ge=1, le=512, description="CPU threads; else they follow the machine's load."
    )
    gpu_layers: int | None = Field(default=None, ge=0, description="Layers on the GPU; else all that fit.")
    flash_attention: bool | None = Field(default=None, description="Else llama.cpp decides.")
    kv_type: str = Field(default="f16", description="Element type of the KV cache.")
    batch: int = Field(default=512, ge=1, description="Tokens of one prefill batch at most.")


class ChatSettings(_Group):
    """What a conversation begins with."""

    system_prompt: str = Field(default="", description="What the model is told before the chat.")
    max_tokens: int | None = Field(default=None, ge=1, description="Tokens of a reply at most.")
    think: bool | None = Field(
        default=None,
        description="Whether models with a switch for it reason first; else as llama.cpp has it.",
    )


class UiSettings(_Group):
    """How the terminal app looks."""

    theme: str | None = Field(default=None, description="Name of a theme; else one that suits the terminal.")
    panel: bool = Field(default=True, description="Whether the live panel is shown.")


class MemorySettings(_Group):
    """What is remembered of replies, to draft later ones from."""

    enabled: bool = Field(default=True, description="Whether replies are remembered.")
    capacity: int = Field(
        default=MEMORY_CAPACITY, ge=1, lt=2**31, description="Tokens to remember for each tokenizer."
    )


class Settings(_Group):
    """Every setting, in groups."""

    model: str = Field(
        default="smollm2", min_length=1, description="A known model, or the path of a GGUF file."
    )
    verify: str = Field(default="coupled", description="Rule of verification, as for --verify.")
    draft: DraftSettings = Field(default_factory=DraftSettings, description="Who drafts.")
    sampling: SamplingSettings = Field(default_factory=SamplingSettings, description="How tokens are chosen.")
    engine: EngineSettings = Field(default_factory=EngineSettings, description="How a model is loaded.")
    memory: MemorySettings = Field(
        default_factory=MemorySettings, description="What is remembered of replies."
    )
    chat: ChatSettings = Field(default_factory=ChatSettings, description="What a conversation begins with.")
    ui: UiSettings = Field(default_factory=UiSettings, description="How the terminal app looks.")
    keymap: dict[str, str] = Field(
        default_factory=dict, description="Keys of the terminal app, by the action's name, such as chat.stop."
    )

    @field_validator("keymap", mode="before")
    @classmethod
    def _by_action(cls, value: object) -> object:
        return dict(keys_by_action(value)) if isinstance(value, dict) else value


_GROUPS: dict[str, type[_Group]] = {
    "draft": DraftSettings,
    "sampling": SamplingSettings,
    "engine": EngineSettings,
    "memory": MemorySettings,
    "chat": ChatSettings,
    "ui": UiSettings,
}

_FLAGS: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "verify": ("verify",),
    "draft": ("draft", "spec"),
    "draft_length": ("draft", "length"),
    "draft_leaves": ("draft", "leaves"),
    "draft_context": ("draft", "context"),
    "draft_gpu_layers": ("draft", "gpu_layers"),
    "policy": ("draft", "policy"),
    "memory": ("memory", "enabled"),
    "system": ("chat", "system_prompt"),
    "max_tokens": ("chat", "max_tokens"),
    "think": ("chat", "think"),
    **{name: ("draft", name) for name in ("ngram_min", "ngram_max", "ngram_pick", "ngram_min_hits")},
    **{name: ("sampling", name) for name in SamplingSettings.model_fields},
    **{name: ("engine", name) for name in EngineSettings.model_fields},
}
_FLAG_OF = {path: name for name, path in _FLAGS.items()}

_Path = tuple[str, ...]


def config_file() -> Path:
    """The user's settings; the file need not exist."""
    return config_dir() / "config.toml"


def load_settings() -> Settings:
    """The settings of the environment and of the file.

    Raises:
        UsageError: a value that cannot be used, an unknown key or a broken file; it names the place.
    """
    file = config_file()
    from_file = _long_form(_read(file))
    from_environment = _long_form(_environment())
    _check(from_file, lambda path: f"{'.'.join(path)} in {file}", strict=True)
    _check(from_environment, _variable, strict=False)
    together = _merged(from_file, from_environment)
    return _check(together, lambda path: f"{'.'.join(path)} in {file} or {_variable(path)}", strict=False)


def names_model() -> bool:
    """Whether the environment or the file says which model answers; raises like `load_settings`."""
    return "model" in load_settings().model_fields_set


def from_file(changes: Mapping[str, object] | None = None) -> Settings:
    """The settings of the file alone, with some replaced by key, such as "engine.threads".

    A replacing value may be text, as in the environment. Raises `UsageError` as `load_settings` does.
    """
    data = _long_form(_read(config_file()))
    for key, value in (changes or {}).items():
        _put(data, path_of(key), value)
    return _check(data, ".".join, strict=False)


def merge(settings: Settings, **flags: Any) -> Settings:
    """Settings with some replaced by flags, named as on the command line; None means not given.

    Raises:
        UsageError: a flag's value that cannot be used.
        TypeError: there is no such flag.
    """
    given: dict[str, Any] = {}
    for name, value in flags.items():
        if name not in _FLAGS:
            raise TypeError(f"there is no flag {name}")
        if value is not None:
            _put(given, _FLAGS[name], value)
    if not given:
        return settings
    return _check(_merged(settings.model_dump(), given), _flag, strict=False)


def engine_options(
    settings: Settings,
    *,
    chat_template: str | None = None,
    speculation: bool = True,
    remember: bool = False,
    **flags: Any,
) -> EngineOptions:
    """How to load the model.

    Args:
        settings: what file and environment say.
        chat_template: Jinja source that replaces the model's own.
        speculation: whether it starts switched on.
        remember: whether its replies are among those that the settings let be remembered.
        flags: what the command line says, see `merge`.

    Raises:
        UsageError: a flag's value that cannot be used.
    """
    chosen = merge(settings, **flags)
    draft = chosen.draft.model_dump()
    return EngineOptions(
        **chosen.engine.model_dump(),
        draft=DraftOptions(window=draft.pop("context"), **draft),
        speculation=speculation,
        chat_template=chat_template,
        verify=chosen.verify,
        memory=str(memory_dir()) if remember and chosen.memory.enabled else None,
        memory_capacity=chosen.memory.capacity,
    )


def sampling_params(
    settings: Settings, entry_defaults: Mapping[str, float] | None = None, **flags: Any
) -> SamplingParams:
    """How to choose tokens: flag, environment, file, the model's recommendation, default, in this order.

    Args:
        settings: what file and environment say.
        entry_defaults: what the model's entry recommends.
        flags: what the command line says, see `merge`.

    Returns:
        Parameters with a fresh seed where none is set; the caller draws another for every further reply.

    Raises:
        UsageError: a value that cannot be used.
    """
    chosen = merge(settings, **flags).sampling.model_dump(exclude_none=True)
    recommended = _check(
        {"sampling": dict(entry_defaults or {})},
        lambda path: f"{'.'.join(path)} of the model in models.toml",
        strict=False,
    ).sampling.model_dump(exclude_none=True)
    return SamplingParams(**{"seed": fresh_seed(), **recommended, **chosen})


def fresh_seed() -> int:
    """A new random seed of 31 bits."""
    return secrets.randbits(31)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        # LOCALSPEC_HOME names a file: what needs to write there says so.
        return {}
    except OSError as error:
        raise UsageError(f"Cannot read {file} ({error.strerror}); make it readable or remove it.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; save it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        # Not `TOMLDecodeError` alone: numbers of thousands of digits and deep nesting fail in Python itself.
        raise UsageError(f"{file} is not valid TOML: {error}; correct it or remove the file.") from error


def _environment() -> dict[str, Any]:
    found: dict[str, Any] = {}
    # Sorted, so that LOCALSPEC_DRAFT comes before LOCALSPEC_DRAFT__LENGTH.
    for name, value in sorted(os.environ.items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and value:
            path = tuple(name.removeprefix(PREFIX).lower().split("__"))
            _put(found, ("draft", "spec") if path == ("draft",) else path, value)
    return found


def _long_form(data: dict[str, Any]) -> dict[str, Any]:
    draft = data.get("draft")
    return {**data, "draft": {"spec": draft}} if isinstance(draft, str) else data


def _put(data: dict[str, Any], path: _Path, value: object) -> None:
    node: Any = data
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            # A group that was given as a value; checking it says so.
            return
    node[path[-1]] = value


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        nested = isinstance(value, dict) and isinstance(below.get(name), dict)
        result[name] = _merged(below[name], value) if nested else value
    return result


def _variable(path: _Path) -> str:
    return PREFIX + "__".join(path).upper()


def _flag(path: _Path) -> str:
    if path[-1] in _GROUPS:
        return f"The {path[-1]} options"
    return "--" + _FLAG_OF.get(path, path[-1]).replace("_", "-")


def _check(data: dict[str, Any], name: Callable[[_Path], str], *, strict: bool) -> Settings:
    """Validate; an error is told with the name of its place."""
    try:
        return Settings.model_validate(data, strict=strict)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = tuple(str(part) for part in first["loc"])
        raise UsageError(_complaint(first["type"], first["msg"], first["input"], path, name)) from error


def _complaint(kind: str, message: str, value: object, path: _Path, name: Callable[[_Path], str]) -> str:
    place = name(path)
    if kind == "extra_forbidden":
        group = _GROUPS.get(path[0], Settings) if len(path) > 1 else Settings
        known = list(group.model_fields)
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {name((*path[:-1], near[0]))}?" if near else f"known here: {', '.join(known)}."
        return f"There is no setting {place}; {hint}"
    if kind == "model_type":
        keys = ", ".join(_GROUPS[path[0]].model_fields)
        return f"{place} is a group of settings, not a value; give one of its keys: {keys}."
    if kind == "dict_type" and path == (KEYMAP,):
        return f"{place} is a group of settings: name an action, such as {name((KEYMAP, 'chat.stop'))}."
    if kind == "value_error":
        return f"{place}: {message.removeprefix('Value error, ')}; correct one of them."
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    # Pydantic begins with what it looked at: "Input should be ...", "String should have ...".
    return f"{place} cannot be {shown}: it {message.partition(' ')[2]}."
