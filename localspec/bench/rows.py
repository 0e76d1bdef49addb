"""Rows of a bench's tables, derived from its measurements.

A row pools the prompts of one task by adding up their tokens and seconds; ratios are never averaged. A figure
that was not measured, or is no finite number, is None, and the note says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from localspec.bench.grouping import Order, grouped
from localspec.bench.oracle import oracle_ms, predicted_speedup, speedup_on
from localspec.bench.pooling import (
    Figures,
    clean,
    mean_pass_cost,
    paired_speedup,
    pooled_counts,
    spread,
    total,
)
from localspec.bench.records import (
    Configuration,
    Divergence,
    Measurement,
    Memory,
    Mode,
    ModelFile,
    Record,
    Results,
    Timing,
)
from localspec.control import DEFAULT_POLICY
from localspec.cost_presets import CURVES
from localspec.drafters import members_of, models_of

LOSSY = ("typical", "adasd")
"""Verification rules that change what the model would have said."""


class Row(Record):
    """One configuration on one task of one file; the fields up to `first_divergence` are a contract.

    Attributes:
        task, file, mode, parallel: what was measured.
        draft, draft_length, policy, verify, temperature, memory, rates: see `Configuration`.
        tokens_per_second: rate after prefill, of all prompts and sequences together.
        baseline_tokens_per_second: of plain decoding in the same rounds, on the same prompts.
        speedup: one over the other, taken round by round, see `pooling.paired_speedup`.
        speedup_low, speedup_high: the slowest and the fastest round.
        acceptance_rate: accepted / drafted.
        conditional_acceptance: alpha, accepted / positions that the verifier reached.
        acceptance_length: tau, tokens emitted per target pass, empty drafts counted.
        accepted_at: by position, the share of drafts that long which were accepted up to it.
        pass_cost: mean over the steps of T(1 + drafted)/T(1).
        predicted_speedup: theory's for a fixed length: expected tokens from alpha over T(1 + length)/T(1), in
            the share of the steps that drafted.
        gpu_speedup: of drafters that are models or heads, what the same drafts would give with a consumer
            GPU's T(n), drafting taking as large a share of T(1) as here.
        oracle_speedup: of the best drafts with the text known, see `localspec.bench.oracle`.
        of_oracle: speedup / oracle_speedup.
        floor_tokens_per_second: what memory bandwidth alone allows plain decoding.
        of_floor: plain decoding's rate over that.
        identical: whether all replies that were compared equal the plain ones; None outside free runs.
        identical_count, compared: how many of how many.
        first_divergence: the earliest.
        prompts: how many the figures are pooled over; 0 where nothing could be measured.
        tokens: emitted by them.
        steps, skipped_steps, drafts, drafted, accepted: summed counters.
        outside_pass: share of the steps' time that was not the target pass.
        prompt_tokens, prompt_s: summed over prompts, seconds of the prefill.
        begin_s: summed over prompts, seconds that the drafter took to take in the prompt.
        first_token_s: mean over prompts.
        overhead: time that the bench took between the steps of a run, over the run's.
        joules_per_token, baseline_joules_per_token: where a device counts them.
        lossy: whether the verification rule changes the text.
        note: why figures are missing or to be read with care.
    """

    task: str
    draft: str
    tokens_per_second: float | None = None
    baseline_tokens_per_second: float | None = None
    speedup: float | None = None
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    oracle_speedup: float | None = None
    identical: bool | None = None
    first_divergence: Divergence | None = None
    file: str
    mode: Mode
    draft_length: int | None = None
    policy: str | None = None
    verify: str = "coupled"
    temperature: float = 0.0
    memory: Memory = "cold"
    parallel: int = 1
    rates: tuple[float, ...] = ()
    prompts: int = 0
    tokens: int = 0
    speedup_low: float | None = None
    speedup_high: float | None = None
    conditional_acceptance: float | None = None
    accepted_at: tuple[float, ...] = ()
    pass_cost: float | None = None
    predicted_speedup: float | None = None
    gpu_speedup: float | None = None
    of_oracle: float | None = None
    floor_tokens_per_second: float | None = None
    of_floor: float | None = None
    identical_count: int | None = None
    compared: int | None = None
    steps: int | None = None
    skipped_steps: int | None = None
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    outside_pass: float | None = None
    prompt_tokens: int | None = None
    prompt_s: float | None = None
    begin_s: float | None = None
    first_token_s: float | None = None
    overhead: float | None = None
    joules_per_token: float | None = None
    baseline_joules_per_token: float | None = None
    lossy: bool = False
    note: str | None = None

    @property
    def label(self) -> str:
        """The configuration in short, its temperature apart: "ngram 8", "ngram 8 rejection warm"."""
        parts = [clean(short_draft(self.draft))]
        if self.draft_length is not None:
            parts.append(str(self.draft_length))
        elif self.policy is not None:
            parts.append("auto" if self.policy == DEFAULT_POLICY else clean(self.policy))
        if self.rates:
            parts.append(rates_in_short(self.rates))
        if self.verify != "coupled":
            parts.append(clean(self.verify))
        if self.memory == "warm":
            parts.append("warm")
        return " ".join(parts)

    @property
    def slower(self) -> bool:
        """Whether the speed-up, as it is shown with two decimals, is below 1."""
        return self.speedup is not None and round(self.speedup, 2) < 1


def rows(results: Results) -> tuple[Row, ...]:
    """One row for each file, mode, task, number of sequences and configuration, in the grid's order."""
    order = Order(results)

    def key(m: Measurement) -> tuple[object, ...]:
        c = m.configuration
        return (
            *order.file(m.file), order.mode(m.mode), *order.task(m.task), c.temperature, m.parallel,
            *order.draft(c.draft), -1 if c.length is None else c.length, c.policy or "", c.rates, c.verify,
            c.memory,
        )  # fmt: skip

    files = {file.name: file for file in results.files}
    groups = grouped(results.measurements, key)
    return tuple(_row(group, files.get(group[0].file)) for group in groups)


