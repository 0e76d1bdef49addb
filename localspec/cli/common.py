"""What the verbs share: options, what they add up to, and small output helpers.

Every option is declared once, as an annotated alias; `Flags` carries those that a user gave. Limits of values
are checked where settings from everywhere come together, so that flag and config file get the same sentence.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from localspec.model_files import WantedFiles
    from localspec.models.registry import Resolved
    from localspec.settings import Settings
    from localspec.types import EngineOptions, SamplingParams

_LARGEST_TEXT = 64 * 2**20
"""Bytes of a file that an option names."""


def debugging() -> bool:
    """Whether errors are shown with their traceback."""
    return os.environ.get("LOCALSPEC_DEBUG", "") not in ("", "0")


def _debug(wanted: bool) -> None:
    if wanted:
        # The engine's process inherits it.
        os.environ["LOCALSPEC_DEBUG"] = "1"


ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME|PATH", help="A known model or a GGUF file.")
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft", "-d", metavar="WHO",
        help="auto, suffix, ngram, none, a model, a head (mtp, eagle3, dflash, dspark); more: suffix+NAME.",
    ),
]  # fmt: skip
DraftContextOption = Annotated[
    int | None,
    typer.Option("--draft-context", metavar="N", help="Tokens that a draft model looks back on at most."),
]
DraftGpuLayersOption = Annotated[
    int | None,
    typer.Option(
        "--draft-gpu-layers", metavar="N", help="Its layers on the GPU; left out, all that still fit."
    ),
]
DraftLengthOption = Annotated[
    int | None, typer.Option("--draft-length", metavar="N", help="Draft tokens a step at most.")
]
DraftLeavesOption = Annotated[
    int | None, typer.Option("--draft-leaves", metavar="N", help="Branches of a draft at most; 1 is a chain.")
]
DraftListOption = Annotated[
    str | None, typer.Option("--draft", "-d", metavar="LIST", help="Drafters to compare; ngram if left out.")
]
DraftLengthListOption = Annotated[
    str | None,
    typer.Option("--draft-length", metavar="LIST", help="Draft tokens a step: 2,4,8; auto chooses at each."),
]
PolicyListOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="LIST", help="What chooses the length: cost, ema, fixed:8, ..."),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="POLICY", help="What chooses the draft length: cost measures, fixed:N is fixed."
    ),
]
NgramMinOption = Annotated[
    int | None, typer.Option("--ngram-min", metavar="N", help="Shortest match of n-gram drafts, in tokens.")
]
NgramMaxOption = Annotated[
    int | None, typer.Option("--ngram-max", metavar="N", help="Longest match of n-gram drafts, in tokens.")
]
NgramPickOption = Annotated[
    str | None,
    typer.Option(
        "--ngram-pick", metavar="WHICH", help="Which match n-gram drafts copy: recent, frequent or first."
    ),
]
NgramMinHitsOption = Annotated[
    int | None,
    typer.Option("--ngram-min-hits", metavar="N", help="How often what they copy must have followed."),
]
VerifyOption = Annotated[
    str | None,
    typer.Option(
        "--verify",
        metavar="RULE",
        help="When a draft token is accepted: coupled, rejection or block; typical and adasd are lossy.",
    ),
]
TemperatureOption = Annotated[
    float | None, typer.Option("--temperature", "-t", metavar="T", help="0 is greedy.")
]
TopKOption = Annotated[
    int | None, typer.Option("--top-k", metavar="K", help="Keep the K best tokens; 0 keeps all.")
]
TopPOption = Annotated[
    float | None, typer.Option("--top-p", metavar="P", help="Keep the smallest set of that mass.")
]
MinPOption = Annotated[
    float | None,
    typer.Option("--min-p", metavar="P", help="Drop tokens under P times the best."),
]
RepeatPenaltyOption = Annotated[
    float | None,
    typer.Option("--repeat-penalty", metavar="X", help="Penalise tokens already said; 1 is off."),
]
PresencePenaltyOption = Annotated[
    float | None,
    typer.Option("--presence-penalty", metavar="X", help="Penalise once what was said; 0 is off."),
]
FrequencyPenaltyOption = Annotated[
    float | None, typer.Option("--frequency-penalty", metavar="X", help="Penalise by count; 0 is off.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Same seed, same reply; a new one each time if left out."),
]
MaxTokensOption = Annotated[
    int | None, typer.Option("--max-tokens", "-n", metavar="N", help="Longest reply in tokens.")
]
ContextOption = Annotated[
    int | None, typer.Option("--context", metavar="N", help="Tokens of context; else up to 8192.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", help="CPU threads; left out, they follow the machine's load."),
]
GpuLayersOption = Annotated[
    int | None,
    typer.Option("--gpu-layers", metavar="N", help="Layers on the GPU; left out, all that fit."),
]
FlashAttentionOption = Annotated[
    bool | None,
    typer.Option("--flash-attention/--no-flash-attention", help="Left out, llama.cpp decides."),
]
KvTypeOption = Annotated[
    str | None, typer.Option("--kv-type", metavar="TYPE", help="Element type of the KV cache: f16, q8_0, ...")
]
ChatTemplateOption = Annotated[
    Path | None,
    typer.Option(
        "--chat-template",
        metavar="FILE|NAME",
        help="Jinja template, or a known format such as chatml, in place of the model's own.",
    ),
]
ThinkOption = Annotated[
    bool | None,
    typer.Option("--think/--no-think", help="Reason before the reply, where the model has a switch for it."),
]
SystemOption = Annotated[
    str | None, typer.Option("--system", "-s", metavar="TEXT", help="What the model is told before the chat.")
]
MemoryOption = Annotated[
    bool | None,
    typer.Option(
        "--memory/--no-memory", help="Remember replies, and draft from earlier ones; on by default."
    ),
]
DebugOption = Annotated[
    bool,
    typer.Option("--debug", help="Show where an error came from.", callback=_debug, is_eager=True),
]


@dataclass(frozen=True)
class Flags:
    """The shared options as given on the command line; None means: not given."""

    model: ModelOption
    draft: DraftOption
    draft_context: DraftContextOption
    draft_gpu_layers: DraftGpuLayersOption
    draft_length: DraftLengthOption
    draft_leaves: DraftLeavesOption
    policy: PolicyOption
    ngram_min: NgramMinOption
    ngram_max: NgramMaxOption
    ngram_pick: NgramPickOption
    ngram_min_hits: NgramMinHitsOption
    verify: VerifyOption
    temperature: TemperatureOption
    top_k: TopKOption
    top_p: TopPOption
    min_p: MinPOption
    repeat_penalty: RepeatPenaltyOption
    presence_penalty: PresencePenaltyOption
    frequency_penalty: FrequencyPenaltyOption
    seed: SeedOption
    max_tokens: MaxTokensOption
    context: ContextOption
    threads: ThreadsOption
    gpu_layers: GpuLayersOption
    flash_attention: FlashAttentionOption
    kv_type: KvTypeOption
    chat_template: ChatTemplateOption
    think: ThinkOption
    system: SystemOption
    memory: MemoryOption


def with_shared_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb every option of `Flags`, and --debug; it gets them as its argument `flags`.

    Typer reads options from a function's signature, so the signature is put together here.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(verb, eval_str=True)
    own = [option for option in signature.parameters.values() if option.name != "flags"]
    arguments = [option for option in own if option.default is inspect.Parameter.empty]
    options = [
        *(
            option.replace(default=None)
            for option in inspect.signature(Flags, eval_str=True).parameters.values()
        ),
        *(option for option in own if option not in arguments),
        inspect.Parameter("debug", keyword, default=False, annotation=DebugOption),
    ]

    @functools.wraps(verb)
    def collected(**given: Any) -> None:
        # Its callback has done all there is to do.
        given.pop("debug")
        flags = Flags(**{field.name: given.pop(field.name) for field in fields(Flags)})
        verb(flags=flags, **given)

    parameters = [*arguments, *(option.replace(kind=keyword) for option in options)]
    collected.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return collected


@dataclass(frozen=True)
class Plan:
    """What a verb starts with, after flags, environment, config file and the model's entry were weighed.

    `files.find()` fetches what is missing of the model and of its draft models.
    """

    files: WantedFiles
    sampling: SamplingParams
    system: str | None
    max_tokens: int | None
    settings: Settings

    @property
    def engine(self) -> EngineOptions:
        """How the model is loaded."""
        return self.files.options

    @property
    def model(self) -> Resolved:
        """What the value of --model stands for."""
        return self.files.model

    def sampling_of(self, recommended: Mapping[str, float]) -> SamplingParams:
        """How a model with these recommendations is sampled."""
        from localspec.settings import sampling_params

        return sampling_params(self.settings, recommended)


def plan(flags: Flags, *, needs_draft: bool = True) -> Plan:
    """Check everything that can be checked without the engine.

    Args:
        flags: what the user gave.
        needs_draft: whether a draft model that was asked for by a flag and cannot be had is an error.

    Raises:
        UsageError: an option, a setting, a drafter or a template that cannot be used.
        NotFoundError: an unknown model, or a file that is not there.
        ModelFileError: a file that is no model.
        IncompatibleError: a draft model that is needed and cannot draft for the model.
    """
    from localspec import settings as config
    from localspec.control import check_policy
    from localspec.drafters import check_spec, has_probs
    from localspec.model_choice import chosen_note, resolve
    from localspec.model_files import WantedFiles, usable_drafts
    from localspec.models.gguf import read_header
    from localspec.models.heads import check_draft
    from localspec.verify import check_verify

    given = asdict(flags)
    path = given.pop("chat_template")
    template = None if path is None else _chat_template(path)
    settings = config.merge(config.load_settings(), **given)
    engine = config.engine_options(settings, chat_template=template, remember=True)
    # One that was set for all models need not suit this one.
    needs_draft = needs_draft and flags.draft is not None
    model = resolve(settings.model)
    draft, drafts, notes = usable_drafts(engine.draft, model, needed=needs_draft)
    check_spec(draft)
    check_policy(draft.policy)
    check_verify(engine.verify, drafter=draft.spec, has_probs=has_probs(draft))
    if model.path is not None:
        # Before the engine starts: native code reports a broken file badly.
        header = read_header(model.path)
        if needs_draft:
            # And before gigabytes of the target are read.
            for name, resolved in drafts.items():
                if resolved.path is not None:
                    check_draft(name, read_header(resolved.path), header)
    return Plan(
        files=WantedFiles(
            model,
            replace(engine, draft=draft, needs_draft=needs_draft),
            drafts,
            notes=tuple(filter(None, [chosen_note(settings.model), *notes])),
        ),
        sampling=config.sampling_params(settings, model.entry.sampling.given() if model.entry else None),
        system=check_text(settings.chat.system_prompt, "The system prompt") or None,
        max_tokens=settings.chat.max_tokens,
        settings=settings,
    )


def _chat_template(given: Path) -> str:
    """The Jinja source that --chat-template stands for: a file's, or that of a format known by name."""
    if given.suffix or len(given.parts) > 1 or given.exists():
        return read_text(given, "chat template")
    from localspec.chat.formats import find_format

    return find_format(given.name).source


def check_text(text: str, what: str) -> str:
    """`text` itself; raises `UsageError` where it holds bytes that were not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not valid UTF-8; convert it first.") from error
    return text


def read_text(path: Path, what: str) -> str:
    """The text of a file that an option names.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            # Devices, pipes and files of models would fill the memory.
            data = file.read(_LARGEST_TEXT + 1)
        if len(data) > _LARGEST_TEXT:
            raise UsageError(f"The {what} {path} is larger than 64 MiB; give a smaller file.")
        return data.decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no {what} {path}; check the path.") from error
    except OSError as error:
        raise UsageError(
            f"Cannot read the {what} {path} ({error.strerror or error}); check the path."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read the {what} {path}: it is not UTF-8 text; convert it first.") from error


class StatusLine:
    """One line on standard error that overwrites itself; silent where nobody watches, or it is not wanted."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._on = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._on:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
