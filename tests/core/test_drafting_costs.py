"""What drafting takes is kept on disk beside T(n)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.calibration.costs import PassCosts
from localspec.calibration.store import CurveStore, Measured
from localspec.cost import CostCurve

KEY = {"file": "abc", "threads": None}
GOOD = {
    "version": 1,
    "key": KEY,
    "buckets": {"0": {"points": {"1": 0.01, "9": 0.02}, "threads": 2, "complete": True}},
}


@pytest.fixture
def store(tmp_path: Path) -> CurveStore:
    store = CurveStore(tmp_path / "calibration", KEY)
    store.path.parent.mkdir()
    return store


def test_what_drafting_takes_is_kept_beside(store: CurveStore) -> None:
    store.path.write_text(json.dumps(GOOD | {"drafting": {"eagle3": 0.002}}))
    costs = PassCosts(CostCurve({1: 1.0, 9: 3.0}), store)
    assert costs.live.drafting == {"eagle3": 0.002}
    costs.live.drafting["mtp"] = 0.003
    costs.save()
    again = CurveStore(store.path.parent, KEY)
    assert again.load() == {0: Measured({1: 0.01, 9: 0.02}, 2, complete=True)}
    assert again.drafting == {"eagle3": 0.002, "mtp": 0.003}


@pytest.mark.parametrize("wrong", [0, "1", 1e9, -0.5, None, 0.0])
def test_drafting_that_takes_what_cannot_be_is_passed_over(store: CurveStore, wrong: object) -> None:
    store.path.write_text(json.dumps(GOOD | {"drafting": {"eagle3": wrong, "mtp": 0.003}}))
    # The curve is none the worse for it.
    assert store.load() == {0: Measured({1: 0.01, 9: 0.02}, 2, complete=True)}
    assert store.drafting == {"mtp": 0.003}


@pytest.mark.parametrize("drafting", [[1], 3, None, "eagle3"])
def test_what_is_no_table_of_it_is_passed_over(store: CurveStore, drafting: object) -> None:
    store.path.write_text(json.dumps(GOOD | {"drafting": drafting}))
    assert set(store.load()) == {0}
    assert store.drafting == {}