def short_draft(spec: str) -> str:
    """A drafter by the names of its files: where they lie is nobody's business."""
    members = []
    for member in members_of(spec):
        method, colon, place = member.partition(":")
        path = place if colon and "/" not in method else member
        members.append(member.removesuffix(path) + PurePath(path).name)
    return "+".join(members)


def rates_in_short(rates: Sequence[float]) -> str:
    """Rates of synthetic acceptance: "rate 0.8" where each position falls by the same factor, else all."""
    if all(abs(rate - rates[0] ** place) < 1e-6 for place, rate in enumerate(rates, start=1)):
        return f"rate {rates[0]:.2g}"
    return "rates " + "/".join(f"{rate:.2g}" for rate in rates)


def _row(measured: list[Measurement], file: ModelFile | None) -> Row:
    first, figures = measured[0], Figures()
    configuration = first.configuration
    pairs = [(m.baseline, m.timing) for m in measured if m.baseline and m.timing]
    # Rates of the same prompts only, so that one shown rate can be held against the other.
    used = [m for m in measured if m.timing and (m.baseline or not pairs)]
    timings = [m.timing for m in used if m.timing]
    rate = figures.rate("tokens per second", timings)
    plain = figures.rate("plain tokens per second", [baseline for baseline, _ in pairs])
    speedup = paired_speedup(pairs)
    if speedup is None:
        speedup = figures.ratio("speed-up", rate, plain)
    low, high = spread(speedup, pairs)
    shared = _shared_figures(first)
    shared |= _counted(used, configuration, first.parallel, file, plain, figures)
    shared |= _limits(timings, speedup, plain, first.parallel, file, figures)
    shared |= _identity(measured)
    shared |= _costs(used, figures)
    return Row(
        **shared,
        prompts=len(used),
        tokens=sum(t.tokens for t in timings),
        tokens_per_second=rate,
        baseline_tokens_per_second=plain,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        note=figures.notes(measured, len(pairs)),
    )


def _shared_figures(measurement: Measurement) -> dict[str, object]:
    configuration: Configuration = measurement.configuration
    return {
        "task": measurement.task,
        "file": measurement.file,
        "mode": measurement.mode,
        "parallel": measurement.parallel,
        "draft": configuration.draft,
        "draft_length": configuration.length,
        "policy": configuration.policy,
        "verify": configuration.verify,
        "temperature": configuration.temperature,
        "memory": configuration.memory,
        "rates": configuration.rates,
        "lossy": configuration.verify in LOSSY,
    }


