"""From what a user typed to a grid: lists are split, names and numbers checked, files and prompts found."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, cast

from localspec.bench.files import requantized
from localspec.bench.peers import peer_configs
from localspec.bench.prompts import prompts_from_file, prompts_from_history
from localspec.bench.records import Memory, Mode, Settings
from localspec.bench.synthetic import parse_rates
from localspec.bench.tasks import TASK_NAMES, Task, load_tasks
from localspec.control import DEFAULT_POLICY, check_policy
from localspec.drafters import DEFAULT_LENGTH, check_spec, models_of
from localspec.errors import NotFoundError, UsageError
from localspec.model_choice import resolve, resolve_draft, resolve_head
from localspec.models import sources
from localspec.models.gguf import read_header
from localspec.models.heads import kind_named
from localspec.models.progress import OnProgress
from localspec.models.registry import Resolved
from localspec.runtime.quantize import FILE_TYPES
from localspec.sampling import check_params
from localspec.types import DraftOptions, SamplingParams
from localspec.verify import check_verify

MODES = ("transcript", "free")
MEMORIES = ("cold", "warm")
OWN_FILE = "own"
_HISTORY_PROMPTS = 8

T = TypeVar("T")


def listed(text: str | None, default: Sequence[str], option: str) -> tuple[str, ...]:
    """The parts of a comma-separated list; raises `UsageError` for an empty part."""
    if text is None:
        return tuple(default)
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise UsageError(f"{option} is a list with commas between its parts, not '{text}'.")
    return tuple(dict.fromkeys(parts))


def numbers(
    text: str | None, default: Sequence[T], option: str, kind: Callable[[str], T], check: Callable[[T], bool]
) -> tuple[T, ...]:
    """A comma-separated list of numbers; raises `UsageError` for anything else."""
    if text is None:
        return tuple(default)
    found = []
    for part in listed(text, (), option):
        try:
            number = kind(part)
        except ValueError as error:
            raise UsageError(f"{option}: '{part}' is not a number.") from error
        if not check(number):
            raise UsageError(f"{option}: {part} is out of range.")
        found.append(number)
    return tuple(dict.fromkeys(found))


def _prompts(text: str) -> tuple[int, dict[str, int]]:
    """Prompts of every task, and of single ones: 1,copy=6,chain=6."""
    each, of = 1, {}
    for part in listed(text, (), "--prompts-per-task"):
        name, equals, number = part.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or bool(equals) != bool(name):
            raise UsageError(
                f"--prompts-per-task takes a number, and TASK=NUMBER for single tasks, not '{part}'."
            )
        if not name:
            each = int(number)
            continue
        load_tasks((name,))
        of[name] = int(number)
    return each, of


AUTO = "auto"
"""The draft length that the usual policy chooses."""
FIXED = "fixed"
"""The policy that is a draft length itself."""


def lengths_and_policies(
    lengths: str | None, policies: str | None, usual: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Fixed draft lengths, and policies that choose: of "2,8,auto" and "ema,fixed:4" 2, 8, 4 and cost, ema.

    Args:
        lengths: value of --draft-length; `usual` alone where neither it nor `policies` is given.
        policies: value of --policy.
        usual: a fixed length.

    Raises:
        UsageError: a length out of range, or a policy that there is not.
    """
    parts = listed(lengths, () if policies is not None else (str(usual),), "--draft-length")
    fixed = [part for part in parts if part != AUTO]
    chosen = [DEFAULT_POLICY] if AUTO in parts else []
    for policy in listed(policies, (), "--policy"):
        check_policy(policy)
        name, _, argument = policy.partition(":")
        if name == FIXED:
            fixed.append(argument or str(usual))
        else:
            chosen.append(policy)
    return (
        numbers(",".join(fixed) or None, (), "--draft-length", int, lambda k: 1 <= k <= 127),
        tuple(dict.fromkeys(chosen)),
    )


