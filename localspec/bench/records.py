"""What a bench writes down: raw measurements, and the rows derived from them.

Everything is immutable and goes through JSON unchanged. Ratios of rows are derived from measurements, which
keep seconds and counts; a figure that was not measured is None, and `note` says why.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1

Mode = Literal["transcript", "free", "synthetic"]
Memory = Literal["cold", "warm"]


class Record(BaseModel):
    """A frozen part of a bench's JSON; unknown fields and NaN are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Timing(Record):
    """How long some tokens took.

    Attributes:
        tokens: tokens emitted after prefill.
        seconds: the best estimate of their time. Where the steps of all runs are the same work, as on a
            transcript, the sum over steps of the lower quartile over the runs, since a disturbance only ever
            adds time; the median of fewer than four runs. Else the median of whole runs.
        runs: seconds of each run, warm-up excluded, in the order in which they were made; they are spread
            over the whole run of a file.
        steady: the same runs without pauses of the machine, see `runs.steady`; empty where the runs are fewer
            than four, or pauses cannot be told from work.
        first_token_s: time from the end of prefill to the end of the first step, estimated alike.
    """

    tokens: int
    seconds: float
    runs: tuple[float, ...]
    steady: tuple[float, ...] = ()
    first_token_s: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Rate after prefill."""
        return self.tokens / self.seconds


class Counts(Record):
    """Counters of one run, as `localspec.stats.metrics.Tally` has them.

    Times are seconds summed over the steps of the last run.
    """

    steps: int
    skipped_steps: int
    drafts: int
    drafted: int
    accepted: int
    emitted: int
    reached: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    draft_s: float
    verify_s: float
    sample_s: float
    other_s: float


class Divergence(Record):
    """Where a free run left the plain one.

    Attributes:
        index: place in the reply of the first different token.
        plain: the token of plain decoding.
        other: the token of the other run.
        margin: how far plain decoding's score of its token lies above that of the other one there, in units
            of logits divided by the temperature; a margin near 0 is a near-tie that the rounding of another
            batch width decides.
    """

    index: int
    plain: int
    other: int
    margin: float | None


class Configuration(Record):
    """What was run, beside the file, the task and the mode.

    Attributes:
        draft: value of `--draft`.
        length: draft tokens of every step at most; None where a policy chooses.
        policy: which one, as `--policy` names it; the usual one where both are None.
        leaves: branches of a draft at most.
        verify: rule of verification.
        temperature: of the sampling; the task's own or one of the grid.
        memory: whether what the drafter remembers across replies was empty or full.
        rates: probabilities by position of synthetic acceptance.
    """

    draft: str
    length: int | None = None
    policy: str | None = None
    leaves: int = 1
    verify: str = "coupled"
    temperature: float = 0.0
    memory: Memory = "cold"
    rates: tuple[float, ...] = ()


class Measurement(Record):
    """One configuration on one prompt, alternating with plain decoding of the same prompt.

    Attributes:
        file: name of the model file (`ModelFile.name`).
        task: name of the task.
        prompt: name of the prompt within the task.
        mode: see the package.
        configuration: what was run.
        parallel: sequences decoded in one batch; timings then count the tokens of all.
        baseline: plain decoding, in the same rounds.
        timing: the configuration.
        counts: raw counters of the configuration.
        lengths: draft tokens of each step of the last run.
        prompt_tokens: tokens of the prompt.
        prompt_s: time of the prefill, estimated as a step is.
        begin_s: median time that the drafter took to take in the prompt.
        identical: on free runs, whether the reply equals the plain one token for token.
        divergence: where it does not.
        overhead_s: time of the last run that the bench itself took between steps.
        energy_j: (plain, configuration) joules of a run, where a device counts them.
        note: why figures are missing or to be read with care.
    """

    file: str
    task: str
    prompt: str
    mode: Mode
    configuration: Configuration
    parallel: int = 1
    baseline: Timing | None = None
    timing: Timing | None = None
    counts: Counts | None = None
    lengths: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    prompt_s: float | None = None
    begin_s: float | None = None
    identical: bool | None = None
    divergence: Divergence | None = None
    overhead_s: float | None = None
    energy_j: tuple[float, float] | None = None
    note: str | None = None


class PeerMeasurement(Record):
    """One configuration of another program on one prompt, in the same rounds as our plain decoding.

    Attributes:
        name: the program, such as "llama-server".
        config: its settings in short, such as "ngram-mod 24/48-64"; "plain" without speculation; the address
            of a server that others started.
        baseline: the peer's own plain decoding.
        ours: localspec's plain decoding in the same rounds.
        timing: the peer's rate, as the peer itself counts it where it does.
        drafted, accepted: its counters over the last run.
        identical: whether the text equals the peer's own plain one.
        memory: first run after the peer's start, or later ones.
    """

    file: str
    task: str
    prompt: str
    name: str
    config: str
    temperature: float = 0.0
    memory: Memory = "warm"
    baseline: Timing | None = None
    ours: Timing | None = None
    timing: Timing | None = None
    drafted: int | None = None
    accepted: int | None = None
    identical: bool | None = None
    note: str | None = None


class ModelFile(Record):
    """A model file and what its passes cost here.

    Attributes:
        name: file name without `.gguf`.
        file_type: quantization, such as "BF16".
        bytes: size on disk.
        sha256: of the file.
        parameters: weights of the model.
        weight_bytes: bytes of tensors read in a pass over one token (embedding rows of others excluded).
        kv_bytes_per_token: of keys and values.
        context: tokens of context that the bench used.
        kv_type: element type of the cache.
        load_s: time to load it.
        pass_ms: T(n): milliseconds of one target pass over n tokens, by n.
        pass_position: length of the cache at which T(n) was taken.
        bandwidth: bytes read and written by a second of copying on the device that holds the weights.
        floor_ms: weights and cache at `pass_position` over `bandwidth`: what memory alone asks of a pass.
    """

    name: str
    file_type: str
    bytes: int
    sha256: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    context: int
    kv_type: str
    load_s: float
    pass_ms: dict[int, float] = Field(default_factory=dict)
    pass_position: int = 0
    bandwidth: float | None = None
    floor_ms: float | None = None

    @property
    def cost_curve(self) -> dict[int, float]:
        """T(n)/T(1); empty where T(1) is not a time."""
        one = self.pass_ms.get(1)
        ratios = {n: ms / one for n, ms in self.pass_ms.items()} if one else {}
        return {n: ratio for n, ratio in ratios.items() if math.isfinite(ratio)}


class Startup(Record):
    """What speculation costs before the first token, from a fresh engine process.

    Attributes:
        load_s: from the start of the process to a loaded engine (median).
        first_token_s: of the first reply, prefill included (median).
        context_tokens: tokens that the KV cache holds.
        resident_bytes: memory of the engine process after the reply.
        device_bytes: memory in use on all GPUs after the reply, other programs included; None without one.
        draft_bytes: weights and cache of a draft model; 0 for drafters without one.
        note: why figures are missing.
    """

    file: str
    draft: str
    length: int | None
    load_s: float | None = None
    first_token_s: float | None = None
    context_tokens: int | None = None
    resident_bytes: int | None = None
    device_bytes: int | None = None
    draft_bytes: int = 0
    note: str | None = None


class Settings(Record):
    """The grid and how it was measured: everything that `--resume` needs.

    Every drafter runs with each of `lengths`, fixed, and with each of `policies`. `prompts_of` names tasks of
    which another number of prompts than `prompts_per_task` is measured; `passes` are the sizes at which T(n)
    is taken, a usual set where empty. `prompts_sha256` is of the content of `prompts_file`, None in results
    of earlier versions. A drafter that remembers is measured with each of `memories`, any other one once.
    """

    model: str
    files: tuple[str, ...]
    tasks: tuple[str, ...]
    prompts_per_task: int
    prompts_of: dict[str, int] = Field(default_factory=dict)
    prompts_file: str | None = None
    prompts_sha256: str | None = None
    from_history: bool = False
    modes: tuple[Mode, ...]
    drafts: tuple[str, ...]
    lengths: tuple[int, ...]
    policies: tuple[str, ...] = ()
    verify: tuple[str, ...] = ("coupled",)
    temperatures: tuple[float, ...] = ()
    memories: tuple[Memory, ...] = ("cold", "warm")
    synthetic: tuple[str, ...] = ()
    parallel: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    peer_urls: tuple[str, ...] = ()
    peer_draft: str | None = None
    tokens: int
    runs: int
    context: int
    threads: int
    gpu_layers: int | None = None
    kv_type: str = "f16"
    flash_attention: bool | None = None
    seed: int = 1
    startup: bool = True
    passes: tuple[int, ...] = ()

    def prompts(self, task: str) -> int:
        """How many prompts of `task` are measured."""
        return self.prompts_of.get(task, self.prompts_per_task)


class Results(Record):
    """One bench: settings, machine and everything measured so far.

    Attributes:
        complete: whether every cell of the grid was measured.
        machine: operating system, processor, cores, memory, devices, versions.
        notes: sentences about the whole run.
    """

    settings: Settings
    machine: dict[str, Any]
    started: str
    complete: bool = False
    files: tuple[ModelFile, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    peers: tuple[PeerMeasurement, ...] = ()
    startup: tuple[Startup, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def invalid(self) -> str | None:
        """Why the figures are no measurement of a real drafter, where they are not."""
        if any(measurement.mode == "synthetic" for measurement in self.measurements):
            return "synthetic acceptance: drafts were accepted by preset probabilities, not by the model"
        return None
