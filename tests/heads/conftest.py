"""Fixtures for tests with models that they write themselves."""

from __future__ import annotations

import pytest

from tests.heads.making import Made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes model files: `made(alphabet.eagle3)`."""
    return Made(tmp_path_factory.mktemp("models"))
