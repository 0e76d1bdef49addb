"""Files of the Hugging Face hub, with huggingface_hub's own client, settings and credentials.

The hub library keeps no partial file between calls, so the transfer is our own: `localspec.models.transfer`.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
from dataclasses import replace
from pathlib import Path, PurePosixPath

from localspec.errors import DownloadError, ModelFileError, UsageError
from localspec.models import disk, split
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.hub_errors import Patience, explained, is_busy
from localspec.models.parallel import run_all
from localspec.models.progress import Meter
from localspec.models.transfer import TIMEOUT_S, HubFile, Transfer

_AT_ONCE = 3


def sources_of(source: HubSource) -> tuple[HubSource, ...]:
    """The sources of all files of a model; more than one where it is split.

    Raises:
        UsageError: the source is a later part of a split model, or no model of this kind at all.
    """
    if not source.file.lower().endswith(".gguf"):
        raise UsageError(f"{source} is not a .gguf file, so llama.cpp cannot read it; name one that is.")
    try:
        return tuple(replace(source, file=name) for name in split.part_names(source.file))
    except ValueError as error:
        raise UsageError(f"Cannot use the model source {source}: {error}.") from error


def look_up(source: HubSource, stop: threading.Event, paused: set[HubSource]) -> HubFile:
    """Ask the hub about a file; again after a while where it is busy.

    Args:
        source: the file.
        stop: ends a wait.
        paused: holds `source` for as long as the hub is left alone.

    Raises:
        DownloadError: no network, offline mode, no such repository, revision or file, access not granted.
        UsageError: a name that no repository can have.
        StoppedError: `stop` was set.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    patience = Patience(source, stop)
    while True:
        try:
            url = hf_hub_url(source.repo, source.file, revision=source.revision)
            metadata = get_hf_file_metadata(url, timeout=TIMEOUT_S)
        except Exception as error:
            patience.failed()
            if not is_busy(error) or patience.is_over:
                raise explained(source, error) from error
            paused.add(source)
            patience.pause(error)
            paused.discard(source)
        else:
            return HubFile(url=url, etag=metadata.etag or "", size=metadata.size)


def download(
    entry: ModelEntry, source: HubSource, folder: Path, meter: Meter
) -> list[tuple[Path, str | None]]:
    """Fetch a model's files into `folder`, three at a time, continuing where an earlier call stopped.

    Returns:
        The whole files in order, each with its sha256 according to the hub (None if that does not tell it).

    Raises:
        DownloadError: the hub cannot be reached or refuses, the connection keeps failing, no space.
        ModelFileError: the hub's file is not the one that the entry describes; no data was fetched.
        UsageError: the source is not the first part of its model.
    """
    sources = sources_of(source)
    meter.begin("connecting")
    found = _look_up_all(sources, meter)
    _expect(entry, source, found)
    transfers = [
        Transfer(one, file, _part_path(folder, one, file)) for one, file in zip(sources, found, strict=True)
    ]
    wanted = {transfer.path for transfer in transfers}
    for other in folder.glob("*.part"):
        if other not in wanted:
            other.unlink()
    disk.require_space(folder, sum(transfer.missing for transfer in transfers))
    total = _total(found)

    def report() -> None:
        stages = {transfer.stage for transfer in transfers} - {""}
        working = "downloading" in stages or not stages
        stage = "downloading" if working else "paused" if "paused" in stages else "retrying"
        meter.follow(stage, sum(transfer.done for transfer in transfers), total)

    report()
    run_all([transfer.run for transfer in transfers], report, _AT_ONCE)
    meter.at(sum(transfer.done for transfer in transfers), force=True)
    return [(transfer.path, transfer.found.sha256) for transfer in transfers]


def _look_up_all(sources: tuple[HubSource, ...], meter: Meter) -> list[HubFile]:
    from huggingface_hub.errors import EntryNotFoundError

    paused: set[HubSource] = set()

    def job(source: HubSource, stop: threading.Event) -> HubFile:
        try:
            return look_up(source, stop, paused)
        except DownloadError as error:
            if len(sources) == 1 or not isinstance(error.__cause__, EntryNotFoundError):
                raise
            raise DownloadError(
                f"The repository {source.repo} has no file {source.file}, one of the {len(sources)} parts of "
                "the model; correct the source, or choose another file of it."
            ) from error

    jobs = [lambda stop, source=source: job(source, stop) for source in sources]
    return run_all(jobs, lambda: meter.follow("paused" if paused else "connecting", 0, None), _AT_ONCE)


def prepare_library() -> None:
    """Load the hub library; raises `UsageError` for settings that it cannot read."""
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise UsageError(
            f"The hub library cannot read its settings ({error}); correct or unset HF_ENDPOINT and the other "
            "variables that begin with HF_."
        ) from error

    # Before there are threads: several that import the library at once may find half of it.
    importlib.import_module("huggingface_hub.file_download")
    # Its warnings are for programmers, and would stand in the middle of a progress bar.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    # The hub learns which file is wanted, and nothing else of this machine; that also saves a request.
    constants.HF_HUB_DISABLE_TELEMETRY = True


def _part_path(folder: Path, source: HubSource, found: HubFile) -> Path:
    """Where a file lies until it is whole; the name tells of which version of the file it is a part."""
    key = re.sub(r"[^A-Za-z0-9]", "", found.etag)[:16] or "unknown"
    return folder / f"{PurePosixPath(source.file).name}.{key}.part"


def _total(found: list[HubFile]) -> int | None:
    sizes = [file.size for file in found]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _expect(entry: ModelEntry, source: HubSource, found: list[HubFile]) -> None:
    where = f" in {entry.origin}" if entry.origin else ""
    for file in found:
        if file.size is not None and file.size <= 0:
            raise ModelFileError(f"The hub has an empty file for {source}; choose another one.")
    total, sha256 = _total(found), found[0].sha256
    if entry.size is not None and total is not None and entry.size != total:
        raise ModelFileError(
            f"The file {source} has {total} bytes where {entry.size} are expected, so it was not "
            f'fetched. It was probably replaced: correct "size" and "sha256" of {entry.name}{where}.'
        )
    if entry.sha256 is not None and sha256 is not None and entry.sha256 != sha256:
        raise ModelFileError(
            f"The file {source} has sha256 {sha256} where {entry.sha256} is expected, so it was not "
            f'fetched. It was probably replaced: correct "sha256" of {entry.name}{where}.'
        )
