"""One file on its way from the hub: ranged requests into a file that the next call continues."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import DownloadError
from localspec.models import disk
from localspec.models.entries import HubSource
from localspec.models.hub_errors import Patience, asked_pause, explained, is_refused, reason
from localspec.models.parallel import StoppedError

TIMEOUT_S = 20.0

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


class Transfer:
    """A download that runs in a thread of its own and is watched from another.

    Attributes:
        source: what is fetched.
        found: what the hub says of it.
        path: where it goes.
        done: bytes that are there.
        stage: "downloading", "retrying" or "paused" (as the hub asks); "" before it began and after it ended.
    """

    def __init__(self, source: HubSource, found: HubFile, path: Path) -> None:
        self.source = source
        self.found = found
        self.path = path
        if path.is_symlink() or not found.etag:
            # Never written through a link, and never continued where it may be of another version.
            path.unlink(missing_ok=True)
        self.done = self._size()
        self.stage = ""
        if found.size is not None and self.done > found.size:
            path.unlink()
            self.done = 0

    @property
    def missing(self) -> int:
        """Bytes that are still to come, 0 if the hub does not say how many there are."""
        return max(0, (self.found.size or 0) - self.done)

    def run(self, stop: threading.Event) -> None:
        """Fetch what is missing, again and again while that gets further.

        Raises:
            DownloadError: the hub refuses, or the connection keeps failing.
            StoppedError: `stop` was set.
        """
        # The base of every error of the hub's HTTP client, which differs between releases of the library.
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

        patience = Patience(self.source, stop)
        furthest = self.done
        self.stage = "downloading"
        while self.found.size is None or self.done != self.found.size:
            problem: Exception | None = None
            ended = False
            try:
                ended = self._stream(stop)
            except HTTPError as error:
                if is_refused(error):
                    raise explained(self.source, error) from error
                problem = error
            except OSError:
                if not self.found.etag:
                    # It would lie there, on a disk that is full, and be of no use.
                    self.path.unlink(missing_ok=True)
                raise
            if ended and self.found.size is None:
                break
            if self.done > furthest:
                furthest = self.done
                patience.succeeded()
            else:
                patience.failed()
            if patience.is_over:
                raise DownloadError(
                    f"The connection to the hub keeps failing ({reason(problem)}). {self._kept}."
                ) from problem
            if problem is not None:
                self.stage = "retrying" if asked_pause(problem) is None else "paused"
                patience.pause(problem)
                self.stage = "downloading"
        self.stage = ""

    @property
    def _kept(self) -> str:
        if not self.done or not self.found.etag:
            return "Nothing is kept; try again later"
        return f"{disk.readable_size(self.done)} are kept, and `localspec models pull` continues there"

    def _stream(self, stop: threading.Event) -> bool:
        """One request for all that is missing; writes every block as it comes. False if nothing was sent."""
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            get_session,
            hf_raise_for_status,
        )

        # Ranges count bytes of the file itself, so it must not be compressed on the way.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
        # The client drops the credentials when it is redirected to a storage host.
        with get_session().stream(
            "GET", self.found.url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True
        ) as response:
            _look(stop)
            if response.status_code == 416:
                self.path.unlink(missing_ok=True)
                self.done = 0
                return False
            hf_raise_for_status(response)
            if not (response.status_code == 206 and _range_start(response) == self.done):
                self.done = 0
            with self.path.open("ab" if self.done else "wb") as file:
                # As the bytes come: what is held back for a larger block is lost with the connection.
                for block in response.iter_bytes():
                    _look(stop)
                    self._write(file, block)
        return True

    def _write(self, file: Any, block: bytes) -> None:
        if self.found.size is not None and self.done + len(block) > self.found.size:
            raise DownloadError(
                f"The hub sends more of {self.source} than the {self.found.size} bytes that it announced; "
                "try again later."
            )
        file.write(block)
        self.done += len(block)

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def _look(stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError


def _range_start(response: Any) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
