"""Results of a bench made by hand: a small grid with the corners that reports must cope with."""

from __future__ import annotations

from typing import Any

from localspec.bench.records import (
    Configuration,
    Counts,
    Divergence,
    Measurement,
    ModelFile,
    PeerMeasurement,
    Results,
    Settings,
    Startup,
    Timing,
)

BF16 = {1: 7.5, 2: 10.7, 3: 11.6, 4: 14.6, 5: 14.1, 8: 16.1, 9: 15.8, 12: 19.1, 16: 21.4, 24: 28.1, 32: 35.0}
Q4_1 = {1: 5.1, 2: 11.0, 3: 13.7, 4: 16.6, 5: 20.5, 8: 25.6, 9: 30.1, 12: 35.1, 16: 47.3, 24: 69.4, 32: 89.3}


def settings(**changed: Any) -> Settings:
    values: dict[str, Any] = {
        "model": "smollm2",
        "files": ("BF16", "Q4_1"),
        "tasks": ("copy", "chain", "code", "explain", "random"),
        "prompts_per_task": 2,
        "modes": ("transcript", "free"),
        "drafts": ("ngram", "suffix"),
        "lengths": (2, 4, 8),
        "tokens": 256,
        "runs": 3,
        "context": 2048,
        "threads": 2,
    }
    return Settings(**(values | changed))


def model_file(
    name: str = "small.BF16", pass_ms: dict[int, float] | None = None, **changed: Any
) -> ModelFile:
    values: dict[str, Any] = {
        "name": name,
        "file_type": name.rpartition(".")[2],
        "bytes": 270_000_000,
        "sha256": "0" * 64,
        "parameters": 135_000_000,
        "weight_bytes": 269_000_000,
        "kv_bytes_per_token": 23_040,
        "context": 2048,
        "kv_type": "f16",
        "load_s": 0.4,
        "pass_ms": BF16 if pass_ms is None else pass_ms,
        "pass_position": 512,
        "bandwidth": 4.5e10,
        "floor_ms": 6.2,
    }
    return ModelFile(**(values | changed))


def timing(tokens: int, seconds: float, *runs: float, first: float | None = 0.01) -> Timing:
    return Timing(tokens=tokens, seconds=seconds, runs=runs or (seconds,), first_token_s=first)


def counts(length: int, steps: int, accepted_at: tuple[int, ...], drafts: int | None = None) -> Counts:
    """Counters of `steps` passes, `drafts` of them with a draft of `length` tokens."""
    drafts = steps if drafts is None else drafts
    accepted = sum(accepted_at)
    refused = drafts - (accepted_at[length - 1] if accepted_at else 0)
    return Counts(
        steps=steps,
        skipped_steps=0,
        drafts=drafts,
        drafted=drafts * length,
        accepted=accepted,
        emitted=steps + accepted,
        reached=accepted + refused,
        drafted_at=(drafts,) * length,
        accepted_at=accepted_at,
        draft_s=0.01,
        verify_s=0.9,
        sample_s=0.02,
        other_s=0.01,
    )


def measurement(task: str = "copy", prompt: str = "one", **changed: Any) -> Measurement:
    """ngram 4 on a transcript of 256 tokens: 2x, unless changed; fields of the configuration may be given."""
    names = set(Configuration.model_fields)
    asked = {"draft": "ngram", "length": 4} | {key: changed.pop(key) for key in names & changed.keys()}
    values: dict[str, Any] = {
        "file": "small.BF16",
        "task": task,
        "prompt": prompt,
        "mode": "transcript",
        "configuration": Configuration(**asked),
        "baseline": timing(256, 2.0, 2.0, 2.1, 1.9),
        "timing": timing(256, 1.0, 1.0, 1.02, 0.98),
        "counts": counts(4, 64, (56, 50, 46, 40)),
        "lengths": (4,) * 64,
        "prompt_tokens": 300,
        "prompt_s": 0.5,
        "begin_s": 0.001,
        "overhead_s": 0.002,
    }
    return Measurement(**(values | changed))


def peer(task: str = "copy", prompt: str = "one", **changed: Any) -> PeerMeasurement:
    values: dict[str, Any] = {
        "file": "small.BF16",
        "task": task,
        "prompt": prompt,
        "name": "llama-server",
        "config": "ngram-mod",
        "baseline": timing(256, 2.1, 2.1, 2.2, 2.0),
        "ours": timing(256, 2.0, 2.0, 2.1, 1.9),
        "timing": timing(256, 1.5, 1.5, 1.52, 1.49),
        "drafted": 300,
        "accepted": 200,
        "identical": True,
    }
    return PeerMeasurement(**(values | changed))


