"""Shared fixtures: a private home for every test, and the real model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A limit on wall time fails where the machine is busy, and says nothing of the code.
settings.register_profile("localspec", deadline=None)
settings.load_profile("localspec")


def pytest_configure() -> None:
    """A shell that starts the tests in the background has Ctrl+C ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every folder of localspec at a fresh one, so that no test sees the user's things."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's file, fetched through the product's own command unless one is given."""
    given = os.environ.get("LOCALSPEC_TEST_MODEL")
    return Path(given) if given else fetched("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """A model with a sliding window of 512 tokens, fetched like the default one unless one is given."""
    given = os.environ.get("LOCALSPEC_TEST_GEMMA")
    return Path(given) if given else fetched("gemma3-270m")


def fetched(name: str) -> Path:
    """The file of a known model, from the user's own store."""
    environment = {key: value for key, value in os.environ.items() if key != "LOCALSPEC_HOME"}
    fetch = [sys.executable, "-m", "localspec", "models", "pull", name]
    subprocess.run(fetch, env=environment, check=True, stdout=subprocess.DEVNULL)
    locate = [sys.executable, "-m", "localspec", "models", "path", name]
    found = subprocess.run(locate, env=environment, check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())
