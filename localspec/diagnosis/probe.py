"""Native code of llama.cpp, asked in a process of its own: a crash there is an answer, not the end of doctor.

    python -m localspec.diagnosis.probe look               devices, backend, features, version
    python -m localspec.diagnosis.probe bandwidth [DEVICE] bytes a second of copying
    python -m localspec.diagnosis.probe passes FILE        T(n) in milliseconds

Each prints one JSON value on the last line of its standard output.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.diagnosis.facts import Library, look_at_library
from localspec.errors import EngineError, LocalspecError

_WIDTHS = (1, 4)
_CONTEXT, _TEXT = 512, "The ferry leaves the island at seven, long before the shops on the quay open. "
_BUDGET_S = 2.0
_LOOK_S, _BANDWIDTH_S, _PASSES_S = 60.0, 30.0, 60.0
"""Patience; a driver that hangs is killed."""


def library() -> Library:
    """llama.cpp as it is installed; whatever it does when it is loaded, this returns."""
    from localspec.runtime.devices import Device

    try:
        found = _ask("look", patience_s=_LOOK_S)
        return Library(**{**found, "devices": tuple(Device(**device) for device in found["devices"])})
    except (EngineError, TypeError, KeyError) as error:
        return Library(error=str(error))


def bandwidth(device: str | None = None) -> float | None:
    """Bytes a second of copying in the system's memory or a device's; None where it cannot be measured."""
    try:
        found = _ask("bandwidth", *([device] if device else []), patience_s=_BANDWIDTH_S)
    except EngineError:
        return None
    return float(found) if isinstance(found, (int, float)) else None


def pass_times(path: Path) -> dict[int, float]:
    """T(n) of a model in milliseconds by n, measured for seconds; raises `EngineError` where it fails."""
    found = _ask("passes", str(path), patience_s=_PASSES_S)
    return {int(width): float(milliseconds) for width, milliseconds in found.items()}


def _ask(*arguments: str, patience_s: float) -> Any:
    command = [sys.executable, "-P", "-m", "localspec.diagnosis.probe", *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"llama.cpp did not answer within {patience_s:.0f} s; restart the machine's GPU driver or "
            "reinstall llama-cpp-python."
        ) from error
    except OSError as error:
        raise EngineError(f"No process can be started ({error.strerror}); free some memory.") from error
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise EngineError(what_ended_it(done.returncode, done.stderr)) from None
    if isinstance(answer, dict) and isinstance(answer.get("problem"), str):
        raise EngineError(answer["problem"])
    return answer


def what_ended_it(code: int, stderr: str) -> str:
    """Why the process ended without an answer, in a sentence.

    Args:
        code: its exit status, negative for a signal.
        stderr: what it said.
    """
    command = f"{sys.executable} -m pip install --force-reinstall --no-cache-dir llama-cpp-python"
    reinstall = f"reinstall it: `{command}`"
    illegal = (-getattr(signal, "SIGILL", 4), 128 + 4, 0xC000001D, 0xC000001D - (1 << 32))
    if code in illegal:
        return f"llama.cpp was built for another kind of processor (illegal instruction); {reinstall}."
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    told = f", {last[:200]}" if last else ""
    return f"llama.cpp crashes when it is loaded (exit status {code}{told}); {reinstall}."


def _look() -> dict[str, Any]:
    return asdict(look_at_library())


def _bandwidth(device: str | None) -> float:
    from localspec.runtime import devices
    from localspec.runtime.bandwidth import copy_bandwidth

    if device is not None:
        devices.silence()
    return copy_bandwidth(device)


def _passes(path: Path) -> dict[int, float]:
    from localspec.calibration.passes import measure_passes
    from localspec.runtime.cores import physical_cores
    from localspec.runtime.loading import load
    from localspec.types import EngineOptions

    loaded = load(path, EngineOptions(context=_CONTEXT, threads=physical_cores()))
    try:
        tokens = loaded.model.tokenize(_TEXT, add_special=True, parse_special=False)
        return measure_passes(loaded.context, tokens, _WIDTHS, repeats=3, budget_s=_BUDGET_S)
    finally:
        loaded.close()


def main(arguments: Sequence[str]) -> None:
    """Answer one question."""
    try:
        match list(arguments):
            case ["look"]:
                answer: Any = _look()
            case ["bandwidth", *device]:
                answer = _bandwidth(device[0] if device else None)
            case ["passes", path]:
                answer = _passes(Path(path))
            case _:
                raise EngineError("The probe knows look, bandwidth and passes.")
    except LocalspecError as error:
        answer = {"problem": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
