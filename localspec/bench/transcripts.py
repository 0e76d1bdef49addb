"""Recorded replies: made by the model itself on first use, and kept by what they depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.bench.driver import Reply
from localspec.errors import StorageError
from localspec.paths import cache_dir, ensure

FORMAT = 1


class Transcripts:
    """Replies on disk, one small file each.

    The name of a file is a hash of the model file's hash, the prompt and the sampling, so that another
    quantization or another prompt can never be given a reply that its model would not say.

    Args:
        folder: where they are kept; None takes the user's cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_dir() / "transcripts"

    def path(self, model_sha256: str, reply: Reply) -> Path:
        """The file of one reply."""
        asked = [list(reply.prompt), reply.temperature, reply.seed, reply.tokens, reply.stops]
        key = json.dumps([FORMAT, model_sha256, asked])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def reply(self, path: Path, record: Callable[[], Sequence[int]]) -> tuple[tuple[int, ...], str | None]:
        """The reply kept at `path`, else what `record` makes, which is then kept.

        Returns:
            Token ids, and a sentence where they could not be kept (a full disk): they are good for this run.
        """
        known = self.known(path)
        if known is not None:
            return known, None
        token_ids = tuple(record())
        try:
            self._keep(path, token_ids)
        except (OSError, StorageError) as error:
            return token_ids, f"The transcript could not be kept ({error}); another run records it anew."
        return token_ids, None

    @staticmethod
    def known(path: Path) -> tuple[int, ...] | None:
        """The reply kept at `path`; None where it is missing or damaged: the model says it again."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return tuple(map(int, kept["token_ids"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def _keep(path: Path, token_ids: Sequence[int]) -> None:
        ensure(path.parent)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.write_text(json.dumps({"format": FORMAT, "token_ids": list(token_ids)}), encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