@dataclass(frozen=True)
class Given:
    """The options of `localspec bench` as typed; None means: not given."""

    model: str
    files: str | None = None
    tasks: str | None = None
    prompts_per_task: str = "1"
    prompts_file: Path | None = None
    from_history: bool = False
    modes: str | None = None
    drafts: str | None = None
    lengths: str | None = None
    policies: str | None = None
    verify: str | None = None
    temperatures: str | None = None
    memories: str | None = None
    synthetic: Sequence[str] = field(default_factory=tuple)
    parallel: str | None = None
    peers: str | None = None
    peer_urls: Sequence[str] = field(default_factory=tuple)
    peer_draft: str | None = None
    tokens: int = 128
    runs: int = 5
    context: int = 4096
    threads: int = 1
    gpu_layers: int | None = None
    kv_type: str = "f16"
    flash_attention: bool | None = None
    seed: int = 1
    startup: bool = True
    passes: str | None = None


def settings_of(given: Given) -> Settings:
    """The grid that `given` asks for.

    Raises:
        UsageError: a value that cannot be used.
        NotFoundError: a file of prompts that is not there.
    """
    for name, value, least in (
        ("--max-tokens", given.tokens, 2),
        ("--runs", given.runs, 1),
    ):
        if value < least:
            raise UsageError(f"{name} must be {least} or more, not {value}.")
    own_prompts = given.prompts_file is not None or given.from_history
    each, of = _prompts(given.prompts_per_task)
    tasks = listed(given.tasks, () if own_prompts else TASK_NAMES, "--tasks")
    load_tasks(tasks)
    if given.prompts_file is not None and not given.prompts_file.exists():
        raise NotFoundError(f"There is no file {given.prompts_file} with prompts; check the path.")
    drafts = listed(given.drafts, ("ngram",), "--draft")
    lengths, policies = lengths_and_policies(given.lengths, given.policies, DEFAULT_LENGTH)
    for draft in drafts:
        # Where their files are does not matter yet.
        files = {name: "" for name in models_of(draft) if _is_model(name)}
        check_spec(DraftOptions(draft, max(lengths, default=None), files=files))
    verify = listed(given.verify, ("coupled",), "--verify")
    for rule in verify:
        check_verify(rule)
    temperatures = numbers(given.temperatures, (), "--temperature", float, math.isfinite)
    for temperature in temperatures:
        check_params(SamplingParams(temperature=temperature))
    memories = listed(given.memories, MEMORIES, "--memory")
    for memory in memories:
        if memory not in MEMORIES:
            raise UsageError(f"There is no memory '{memory}'; use {' or '.join(MEMORIES)}.")
    if given.synthetic and not lengths:
        raise UsageError("--synthetic needs drafts of a fixed length; give --draft-length a number.")
    for text in given.synthetic:
        for length in lengths:
            parse_rates(text, length)
    modes = listed(given.modes, ("synthetic",) if given.synthetic else MODES, "--mode")
    for mode in modes:
        if mode not in MODES and not (mode == "synthetic" and given.synthetic):
            raise UsageError(f"There is no mode '{mode}'; use {' or '.join(MODES)}, or --synthetic.")
    if given.synthetic and "synthetic" not in modes:
        modes = (*modes, "synthetic")
    peers = listed(given.peers, (), "--peers")
    if peers and "all" not in peers:
        peer_configs(peers)
    return Settings(
        model=given.model,
        files=listed(given.files, (OWN_FILE,), "--files"),
        tasks=tasks,
        prompts_per_task=each,
        prompts_of=of,
        prompts_file=str(given.prompts_file) if given.prompts_file else None,
        prompts_sha256=_prompts_sha256(given.prompts_file) if given.prompts_file else None,
        from_history=given.from_history,
        modes=cast("tuple[Mode, ...]", modes),
        drafts=drafts,
        lengths=lengths,
        policies=policies,
        verify=verify,
        temperatures=temperatures,
        memories=cast("tuple[Memory, ...]", memories),
        synthetic=tuple(given.synthetic),
        parallel=numbers(given.parallel, (), "--parallel", int, lambda n: 1 <= n <= 64),
        peers=peers,
        peer_urls=tuple(given.peer_urls),
        peer_draft=given.peer_draft,
        tokens=given.tokens,
        runs=given.runs,
        context=given.context,
        threads=given.threads,
        gpu_layers=given.gpu_layers,
        kv_type=given.kv_type,
        flash_attention=given.flash_attention,
        seed=given.seed,
        startup=given.startup,
        passes=numbers(given.passes, (), "--passes", int, lambda n: 1 <= n <= 128),
    )


