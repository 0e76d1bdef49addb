"""Rounds on disk as they come, so that an interrupt loses at most the one at work.

A file of JSON lines beside the results, which tell of a block only what its rounds add up to. The first line
says to which bench it belongs; a last line that was cut off in the middle is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from localspec.bench.grid import BlockKey
from localspec.bench.records import Results
from localspec.bench.report.disk import write_error
from localspec.bench.rounds import BlockRuns, Round
from localspec.bench.runs import Run
from localspec.types import StepStats

FORMAT = 2

_STEP = tuple(field.name for field in fields(StepStats))


class Ledger:
    """The file of one bench; made by `begin`.

    Args:
        path: where it lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def begin(self, results: Results) -> dict[tuple[str, BlockKey], BlockRuns]:
        """Open the file to add to it, and read what it holds of the bench that `results` are of.

        A file of another bench is begun anew.

        Returns:
            Blocks by the hash of their model file and their key.

        Raises:
            StorageError: it cannot be written.
        """
        found: dict[tuple[str, BlockKey], BlockRuns] = {}
        head = _line(_head(results))
        try:
            self.path.touch()
            self._file = file = self.path.open("r+b")
            good = 0
            if file.readline() == head:
                good = len(head)
                for line in file:
                    made = _read(line)
                    if made is None:
                        break
                    good += len(line)
                    block = found.setdefault((made.sha256, made.block), BlockRuns())
                    if made.number == block.done:
                        block.add(made)
            file.seek(good)
            file.truncate()
            if not good:
                file.write(head)
                file.flush()
        except OSError as error:
            raise write_error(self.path, error) from error
        return found

    def add(self, made: Round) -> None:
        """Keep one more round; raises `StorageError` where that cannot be done."""
        assert self._file is not None  # noqa: S101 - begun before anything is measured
        try:
            self._file.write(_line(_written(made)))
            self._file.flush()
        except OSError as error:
            raise write_error(self.path, error) from error

    def close(self) -> None:
        """Close the file; what is in it stays."""
        if self._file is not None:
            # What a full disk refused stays in the buffer, and closing would fail on it once more.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def remove(self) -> None:
        """The bench is complete: its results say it all."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _head(results: Results) -> dict[str, Any]:
    """The first line: what the steps hold, and which bench it is."""
    bench = f"{results.started}\n{results.settings.model_dump_json()}"
    return {"ledger": FORMAT, "steps": _STEP, "bench": hashlib.sha256(bench.encode()).hexdigest()}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _written(made: Round) -> dict[str, Any]:
    return {
        "block": made.block,
        "sha256": made.sha256,
        "number": made.number,
        "prompt_s": made.prompt_s,
        "runs": {
            name: {
                "token_ids": run.token_ids,
                "seconds": run.seconds,
                "steps": [[getattr(step, field) for field in _STEP] for step in run.steps],
                "begin_s": run.begin_s,
                "overhead_s": run.overhead_s,
                "energy_j": run.energy_j,
                "reads": run.reads,
            }
            for name, run in made.runs.items()
        },
        "failed": dict(made.failed),
    }


def _read(line: bytes) -> Round | None:
    """The round in a line; None where it was cut off or is damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        value = json.loads(line)
        file, task, prompt, mode, temperature, parallel = value["block"]
        runs = {
            name: Run(
                token_ids=tuple(run["token_ids"]),
                seconds=run["seconds"],
                steps=tuple(StepStats(**dict(zip(_STEP, step, strict=True))) for step in run["steps"]),
                begin_s=run["begin_s"],
                overhead_s=run["overhead_s"],
                energy_j=run["energy_j"],
                reads=run["reads"],
            )
            for name, run in value["runs"].items()
        }
        return Round(
            block=(file, task, prompt, mode, temperature, parallel),
            sha256=value["sha256"],
            number=value["number"],
            prompt_s=value["prompt_s"],
            runs=runs,
            failed=value["failed"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
