"""Cost curves: presets, points, and a bench's results."""

from __future__ import annotations

import pytest

from localspec.bench.records import ModelFile, Results
from localspec.bench.report import store
from localspec.errors import NotFoundError, UsageError
from localspec.simulate.costs import PRESETS, pass_cost
from tests.bench.report_builders import results


def file(name: str, kind: str, **passes: float) -> ModelFile:
    return ModelFile(
        name=name,
        file_type=kind,
        bytes=1,
        sha256="",
        parameters=1,
        weight_bytes=1,
        kv_bytes_per_token=1,
        context=1,
        kv_type="f16",
        load_s=1.0,
        pass_ms={int(size[1:]): ms for size, ms in passes.items()},
    )


def saved(path, *files: ModelFile) -> str:
    bench: Results = results()
    store.save(bench.model_copy(update={"files": files}), path)
    return str(path)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_begin_at_one_and_know_a_tokens_time(name):
    cost = pass_cost(name)
    assert cost.ratios(1) == 1.0
    assert cost.seconds(1) == pytest.approx(cost.token_ms / 1000)
    assert cost.ratios(9) == {"gpu": 1.4, "cpu-bf16": 2.11, "cpu-q4_0": 3.95, "cpu-q4_1": 5.91}[name]


def test_points_are_relative_whatever_their_unit():
    cost = pass_cost("1:5,2:7, 9:10.5")
    assert cost.ratios.points == pytest.approx({1: 1.0, 2: 1.4, 9: 2.1})
    assert cost.token_ms is None
    assert cost.seconds(1) == 1.0
    assert pass_cost("1:5,2:7", 4.0).seconds(2) == pytest.approx(0.0056)


def test_a_benchs_results(tmp_path):
    one = saved(tmp_path / "one.json", file("tiny.Q4_1", "Q4_1", n1=5.0, n2=7.0))
    cost = pass_cost(one)
    assert (cost.ratios(2), cost.token_ms) == (pytest.approx(1.4), 5.0)
    assert cost.name == "tiny.Q4_1 in one.json"
    two = saved(tmp_path / "two.json", file("tiny.BF16", "BF16", n1=8.0), file("tiny", "Q4_1", n1=5.0))
    with pytest.raises(
        UsageError, match=r"has the curves of tiny.BF16, tiny; choose one: --cost .*#tiny.BF16"
    ):
        pass_cost(two)
    assert pass_cost(two + "#tiny").token_ms == 5.0
    assert pass_cost(two + "#BF16").token_ms == 8.0
    with pytest.raises(UsageError, match=r"no model file F16; it has tiny\.BF16, tiny"):
        pass_cost(two + "#F16")
    with pytest.raises(UsageError, match="no cost curve yet"):
        pass_cost(saved(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="no time of a pass over one token"):
        pass_cost(saved(tmp_path / "half.json", file("tiny", "Q4_1", n2=7.0)))


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("gpus", NotFoundError, "no cost curve gpus; give a bench's JSON file, one of gpu, "),
        ("missing.json", NotFoundError, "no bench at missing.json"),
        ("2:1.4", UsageError, "cost of a pass over one token"),
        ("1:1,2:x", UsageError, "'2:x' is no point"),
        ("1:1,2", UsageError, "'2' is no point"),
        ("1:1,2:-1", UsageError, "positive costs"),
        ("1:1,2:nan", UsageError, "positive costs"),
        ("", NotFoundError, "no cost curve"),
        ("1:1,2:1,2:2", UsageError, "two costs"),
        ("1:1,99999999999999:2", UsageError, "up to 4096 tokens"),
        ("1:1,2:1e308", UsageError, "0.001 to 1000000 times"),
        ("1:1,2:1e-9", UsageError, "0.001 to 1000000 times"),
        ("1:1," + "2:x" * 5000, UsageError, "is no point"),
    ],
)
def test_what_is_no_curve_is_said(spec, kind, words):
    with pytest.raises(kind, match=words):
        pass_cost(spec)


@pytest.mark.parametrize("token_ms", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_a_time_that_is_none(token_ms):
    with pytest.raises(UsageError, match="--token-ms"):
        pass_cost("gpu", token_ms)