def startup(draft: str, **changed: Any) -> Startup:
    values: dict[str, Any] = {
        "file": "small.BF16",
        "draft": draft,
        "length": None if draft == "none" else 8,
        "load_s": 0.62,
        "first_token_s": 0.3,
        "context_tokens": 2048,
        "resident_bytes": 410_000_000,
    }
    return Startup(**(values | changed))


def results(*measurements: Measurement, **changed: Any) -> Results:
    values: dict[str, Any] = {
        "settings": settings(),
        "machine": {"system": "Linux 6", "cores": 2, "devices": [{"name": "CPU", "memory": None}]},
        "started": "2026-11-29T16:00:00+00:00",
        "complete": True,
        "files": (model_file(),),
        "measurements": measurements,
    }
    return Results(**(values | changed))


_SHARES = {"copy": 0.97, "chain": 0.9, "code": 0.8, "explain": 0.1, "random": 0.3}


def _drafting(
    task: str, prompt: str, length: int, mode: str, file: ModelFile, wobble: float, **changed: Any
) -> Measurement:
    """A plausible measurement: geometric acceptance at the task's own share, at the file's costs."""
    share, steps = _SHARES[task], 60
    accepted = tuple(round(steps * share**place) for place in range(1, length + 1))
    tokens = steps + sum(accepted)
    plain = tokens * file.pass_ms[1] / 1000
    curve = file.cost_curve
    cost = curve.get(1 + length) or (curve[4] + curve[5]) / 2
    seconds = steps * cost * file.pass_ms[1] / 1000 * 1.03
    asked: dict[str, Any] = {
        "file": file.name,
        "mode": mode,
        "length": length,
        "temperature": 1.0 if task == "random" else 0.0,
        "baseline": timing(tokens, plain, plain, plain * 1.02, plain * 0.99),
        "timing": timing(tokens, seconds, seconds, seconds * (1 + wobble), seconds * (1 - wobble)),
        "counts": counts(length, steps, accepted),
        "lengths": tuple(length if step % 7 else 0 for step in range(steps)),
    }
    return measurement(task, prompt, **(asked | changed))


def full() -> Results:
    """A whole bench of two files, peers, concurrency, start-up and a few rows that could not be measured."""
    files = (model_file(), model_file("small.Q4_1", Q4_1, bytes=98_000_000, floor_ms=2.4))
    found: list[Measurement] = []
    for file in files:
        for task in _SHARES:
            for length in (2, 4, 8):
                for mode in ("transcript", "free"):
                    found += [
                        _drafting(
                            task, prompt, length, mode, file, 0.01 * length, **_told(mode, task, prompt)
                        )
                        for prompt in ("one", "two")
                    ]
            free = Configuration(draft="suffix", temperature=float(task == "random"))
            lengths = tuple((step * 5) % 17 for step in range(60))
            one = _drafting(task, "one", 8, "transcript", file, 0.02, lengths=lengths)
            found.append(one.model_copy(update={"configuration": free}))
        for parallel in (2, 4, 8):
            for task in ("copy", "random"):
                one = _drafting(task, "one", 4, "transcript", file, 0.02)
                assert one.timing is not None
                slow = one.timing.seconds * (1 + 0.25 * parallel / 2)
                update = {"parallel": parallel, "timing": timing(one.timing.tokens, slow, slow * 0.98, slow)}
                found.append(one.model_copy(update=update))
    found.append(
        measurement("explain", "one", mode="free", verify="typical", timing=timing(200, 0.7), length=8)
    )
    found.append(
        measurement(
            "code", "long", draft="suffix", length=8, baseline=None, timing=None, counts=None, lengths=(),
            note="Prompt and reply need 9000 tokens and the context holds 2048; raise --context.",
        )
    )  # fmt: skip
    peers = [
        peer(task, prompt, config=config, timing=timing(256, seconds, seconds, seconds * 1.02))
        for task in ("copy", "chain", "code")
        for prompt in ("one", "two")
        for config, seconds in (("plain", 2.1), ("ngram-mod", 0.6), ("ngram-cache", 2.4))
    ]
    peers.append(peer("explain", config="ngram-cache", timing=None, baseline=None, note="The server ended."))
    return results(
        *found,
        settings=settings(peers=("all",), parallel=(1, 2, 4, 8)),
        files=files,
        peers=tuple(peers),
        startup=(startup("none"), startup("ngram"), startup("suffix", resident_bytes=420_000_000)),
        notes=("Another program used 12% of the processor.",),
    )


def _told(mode: str, task: str, prompt: str) -> dict[str, Any]:
    if mode != "free":
        return {}
    if (task, prompt) == ("chain", "two"):
        return {"identical": False, "divergence": Divergence(index=71, plain=5, other=9, margin=0.031)}
    return {"identical": True}
