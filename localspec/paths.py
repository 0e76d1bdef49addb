"""Where localspec keeps its things; `LOCALSPEC_HOME` moves all of them under one folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from localspec.errors import StorageError

APP = "localspec"


def _home() -> Path | None:
    value = os.environ.get("LOCALSPEC_HOME")
    try:
        return Path(value).expanduser() if value else None
    except RuntimeError as error:
        raise StorageError(
            f"LOCALSPEC_HOME is {value}, and there is no such user; set it to a folder that can be written."
        ) from error


def config_dir() -> Path:
    """Folder of `config.toml` and of the user's own `models.toml`."""
    home = _home()
    if home:
        return home / "config"
    import platformdirs

    return platformdirs.user_config_path(APP, appauthor=False)


def data_dir() -> Path:
    """Folder of conversations, and of the memory of replies."""
    home = _home()
    if home:
        return home / "data"
    import platformdirs

    return platformdirs.user_data_path(APP, appauthor=False)


def memory_dir() -> Path:
    """Folder of what earlier replies are drafted from."""
    return data_dir() / "memory"


def cache_dir() -> Path:
    """Folder of what can be fetched or measured again: models, calibration."""
    home = _home()
    if home:
        return home / "cache"
    import platformdirs

    return platformdirs.user_cache_path(APP, appauthor=False)


def log_dir() -> Path:
    """Folder of logs."""
    home = _home()
    if home:
        return home / "logs"
    import platformdirs

    return platformdirs.user_log_path(APP, appauthor=False)


def engine_log() -> Path:
    """File of the engine's log; its folder is made where that can be: a chat can do without."""
    with contextlib.suppress(OSError):
        log_dir().mkdir(parents=True, exist_ok=True)
    return log_dir() / "engine.log"


def ensure(folder: Path) -> Path:
    """Make a folder and check that it can be written; raises `StorageError` with what to do."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot create the folder {folder} ({error.strerror}); make it writable or set LOCALSPEC_HOME "
            "to a folder that is."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(
            f"Cannot write to the folder {folder}; make it writable or set LOCALSPEC_HOME to one that is."
        )
    return folder
