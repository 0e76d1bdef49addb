"""Rows: what is pooled, how limits are found, and that no figure is ever NaN."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.bench.oracle import (
    expected_tokens,
    oracle_speedup,
)
from localspec.bench.peer_rows import peer_rows
from localspec.bench.records import Divergence, Measurement, Results, Timing
from localspec.bench.rows import Row, rows
from localspec.bench.winners import LEVEL, Winner, winners
from tests.bench import report_builders as make

# --- rows


def only(*measurements: Measurement, **changed: Any) -> Row:
    (row,) = rows(make.results(*measurements, **changed))
    return row


def test_prompts_are_pooled_by_tokens_and_seconds() -> None:
    row = only(
        make.measurement(prompt="a", baseline=make.timing(100, 1.0), timing=make.timing(100, 0.25)),
        make.measurement(prompt="b", baseline=make.timing(300, 6.0), timing=make.timing(300, 3.75)),
    )
    assert row.prompts == 2
    assert row.tokens == 400
    assert row.tokens_per_second == pytest.approx(100)
    assert row.baseline_tokens_per_second == pytest.approx(400 / 7)
    # The mean of the two ratios would be 2.8.
    assert row.speedup == pytest.approx(1.75)


def test_the_spread_is_the_pooled_ratio_of_each_round() -> None:
    row = only(
        make.measurement(
            prompt="a", baseline=make.timing(100, 1.0, 1.0, 1.2), timing=make.timing(100, 0.5, 0.5, 0.5)
        ),
        make.measurement(
            prompt="b", baseline=make.timing(100, 1.0, 1.0, 1.0), timing=make.timing(100, 0.5, 0.5, 0.7)
        ),
    )
    assert row.speedup_low == pytest.approx(2.2 / 1.2)
    assert row.speedup_high == pytest.approx(2.0)


def test_the_speedup_is_that_of_the_middle_rounds() -> None:
    row = only(
        make.measurement(
            # One round was disturbed on one side, one on the other; a slow machine slows both.
            baseline=make.timing(100, 1.0, 1.0, 4.0, 2.0, 1.0),
            timing=make.timing(100, 0.5, 0.5, 0.5, 1.0, 2.0),
        )
    )
    assert row.speedup == pytest.approx(2.0)
    assert (row.speedup_low, row.speedup_high) == (0.5, 8.0)


def test_a_single_round_has_no_spread() -> None:
    row = only(make.measurement(baseline=make.timing(100, 1.0), timing=make.timing(100, 0.5)))
    assert row.speedup == pytest.approx(2.0)
    assert (row.speedup_low, row.speedup_high) == (None, None)


def test_counters_are_summed() -> None:
    row = only(
        make.measurement(prompt="a", counts=make.counts(2, 10, (8, 6)), lengths=(2,) * 10),
        make.measurement(prompt="b", counts=make.counts(4, 10, (5, 0, 0, 0), drafts=5), lengths=(4, 0) * 5),
    )
    assert (row.steps, row.drafted, row.accepted) == (20, 40, 19)
    assert row.acceptance_rate == pytest.approx(19 / 40)
    assert row.acceptance_length == pytest.approx(39 / 20)
    # Refused: 4 in the first; in the second each of the five drafts, after one token.
    assert row.conditional_acceptance == pytest.approx(19 / ((14 + 4) + (5 + 5)))
    assert row.accepted_at == pytest.approx((13 / 15, 6 / 15, 0, 0))
    three, five = make.BF16[3] / make.BF16[1], make.BF16[5] / make.BF16[1]
    assert row.pass_cost == pytest.approx((10 * three + 5 * five + 5) / 20)
    assert row.outside_pass == pytest.approx(0.04 / 0.94)


def test_limits_of_a_row() -> None:
    row = only(make.measurement())
    assert row.conditional_acceptance is not None
    expected = expected_tokens(row.conditional_acceptance, 4) / (make.BF16[5] / make.BF16[1])
    assert row.predicted_speedup == pytest.approx(expected)
    assert row.oracle_speedup == pytest.approx(oracle_speedup(256, make.BF16))
    assert row.speedup is not None
    assert row.of_oracle == pytest.approx(row.speedup / (row.oracle_speedup or 0))
    assert row.floor_tokens_per_second == pytest.approx(1000 / 6.2)
    assert row.of_floor == pytest.approx(128 / (1000 / 6.2))
    assert row.overhead == pytest.approx(0.002 / 0.98)


def test_limits_of_one_sequence_are_not_those_of_several() -> None:
    row = only(make.measurement(parallel=4))
    assert row.speedup == pytest.approx(2.0, rel=1e-3)
    assert row.oracle_speedup is row.predicted_speedup is row.of_floor is row.pass_cost is None


def test_a_file_without_costs_has_no_limits() -> None:
    row = only(make.measurement(), files=())
    assert row.speedup == pytest.approx(2.0, rel=1e-3)
    assert row.oracle_speedup is row.predicted_speedup is row.of_floor is None


def test_draft_models_and_heads_are_told_what_a_gpu_would_give() -> None:
    row = only(make.measurement(draft="eagle3:smollm2"))
    # 256 tokens in 64 steps of four draft tokens; 0.01 s of drafting in 64 steps beside 2 s for 256 tokens.
    assert row.gpu_speedup == pytest.approx(4.0 / (1.2 + 0.01 / 64 * 128))
    assert only(make.measurement(draft="suffix+mtp", length=None)).gpu_speedup is not None
    assert only(make.measurement(draft="suffix")).gpu_speedup is None
    assert only(make.measurement(draft="mtp", parallel=4)).gpu_speedup is None
    assert only(make.measurement(draft="mtp", counts=None)).gpu_speedup is None


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("ngram", "ngram"),
        ("suffix:arctic", "suffix:arctic"),
        ("eagle3:/srv/models/head.gguf", "eagle3:head.gguf"),
        ("suffix+/srv/models/a+b.gguf", "suffix+a+b.gguf"),
        ("qwen3:0.6b", "qwen3:0.6b"),
    ],
)
def test_where_a_drafters_file_lies_is_not_shown(spec: str, shown: str) -> None:
    assert only(make.measurement(draft=spec)).label == f"{shown} 4"


def test_theory_needs_a_fixed_length() -> None:
    assert only(make.measurement(length=None)).predicted_speedup is None


def test_identity_counts_replies_and_names_the_earliest_difference() -> None:
    def free(prompt: str, index: int | None) -> Measurement:
        divergence = None if index is None else Divergence(index=index, plain=1, other=2, margin=0.1)
        return make.measurement(prompt=prompt, mode="free", identical=index is None, divergence=divergence)

    row = only(free("a", None), free("b", 40), free("c", 7))
    assert (row.identical, row.identical_count, row.compared) == (False, 1, 3)
    assert row.first_divergence is not None
    assert row.first_divergence.index == 7
    same = only(free("a", None), free("b", None))
    assert (same.identical, same.identical_count, same.first_divergence) == (True, 2, None)
    forced = only(make.measurement())
    assert forced.identical is forced.identical_count is None


def test_energy_is_per_token_of_the_prompts_that_were_metered() -> None:
    row = only(
        make.measurement(prompt="a", energy_j=(512.0, 256.0)),
        make.measurement(prompt="b"),
    )
    assert row.joules_per_token == 1.0
    assert row.baseline_joules_per_token == 2.0


def test_what_could_not_be_measured_keeps_its_note() -> None:
    nothing = {"timing": None, "baseline": None, "counts": None, "lengths": ()}
    row = only(
        make.measurement(prompt="long", note="No room for a transcript.", **nothing),
        make.measurement(prompt="ok"),
    )
    assert row.prompts == 1
    assert row.speedup == pytest.approx(2.0, rel=1e-3)
    assert row.note == "long: No room for a transcript."
    empty = only(
        make.measurement(prompt="a", note="No room.", **nothing),
        make.measurement(prompt="b", note="No room.", **nothing),
    )
    assert (empty.prompts, empty.speedup, empty.note) == (0, None, "No room.")
    assert only(make.measurement(**nothing)).note == "not measured"


def test_rates_of_a_row_are_of_the_same_prompts() -> None:
    row = only(
        make.measurement(prompt="a"),
        make.measurement(prompt="b", baseline=None, timing=make.timing(1000, 1.0)),
    )
    assert row.prompts == 1
    assert row.tokens_per_second == 256
    assert "1 are left" in (row.note or "")


def test_notes_of_other_programs_are_one_clean_line() -> None:
    assert only(make.measurement(note="died:\n\x1b[31mred\tend ")).note == "died: [31mred end"


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_no_row_has_a_figure_that_is_no_number(seconds: float) -> None:
    broken = Timing.model_construct(tokens=256, seconds=seconds, runs=(seconds,), first_token_s=seconds)
    measured = make.measurement().model_copy(update={"timing": broken, "overhead_s": math.nan})
    row = only(measured)
    assert row.tokens_per_second is None or row.tokens_per_second == 0.0
    assert row.speedup is None or row.speedup == 0.0
    assert row.note is not None
    assert "no finite number" in row.note
    json.dumps(row.model_dump(), allow_nan=False)


def test_order_of_rows_is_the_grids_not_that_of_measuring() -> None:
    complete = make.full()
    shuffled = list(complete.measurements)
    random.Random(1).shuffle(shuffled)
    resumed = complete.model_copy(update={"measurements": tuple(shuffled)})
    assert rows(resumed) == rows(complete)
    places = [(row.file, row.mode, row.task) for row in rows(complete)]
    assert places[0] == ("small.BF16", "transcript", "copy")
    assert [row.label for row in rows(complete)[:4]] == ["ngram 2", "ngram 4", "ngram 8", "suffix"]


def test_of_two_measurements_of_a_prompt_the_later_counts() -> None:
    row = only(make.measurement(), make.measurement(timing=make.timing(256, 0.5)))
    assert (row.prompts, row.speedup) == (1, 4.0)


def test_labels_say_what_is_unusual() -> None:
    labelled = only(
        make.measurement(mode="synthetic", draft="suffix", length=2, rates=(0.8, 0.64), memory="warm")
    )
    assert labelled.label == "suffix 2 rate 0.8 warm"
    assert only(make.measurement(verify="typical", rates=(0.9, 0.2))).label == "ngram 4 rates 0.9/0.2 typical"
    assert only(make.measurement(verify="typical")).lossy
    assert only(make.measurement(draft="none", length=None)).label == "none"


def test_a_row_begins_with_the_fields_of_the_contract() -> None:
    assert list(Row.model_fields)[:10] == [
        "task", "draft", "tokens_per_second", "baseline_tokens_per_second", "speedup", "acceptance_rate",
        "acceptance_length", "oracle_speedup", "identical", "first_divergence",
    ]  # fmt: skip


# --- peers and winners


def test_peers_are_compared_with_their_own_plain_and_with_ours() -> None:
    (row,) = peer_rows(
        make.results(
            peers=(
                make.peer(prompt="a", ours=make.timing(100, 1.0), baseline=make.timing(100, 2.0),
                          timing=make.timing(100, 0.5), drafted=10, accepted=5),
                make.peer(prompt="b", ours=None, baseline=make.timing(100, 2.0), timing=make.timing(100, 0.5),
                          drafted=30, accepted=25, identical=False),
            )
        )
    )  # fmt: skip
    assert row.speedup == 4.0
    assert row.relative == 2.0
    assert row.tokens_per_second == 200.0
    assert row.acceptance_rate == 0.75
    assert (row.identical, row.identical_count, row.compared) == (False, 1, 2)


def test_a_peer_that_died_says_so() -> None:
    (row,) = peer_rows(make.results(peers=(make.peer(timing=None, baseline=None, note="The server ended."),)))
    assert (row.prompts, row.relative, row.note) == (0, None, "The server ended.")


def meeting(ours: float, theirs: float, *, spread: float = 0.0, **changed: Any) -> Winner:
    """Our ngram 4 at `ours` times plain against a peer at `theirs` times, both with a spread."""

    def timed(speed: float) -> Timing:
        runs = [2.0 / speed * (1 + part) for part in (0, spread, -spread)]
        return make.timing(256, 2.0 / speed, *runs)

    plain = make.timing(256, 2.0, 2.0, 2.0, 2.0)
    (winner,) = winners(
        make.results(
            make.measurement(mode="free", baseline=plain, timing=timed(ours), identical=True),
            peers=(
                make.peer(ours=plain, timing=timed(theirs), **changed),
                make.peer(config="plain", ours=plain, timing=timed(0.97)),
            ),
        )
    )
    return winner


WARM = ", the same prompts answered before"


def test_winners_are_named_with_the_ratio() -> None:
    winner = meeting(2.62, 2.0)
    assert (winner.winner, winner.ratio) == ("localspec", pytest.approx(1.31))
    assert winner.statement == f"copy: localspec ngram 4, 1.31x llama-server's best (ngram-mod){WARM}"
    lost = meeting(2.0, 2.5)
    assert lost.winner == "llama-server"
    assert lost.statement == "copy: llama-server ngram-mod, 1.25x localspec's best (ngram 4)" + WARM


def test_a_winner_at_a_temperature_says_that_the_texts_are_not_the_same() -> None:
    (winner,) = winners(
        make.results(
            make.measurement(mode="free", temperature=1.0, identical=True),
            peers=(make.peer(temperature=1.0),),
        )
    )
    assert ", each on its own text (T = 1)" in winner.statement


def test_within_the_spread_nobody_wins() -> None:
    winner = meeting(2.1, 2.0, spread=0.05)
    assert winner.winner == LEVEL
    assert (
        winner.statement == f"copy: level, localspec ngram 4 at 1.05x llama-server's best (ngram-mod){WARM}"
    )
    # A spread this wide says nothing: it must not read as if they were alike.
    wide = meeting(1.2, 2.0, spread=0.5)
    assert wide.winner == LEVEL
    assert wide.statement.startswith("copy: not settled, spreads overlap, localspec ngram 4 at 0.60x ")


def test_plain_decoding_is_ours_too() -> None:
    winner = meeting(0.7, 0.8)
    assert (winner.ours, winner.ours_relative) == ("none", 1.0)
    assert winner.peer_config == "plain"
    assert winner.winner == "localspec"


def test_lossy_transcript_and_parallel_rows_do_not_compete() -> None:
    fast = make.timing(256, 0.1)
    (winner,) = winners(
        make.results(
            make.measurement(mode="free", identical=True),
            make.measurement(mode="free", verify="typical", timing=fast),
            make.measurement(timing=fast),
            make.measurement(mode="free", parallel=2, timing=fast),
            peers=(make.peer(),),
        )
    )
    assert winner.ours_relative == pytest.approx(2.0, rel=1e-3)


def test_memory_meets_memory() -> None:
    found = winners(
        make.results(
            make.measurement(mode="free", draft="suffix", timing=make.timing(256, 1.0)),
            make.measurement(mode="free", draft="suffix", memory="warm", timing=make.timing(256, 0.25)),
            make.measurement(mode="free", timing=make.timing(256, 0.8)),
            peers=(make.peer(memory="cold"), make.peer(memory="warm", timing=make.timing(256, 0.3))),
        )
    )
    assert [(w.memory, w.ours) for w in found] == [("cold", "ngram 4"), ("warm", "suffix 4 warm")]
    assert found[0].statement.endswith(", asked for the first time, a single run")


def test_a_configuration_cut_short_does_not_win() -> None:
    (winner,) = winners(
        make.results(
            make.measurement(mode="free"),
            make.measurement(mode="free", prompt="two"),
            peers=(
                make.peer(config="lucky", timing=make.timing(256, 0.1)),
                make.peer(),
                make.peer(prompt="two"),
            ),
        )
    )
    assert winner.peer_config == "ngram-mod"


def test_ours_competes_on_the_prompts_that_the_peer_answered() -> None:
    (winner,) = winners(
        make.results(
            make.measurement(mode="free"),
            make.measurement(mode="free", prompt="easy", timing=make.timing(256, 0.1)),
            peers=(make.peer(), make.peer(prompt="easy", timing=None, baseline=None)),
        )
    )
    assert winner.ours_relative == pytest.approx(2.0, rel=1e-3)


def test_without_peers_there_is_no_winner() -> None:
    assert winners(make.results(make.measurement(mode="free"))) == ()


# --- anything that the records allow

finite = st.floats(0, 1e200)
few = st.integers(0, 10**6)
timings = st.builds(
    Timing, tokens=few, seconds=finite, runs=st.lists(finite, max_size=3).map(tuple), first_token_s=finite
)
measurements = st.builds(
    make.measurement,
    st.sampled_from(["copy", "other"]),
    st.sampled_from(["one", "two"]),
    baseline=st.none() | timings,
    timing=st.none() | timings,
    mode=st.sampled_from(["transcript", "free", "synthetic"]),
    length=st.none() | st.integers(0, 40),
    parallel=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 50), max_size=4).map(tuple),
    overhead_s=st.none() | finite,
    energy_j=st.none() | st.tuples(finite, finite),
    prompt_s=st.none() | finite,
    note=st.none() | st.text(max_size=20),
)
peers = st.builds(
    make.peer, baseline=st.none() | timings, timing=st.none() | timings, ours=st.none() | timings,
    drafted=st.none() | few, accepted=st.none() | few, note=st.none() | st.text(max_size=20),
)  # fmt: skip
files = st.builds(
    make.model_file,
    pass_ms=st.dictionaries(st.integers(1, 40), finite, max_size=5),
    floor_ms=st.none() | finite,
)
anything = st.builds(
    lambda found, others, file: make.results(*found, peers=tuple(others), files=(file,)),
    st.lists(measurements, max_size=5), st.lists(peers, max_size=3), files,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(anything)
def test_whatever_was_measured_rows_are_sound(results: Results) -> None:
    for row in (*rows(results), *peer_rows(results), *winners(results)):
        json.dumps(row.model_dump(), allow_nan=False)
