"""Measured curves on disk: one small file for a model file, a build and settings."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_VERSION = 1
_LARGEST_FILE = 200_000
_WIDEST, _SLOWEST_S = 4096, 600.0
_STEEPEST, _FLATTEST = 8.0, 0.2
"""T(n) beyond so many times n*T(1), or below this share of T(1), was not measured in peace."""

Key = Mapping[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """T(n) in seconds by n, where the cache held about the same number of tokens.

    Attributes:
        points: n = 1 among them.
        threads: of the passes; 0 where they were those of replies.
        complete: whether it was calibrated; otherwise it is what replies have shown.
    """

    points: dict[int, float]
    threads: int
    complete: bool


class CurveStore:
    """The file of one combination of model file, machine and settings.

    A file that cannot be used is passed over, with a line in the log, and written anew; a folder that cannot
    be written costs a calibration at every start and nothing else.

    Args:
        folder: of all such files; made when first needed.
        key: everything that times depend on.

    Attributes:
        drafting: seconds of a pass of drafters that make their own, by source; read and written with it.
    """

    def __init__(self, folder: Path, key: Key) -> None:
        self._key = dict(key)
        self.drafting: dict[str, float] = {}
        canonical = json.dumps(self._key, sort_keys=True, ensure_ascii=True)
        self.path = folder / f"{hashlib.sha256(canonical.encode()).hexdigest()[:32]}.json"

    def load(self) -> dict[int, Measured]:
        """What was measured, by bucket of context length; empty where there is nothing that can be used."""
        if self.path.exists() and not self.path.is_file():
            # A pipe would be waited for without end.
            logger.warning("the calibration %s is not used: not a regular file", self.path)
            return {}
        try:
            with self.path.open("rb") as file:
                # Cut off, a larger one is no JSON.
                return self._checked(json.loads(file.read(_LARGEST_FILE)))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            logger.warning("the calibration %s is not used: %r", self.path, error)
            return {}

    def save(self, buckets: Mapping[int, Measured]) -> None:
        """Replace the file in one step."""
        data = {
            "version": _VERSION,
            "key": self._key,
            "buckets": {str(bucket): asdict(one) for bucket, one in sorted(buckets.items())},
            "drafting": dict(sorted(self.drafting.items())),
        }
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(data), encoding="utf-8")
            temporary.replace(self.path)
        except OSError as error:
            logger.warning("the calibration %s cannot be written: %r", self.path, error)

    def _checked(self, data: Any) -> dict[int, Measured]:
        if data["version"] != _VERSION or data["key"] != self._key:
            raise ValueError("of another version, or of something else")
        buckets = {int(bucket): _measured(one) for bucket, one in data["buckets"].items()}
        # Files of before have none.
        drafting = data.get("drafting")
        for source, each in drafting.items() if isinstance(drafting, dict) else ():
            if isinstance(each, float) and 0 < each <= _SLOWEST_S:
                self.drafting[source] = each
        return buckets


def _measured(data: Any) -> Measured:
    points = {int(size): seconds for size, seconds in data["points"].items()}
    threads, complete = data["threads"], data["complete"]
    if not plausible(points) or type(threads) is not int or type(complete) is not bool:
        raise ValueError("with times that cannot be")
    return Measured(points, threads, complete)


def plausible(points: Mapping[int, Any]) -> bool:
    """Whether these can be seconds of passes by their width."""
    one = points.get(1)
    if not isinstance(one, float) or not one > 0:
        return False
    return all(
        isinstance(seconds, float)
        and math.isfinite(seconds)
        and 1 <= size <= _WIDEST
        and 0 < seconds <= _SLOWEST_S
        and _FLATTEST <= seconds / one <= _STEEPEST * size
        for size, seconds in points.items()
    )