def _counted(
    used: list[Measurement],
    configuration: Configuration,
    parallel: int,
    file: ModelFile | None,
    plain: float | None,
    f: Figures,
) -> dict[str, object]:
    counts = pooled_counts([m.counts for m in used if m.counts])
    if counts is None:
        return {}
    # Nothing drafted and nothing reached are no broken figures: such a ratio just does not exist.
    alpha = f.ratio("alpha", counts.accepted, counts.reached) if counts.reached else None
    predicted = None
    if alpha is not None and configuration.length and file and parallel == 1:
        drafting = counts.drafts / counts.steps if counts.steps else 0.0
        predicted = predicted_speedup(alpha, configuration.length, file.pass_ms, drafting)
    elsewhere = None
    if models_of(configuration.draft) and plain and counts.steps and parallel == 1:
        lengths = [length for m in used if m.counts for length in m.lengths]
        drafting = counts.draft_s / counts.steps * plain
        elsewhere = speedup_on(CURVES["gpu"], counts.emitted / counts.steps, lengths, drafting)
    outside = total([counts.draft_s, counts.sample_s, counts.other_s])
    whole = total([outside, counts.verify_s])
    at = zip(counts.accepted_at, counts.drafted_at, strict=False)
    return {
        "acceptance_rate": (
            f.ratio("acceptance", counts.accepted, counts.drafted) if counts.drafted else None
        ),
        "conditional_acceptance": alpha,
        "acceptance_length": f.ratio("tau", counts.emitted, counts.steps) if counts.steps else None,
        "accepted_at": tuple(accepted / drafted for accepted, drafted in at if drafted > 0),
        "pass_cost": f.finite("cost of a pass", mean_pass_cost(used, file)) if parallel == 1 else None,
        "predicted_speedup": f.finite("predicted speed-up", predicted),
        "gpu_speedup": f.finite("speed-up on a GPU", elsewhere),
        "steps": counts.steps,
        "skipped_steps": counts.skipped_steps,
        "drafts": counts.drafts,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "outside_pass": f.ratio("share outside the pass", outside, whole) if whole else None,
    }


def _limits(
    timings: list[Timing],
    speedup: float | None,
    plain: float | None,
    parallel: int,
    file: ModelFile | None,
    f: Figures,
) -> dict[str, object]:
    # Both limits are those of one sequence: several share each reading of the weights.
    if file is None or parallel != 1:
        return {}
    oracle = None
    best = [oracle_ms(timing.tokens, file.pass_ms) for timing in timings]
    known = [ms for ms in best if ms is not None]
    if known and len(known) == len(best):
        plain_ms = sum(timing.tokens for timing in timings) * file.pass_ms[1]
        oracle = f.ratio("oracle", plain_ms, total(known))
    floor = f.ratio("floor", 1000.0, file.floor_ms)
    return {
        "oracle_speedup": oracle,
        "of_oracle": f.ratio("share of the oracle", speedup, oracle),
        "floor_tokens_per_second": floor,
        "of_floor": f.ratio("share of the floor", plain, floor),
    }


def _identity(measured: Sequence[Measurement]) -> dict[str, object]:
    said = [m for m in measured if m.identical is not None]
    if not said:
        return {}
    same = sum(bool(m.identical) for m in said)
    divergences = [m.divergence for m in said if m.divergence is not None]
    return {
        "identical": same == len(said),
        "identical_count": same,
        "compared": len(said),
        "first_divergence": min(divergences, key=lambda d: d.index, default=None),
    }


def _costs(used: list[Measurement], f: Figures) -> dict[str, object]:
    prefills = [m for m in used if m.prompt_tokens is not None and m.prompt_s is not None]
    timed = [m for m in used if m.timing and m.overhead_s is not None and m.timing.runs]
    taken = total(m.overhead_s or 0.0 for m in timed)
    whole = total(m.timing.runs[-1] for m in timed if m.timing)
    firsts = [m.timing.first_token_s for m in used if m.timing and m.timing.first_token_s is not None]
    begun = [m.begin_s for m in used if m.begin_s is not None]
    metered = [(m.timing.tokens, *m.energy_j) for m in used if m.timing and m.energy_j]
    tokens = sum(item[0] for item in metered)
    plain_tokens = sum(m.baseline.tokens for m in used if m.baseline and m.energy_j)
    plain_j, other_j = total(item[1] for item in metered), total(item[2] for item in metered)
    return {
        "prompt_tokens": sum(m.prompt_tokens or 0 for m in prefills) if prefills else None,
        "prompt_s": f.finite("prefill", total(m.prompt_s or 0.0 for m in prefills)) if prefills else None,
        "begin_s": f.finite("drafter's prefill", total(begun)) if begun else None,
        "first_token_s": f.ratio("first token", total(firsts), len(firsts)) if firsts else None,
        "overhead": f.ratio("overhead", taken, whole) if timed else None,
        "joules_per_token": f.ratio("energy", other_j, tokens) if metered else None,
        "baseline_joules_per_token": f.ratio("energy", plain_j, plain_tokens) if plain_tokens else None,
    }
