"""What the hub's refusals mean, and how long it wants to be left alone."""

from __future__ import annotations

import difflib
import email.utils
import itertools
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from localspec.errors import DownloadError, UsageError
from localspec.models.parallel import StoppedError
from localspec.text import printable

if TYPE_CHECKING:
    from localspec.models.entries import HubSource

_MOST_FAILURES = 5
_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 300.0
_DAY_S = 86400.0
_MOST_DIGITS = 9
_MOST_LISTED = 1000
"""Files of a repository; there are those with tens of thousands."""


class Patience:
    """How often something is tried again, and when: a pause that grows, or the one that the hub asks for."""

    def __init__(self, source: HubSource, stop: threading.Event) -> None:
        self._source = source
        self._stop = stop
        self._failures = 0

    @property
    def is_over(self) -> bool:
        """Whether it failed too often in a row."""
        return self._failures >= _MOST_FAILURES

    def failed(self) -> None:
        """Note a failure."""
        self._failures += 1

    def succeeded(self) -> None:
        """Note that it got further: earlier failures are forgotten."""
        self._failures = 0

    def pause(self, error: BaseException | None) -> None:
        """Wait before the next try.

        Raises:
            DownloadError: the hub asks for a pause of more than five minutes.
            StoppedError: the wait was ended.
        """
        asked = asked_pause(error)
        if asked is not None and asked > _LONGEST_PAUSE_S:
            raise DownloadError(
                f"The hub has had too many requests from here and asks to wait {_duration(asked)}; try "
                f"again to fetch {self._source} then, or log in with `hf auth login` for a higher limit."
            )
        if self._stop.wait(_PAUSE_S * 2**self._failures if asked is None else asked):
            raise StoppedError


def asked_pause(error: BaseException | None) -> float | None:
    """Seconds that the hub wants to pass before the next request, None if it does not say."""
    response = _response(error)
    if response is None:
        return None
    after = str(response.headers.get("Retry-After", "")).strip()
    if after.isascii() and after.isdigit():
        return float(after[:_MOST_DIGITS])
    try:
        at = email.utils.parsedate_to_datetime(after)
    except ValueError:
        limit = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", str(response.headers.get("RateLimit", "")))
        return float(limit[1]) if limit else None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def is_refused(error: Exception) -> bool:
    """Whether the hub refused, so that asking again cannot help."""
    response = _response(error)
    return response is not None and response.status_code < 500 and response.status_code != 429


def is_busy(error: Exception) -> bool:
    """Whether the hub answered that it cannot answer now."""
    response = _response(error)
    return response is not None and not is_refused(error)


def reason(error: BaseException | None) -> str:
    """An error in a few words, on one line."""
    text = str(error).strip().splitlines() if error is not None else []
    return printable(text[0][:120]) if text else "it ended early" if error is None else type(error).__name__


def explained(source: HubSource, error: Exception) -> DownloadError | UsageError:
    """The error that users see in place of the hub library's."""
    from huggingface_hub import errors

    match error:
        case DownloadError():
            return error
        case errors.OfflineModeIsEnabled():
            return DownloadError(
                f"{source} is not on this machine, and cannot be fetched in offline mode; unset "
                "HF_HUB_OFFLINE and try again."
            )
        case errors.HFValidationError():
            return UsageError(
                f'"{source.repo}" cannot be a repository of the hub; correct the source {source}.'
            )
        case errors.GatedRepoError():
            return DownloadError(
                f"The repository {source.repo} is gated; accept its licence on {_page(source)}, run `hf auth "
                "login` (or set HF_TOKEN), and try again."
            )
        case errors.DisabledRepoError():
            return DownloadError(f"The hub has disabled the repository {source.repo}; choose another one.")
        case errors.RepositoryNotFoundError():
            return DownloadError(
                f"The hub has no repository {source.repo}, or it is private; correct the source, or run "
                "`hf auth login`."
            )
        case errors.RevisionNotFoundError():
            return DownloadError(
                f'The repository {source.repo} has no revision "{source.revision}"; correct the source.'
            )
        case errors.EntryNotFoundError():
            return DownloadError(
                f"The repository {source.repo} has no file {source.file}{_nearest(source)}; correct the "
                "source."
            )
    response = _response(error)
    if response is None:
        return DownloadError(
            f"The Hugging Face hub cannot be reached ({reason(error)}); check the network, or set "
            "HF_ENDPOINT to a mirror, and try again."
        )
    status = response.status_code
    if status == 401:
        return DownloadError(
            f"The hub does not accept your token for {source} (401); run `hf auth login`, or correct or "
            "unset HF_TOKEN."
        )
    if status == 403:
        return DownloadError(
            f"The hub does not allow you to fetch {source} (403); ask for access on {_page(source)}, and "
            "check what your token may do."
        )
    if status == 429:
        return DownloadError(
            f"The hub has had too many requests from here (429), so {source} was not fetched; try again in a "
            "few minutes, or log in with `hf auth login` for a higher limit."
        )
    return DownloadError(f"The hub answered {status} for {source}; try again later.")


def _nearest(source: HubSource) -> str:
    """The models of the repository whose names are most like the wanted one; "" where it does not tell."""
    from huggingface_hub import HfApi

    try:
        listed = HfApi().list_repo_tree(source.repo, revision=source.revision, recursive=True)
        names = [item.path for item in itertools.islice(listed, _MOST_LISTED)]
    except Exception:
        # The error that is being explained is the one to be told of.
        return ""
    models = {name.lower(): name for name in names if name.lower().endswith(".gguf") and name.isprintable()}
    near = difflib.get_close_matches(source.file.lower(), models, n=3, cutoff=0.5) or sorted(models)[:3]
    return f" (nearest: {', '.join(models[name] for name in near)})" if near else ""


def _page(source: HubSource) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{source.repo}"


def _response(error: BaseException | None) -> Any:
    """The hub's answer that an error is about, None for one about the connection."""
    from huggingface_hub.errors import HfHubHTTPError

    return error.response if isinstance(error, HfHubHTTPError) else None


def _duration(seconds: float) -> str:
    if seconds > _DAY_S:
        return "more than a day"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{round(minutes / 60)} hours"