def find_tasks(settings: Settings) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """The grid's tasks with their prompts, and sentences about those that hold nothing to ask.

    Raises:
        UsageError: nothing is left to ask, or the file of prompts is not what it was when the bench began.
        NotFoundError: the file of prompts is gone, and there is nothing else to ask.
    """
    tasks = list(load_tasks(settings.tasks)) if settings.tasks else []
    notes = []
    makers: list[Callable[[], Task]] = []
    if settings.prompts_file is not None:
        path = Path(settings.prompts_file)
        now = _prompts_sha256(path)
        if now and settings.prompts_sha256 and now != settings.prompts_sha256:
            raise UsageError(
                f"{path} has changed since this bench began; bring its content back, or start anew without "
                "--resume."
            )
        makers.append(lambda: prompts_from_file(path))
    if settings.from_history:
        makers.append(lambda: prompts_from_history(max(_HISTORY_PROMPTS, settings.prompts_per_task)))
    for make in makers:
        try:
            tasks.append(make())
        except UsageError as error:
            if not tasks and make is makers[-1]:
                raise
            notes.append(str(error))
    return tuple(tasks), tuple(notes)


def _prompts_sha256(path: Path) -> str | None:
    """Hash of the content; None of a pipe, which is read only once, and where reading fails."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def find_files(settings: Settings, on_progress: OnProgress | None = None) -> tuple[Path, ...]:
    """The grid's model files, fetched or made where they are missing.

    Raises:
        NotFoundError: an unknown model or a missing file.
        DownloadError, ModelFileError, StorageError: it cannot be had.
    """
    base = _model(settings.model, on_progress)
    found = [_variant(name, base, settings, on_progress) for name in settings.files]
    stems = [path.stem for path in found]
    if len(set(stems)) < len(stems):
        raise UsageError("Two of the files have the same name; the bench could not tell them apart.")
    return tuple(found)


def find_drafts(settings: Settings, on_progress: OnProgress | None = None) -> dict[str, str]:
    """The files of the grid's draft models and heads, by their names there.

    A draft model may be a file type of the grid's own. "" stands for prediction layers (MTP) of whichever
    file is measured.

    Raises:
        DownloadError, ModelFileError, StorageError: it cannot be had.
        IncompatibleError: no head of that kind is known for the model.
    """
    names = dict.fromkeys(name for draft in settings.drafts for name in models_of(draft))
    if not names:
        return {}
    base = _model(settings.model, on_progress)
    target = replace(resolve(settings.model), path=base)
    found = {}
    for name in names:
        kind = kind_named(name)
        if kind is None:
            file = _variant(name, base, settings, on_progress, resolve_draft)
        else:
            file = _fetched(resolve_head(kind, name.partition(":")[2], target), on_progress)
        found[name] = "" if kind is not None and file == base else str(file)
    return found


def find_peer_draft(settings: Settings, on_progress: OnProgress | None = None) -> Path | None:
    """The file that llama-server drafts with, None where none was given; raises like `find_files`."""
    if settings.peer_draft is None:
        return None
    base = _model(settings.model, on_progress)
    return _variant(settings.peer_draft, base, settings, on_progress, resolve_draft)


def _is_model(name: str) -> bool:
    """Whether `_variant` knows `name`; raises `NotFoundError` for the path of a file that is not there."""
    if name == OWN_FILE or name.upper() in FILE_TYPES:
        return True
    if kind_named(name) is not None:
        name = name.partition(":")[2]
        if not name:
            # Whether there is such a head the model's registry or file will tell.
            return True
    try:
        resolve(name)
    except NotFoundError:
        if Path(name).suffix == ".gguf":
            raise
        return False
    return True


def _variant(
    name: str,
    base: Path,
    settings: Settings,
    on_progress: OnProgress | None,
    find: Callable[[str], Resolved] = resolve,
) -> Path:
    """`base` itself, a quantization of it, or another model."""
    if name == OWN_FILE:
        return base
    if name.upper() in FILE_TYPES:
        return requantized(base, name.upper(), settings.threads)
    return _model(name, on_progress, find)


def _model(name: str, on_progress: OnProgress | None, find: Callable[[str], Resolved] = resolve) -> Path:
    return _fetched(find(name), on_progress)


def _fetched(resolved: Resolved, on_progress: OnProgress | None) -> Path:
    path = resolved.path
    if path is None:
        assert resolved.entry is not None  # noqa: S101 - a name that resolves has an entry or a path
        path = sources.pull(resolved.entry, on_progress)
    read_header(path)
    return path
