"""A model's copy in another quantization, made in a process of its own.

llama.cpp converts a file in one call that nothing interrupts, and a file that it does not like may end the
process. Here Ctrl+C ends the other process at once, and what it leaves is a sentence, never half a file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.errors import BY_NAME, EngineError, LocalspecError
from localspec.models.gguf import GGUFHeader

_BITS = {
    "F32": 32.0,
    "F16": 16.0,
    "BF16": 16.0,
    "Q8_0": 8.5,
    "Q6_K": 6.6,
    "Q5_K_M": 5.7,
    "Q4_1": 5.0,
    "Q4_K_M": 4.9,
    "Q4_K_S": 4.6,
    "Q4_0": 4.6,
    "Q3_K_M": 4.0,
    "Q2_K": 3.2,
}
"""Bits of a parameter in a file of that type, mixed as llama.cpp mixes them."""
_MOST_OFF = 1.1
_NARROW_BLOCK = 256
"""Elements of a block of the K types; rows that it does not divide get a wider type."""
_NARROW_BITS = 1.6

_TENSOR = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]")


def copy_as(
    source: Path,
    target: Path,
    file_type: str,
    *,
    threads: int,
    on_progress: Callable[[float], None] = lambda share: None,  # noqa: ARG005 - nobody listens
) -> None:
    """Write `source` to `target` as `file_type`, see `localspec.runtime.quantize`.

    Args:
        source: a GGUF file.
        target: the file to make; it appears when it is whole.
        file_type: a key of `FILE_TYPES`.
        threads: CPU threads.
        on_progress: called with the share of the tensors that are done.

    Raises:
        ModelFileError: llama.cpp cannot convert the file.
        StorageError: the disk is full.
        EngineError: the converting process was ended.
    """
    arguments = [str(source), str(target), file_type, str(threads)]
    command = [sys.executable, "-P", "-m", "localspec.runtime.copying", *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl+C in the terminal is for us alone.
        start_new_session=os.name == "posix",
    )
    said: dict[str, Any] = {}
    try:
        with process:
            assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
            for line in process.stdout:
                said = json.loads(line)
                if "share" in said:
                    on_progress(said["share"])
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()
        if "done" not in said:
            partial_of(target).unlink(missing_ok=True)
    if "error" in said:
        raise BY_NAME.get(said["error"], LocalspecError)(said["message"])
    if "done" not in said:
        raise EngineError(
            f"Converting {source.name} {_how_it_ended(process.returncode)}; the file may be damaged, or "
            "memory was short."
        )


def bytes_needed(header: GGUFHeader, file_type: str) -> int:
    """Room for a copy of a model, a little more than it will take."""
    bits = _BITS[file_type]
    if "_K" in file_type and header.embedding_length % _NARROW_BLOCK:
        bits += _NARROW_BITS
    head = max(header.file_bytes - header.tensor_bytes, 0)
    return head + int(header.parameters * bits / 8 * _MOST_OFF)


def partial_of(target: Path) -> Path:
    """Where `target` lies while it is being made."""
    return target.with_name(f"{target.name}.partial")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def main() -> None:
    """The other process: SOURCE TARGET TYPE THREADS; tells its progress and its end as lines of JSON."""
    source, target, file_type, threads = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What native code prints is not ours.
    os.dup2(2, 1)

    def tell(**what: object) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    class Listener(logging.Handler):
        """Finds the number of the tensor in llama.cpp's log."""

        def emit(self, record: logging.LogRecord) -> None:
            match = _TENSOR.match(record.getMessage())
            if match:
                tell(share=int(match[1]) / max(int(match[2]), 1))

    def watch() -> None:
        # Whoever started this is gone when its end of the pipe closes.
        sys.stdin.buffer.read()
        partial_of(Path(target)).unlink(missing_ok=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    log = logging.getLogger("llama.cpp")
    log.setLevel(logging.DEBUG)
    log.addHandler(Listener())
    from localspec.runtime.quantize import requantize

    try:
        requantize(Path(source), Path(target), file_type, threads=int(threads))
    except LocalspecError as error:
        tell(error=type(error).__name__, message=str(error))
    else:
        tell(done=True)
    out.flush()
    # The watching thread still waits for its pipe.
    os._exit(0)


if __name__ == "__main__":
    main()
