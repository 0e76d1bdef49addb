"""Concurrency in the grid: a task's prompts answered together in one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice

from localspec.bench.blocks import BlockRunner
from localspec.bench.grid import Block
from localspec.bench.parallel import ForcedText, forced_member, measure_parallel
from localspec.bench.records import Measurement, Settings
from localspec.drafters import models_of
from localspec.errors import LocalspecError
from localspec.runtime.context import LlamaContext
from localspec.runtime.model import LlamaModel
from localspec.runtime.sequences import LlamaSequences
from localspec.types import DraftOptions, SamplingParams

_ALONE = "Draft models and heads keep up with one sequence: there is no row with several in one batch."
_SPARE = 16
"""Tokens of room beyond prompt and reply of a sequence."""


def measure_together(
    block: Block,
    runner: BlockRunner,
    model: LlamaModel,
    settings: Settings,
    after_run: Callable[[float], None],
) -> list[Measurement]:
    """Every configuration of `block` with `block.parallel` sequences in the batch.

    Those with a draft model or a head are left out, which their notes say.
    """
    alone = [block.empty(c, _ALONE) for c in block.configurations if models_of(c.draft)]
    block = replace(block, configurations=tuple(c for c in block.configurations if not models_of(c.draft)))
    if not block.configurations:
        return alone
    try:
        texts = []
        for prompt in islice(block.task.prompts, block.parallel):
            reply = runner.prepare(block, prompt).reply
            texts.append(ForcedText(reply.prompt, reply.forced or ()))
        return [*_measured(block, texts, model, settings, after_run), *alone]
    except LocalspecError as error:
        return [*(block.empty(configuration, str(error)) for configuration in block.configurations), *alone]


def _measured(
    block: Block,
    texts: list[ForcedText],
    model: LlamaModel,
    settings: Settings,
    after_run: Callable[[float], None],
) -> list[Measurement]:
    sampling = SamplingParams(temperature=block.temperature, seed=settings.seed)
    room = max(len(text.prompt) + len(text.reply) for text in texts) + _SPARE
    context = LlamaContext(
        model,
        capacity=room * block.parallel,
        threads=settings.threads,
        flash_attention=settings.flash_attention,
        kv_type=settings.kv_type,
        sequences=block.parallel,
    )
    candidates = [
        partial(forced_member, draft=DraftOptions(c.draft, c.length), sampling=sampling)
        for c in block.configurations
    ]
    tokens = float(settings.tokens * block.parallel * (1 + len(candidates)))
    try:
        results = measure_parallel(
            LlamaSequences(context),
            texts,
            block.parallel,
            candidates,
            tokens=settings.tokens,
            runs=settings.runs,
            plain=partial(forced_member, sampling=sampling),
            progress=lambda done, rounds: after_run(tokens),  # noqa: ARG005
        )
    finally:
        context.close()
    return [
        block.empty(configuration, "").model_copy(
            update={
                "baseline": result.baseline,
                "timing": result.timing,
                "counts": result.counts,
                "lengths": result.lengths,
                "note": None,
            }
        )
        for configuration, result in zip(block.configurations, results, strict=True)
    ]
