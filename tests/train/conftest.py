"""Fixtures: small targets, and the command."""

from __future__ import annotations

import pytest

from tests.cli.conftest import localspec  # noqa: F401 - a fixture
from tests.heads.conftest import made  # noqa: F401 - a fixture

pytest.importorskip("torch")
