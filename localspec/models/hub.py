"""Files of the Hugging Face hub, with huggingface_hub's own client, settings and credentials.

The hub library keeps no partial file between calls, so the transfer itself is here: a ranged request through
its HTTP client into a file that the next call continues.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import DownloadError, ModelFileError
from localspec.models import disk
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.progress import Meter

_TIMEOUT_S = 20.0
_MOST_FAILURES = 5
_PAUSE_S = 0.5
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the hub says of a file: `etag` is its sha256 for every large file."""

    url: str
    etag: str
    size: int | None

    @property
    def sha256(self) -> str | None:
        """The file's hash, if the hub tells it."""
        return self.etag if _SHA256.fullmatch(self.etag) else None


def look_up(source: HubSource) -> HubFile:
    """Ask the hub about a file.

    Raises:
        DownloadError: no network, offline mode, no such repository, revision or file, access not granted.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    url = hf_hub_url(source.repo, source.file, revision=source.revision)
    try:
        metadata = get_hf_file_metadata(url, timeout=_TIMEOUT_S)
    except Exception as error:
        raise _hub_error(source, error) from error
    return HubFile(url=url, etag=metadata.etag or "", size=metadata.size)


def download(entry: ModelEntry, source: HubSource, folder: Path, meter: Meter) -> tuple[Path, str | None]:
    """Fetch a file into `folder`, continuing where an earlier call stopped.

    Returns:
        The whole file, and its sha256 according to the hub (None if the hub does not tell it).

    Raises:
        DownloadError: the hub cannot be reached or refuses, the connection keeps failing, no space.
        ModelFileError: the hub's file is not the one that the entry describes; no data was fetched.
    """
    meter.begin("connecting")
    found = look_up(source)
    _expect(entry, source, found)
    key = re.sub(r"[^A-Za-z0-9]", "", found.etag)[:16] or "unknown"
    part = folder / f"{entry.filename}.{key}.part"
    for other in folder.glob("*.part"):
        if other != part:
            other.unlink()
    have = part.stat().st_size if part.exists() else 0
    if found.size is not None:
        if have > found.size:
            part.unlink()
            have = 0
        disk.require_space(folder, found.size - have)
    _transfer(source, found, part, meter)
    return part, found.sha256


def _expect(entry: ModelEntry, source: HubSource, found: HubFile) -> None:
    where = f" in {entry.origin}" if entry.origin else ""
    if entry.size is not None and found.size is not None and entry.size != found.size:
        raise ModelFileError(
            f"The file {source} has {found.size} bytes where {entry.size} are expected, so it was not "
            f'fetched. It was probably replaced: correct "size" and "sha256" of {entry.name}{where}.'
        )
    if entry.sha256 is not None and found.sha256 is not None and entry.sha256 != found.sha256:
        raise ModelFileError(
            f"The file {source} has sha256 {found.sha256} where {entry.sha256} is expected, so it was not "
            f'fetched. It was probably replaced: correct "sha256" of {entry.name}{where}.'
        )


def _transfer(source: HubSource, found: HubFile, part: Path, meter: Meter) -> None:
    # The base of every error of the hub's HTTP client, which differs between releases of the hub library.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    failures = 0
    while True:
        have = part.stat().st_size if part.exists() else 0
        if found.size is not None and have == found.size:
            return
        problem: Exception | None = None
        try:
            _stream(found, part, have, meter)
        except HTTPError as error:
            if _is_final(error):
                raise _hub_error(source, error) from error
            problem = error
        now = part.stat().st_size if part.exists() else 0
        if problem is None and found.size is None:
            return
        failures = 0 if now > have else failures + 1
        if failures >= _MOST_FAILURES:
            raise DownloadError(
                f"The connection to the hub keeps failing ({_reason(problem)}). {disk.readable_size(now)} "
                "are kept, and `localspec models pull` continues from there."
            ) from problem
        if problem is not None:
            meter.begin("retrying", now, found.size)
            time.sleep(_PAUSE_S * 2**failures)


def _stream(found: HubFile, part: Path, have: int, meter: Meter) -> None:
    """One request, from byte `have` on; writes every block as it comes."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    # Ranges count bytes of the file itself, so it must not be compressed on the way.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    # The client drops the credentials when it is redirected to a storage host.
    with get_session().stream(
        "GET", found.url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=True
    ) as response:
        if response.status_code == 416:
            part.unlink(missing_ok=True)
            return
        hf_raise_for_status(response)
        resumed = response.status_code == 206 and _range_start(response) == have
        if have and not resumed:
            have = 0
        with part.open("ab" if have else "wb") as file:
            meter.begin("downloading", have, found.size)
            # As the bytes come: what is held back for a larger block is lost with the connection.
            for block in response.iter_bytes():
                file.write(block)
                have += len(block)
                meter.at(have)
            meter.at(have, force=True)


def _range_start(response: Any) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _is_final(error: Exception) -> bool:
    """Whether the hub refused, so that asking again cannot help."""
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError) or error.response is None:
        return False
    return error.response.status_code < 500 and error.response.status_code != 429


def _reason(error: BaseException | None) -> str:
    text = str(error).strip().splitlines() if error is not None else []
    return text[0][:120] if text else "it ended early" if error is None else type(error).__name__


def _hub_error(source: HubSource, error: Exception) -> DownloadError:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, OfflineModeIsEnabled):
        return DownloadError(f"Cannot fetch {source} in offline mode; unset HF_HUB_OFFLINE and try again.")
    if isinstance(error, GatedRepoError):
        return DownloadError(
            f"The repository {source.repo} is gated; accept its licence on its page, run `hf auth login`, "
            "and try again."
        )
    if isinstance(error, RepositoryNotFoundError):
        return DownloadError(
            f"The hub has no repository {source.repo}, or it is private; correct the source, or run "
            "`hf auth login`."
        )
    if isinstance(error, RevisionNotFoundError):
        return DownloadError(
            f'The repository {source.repo} has no revision "{source.revision}"; correct the source.'
        )
    if isinstance(error, EntryNotFoundError):
        return DownloadError(f"The repository {source.repo} has no file {source.file}; correct the source.")
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        status = error.response.status_code
        return DownloadError(f"The hub answered {status} for {source}; try again later.")
    return DownloadError(
        f"The Hugging Face hub cannot be reached ({_reason(error)}); check the network, or set HF_ENDPOINT "
        "to a mirror, and try again."
    )
