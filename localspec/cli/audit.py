"""`localspec audit`: does speculation change the answer? Checked on the user's own model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import common

if TYPE_CHECKING:
    from localspec.audit.records import Report
    from localspec.bench.records import Settings
    from localspec.bench.tasks import Task
    from localspec.models.registry import Resolved
    from localspec.types import DraftOptions

NOT_THE_SAME = 1

_TASKS = "copy,explain,story,chat"
_PROMPTS_PER_TASK = "2,copy=6"
"""Six texts that are copied, where drafts are long and mostly right, and six replies that are made up."""

_TEMPERATURES = "0,0.8"


def audit(
    model: common.ModelOption = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft", "-d", metavar="LIST", help="Drafters to check, with commas; ngram if left out."
        ),
    ] = None,
    draft_context: common.DraftContextOption = None,
    draft_gpu_layers: common.DraftGpuLayersOption = None,
    draft_length: common.DraftLengthOption = None,
    draft_leaves: common.DraftLeavesOption = None,
    verify: Annotated[
        str | None, typer.Option(metavar="LIST", help="Rules of verification to check, with commas.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own prompts: text, or JSON lines.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", metavar="N", help="Tokens of a reply at most.")
    ] = 96,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", "-t", metavar="T", help="0 is greedy; left out, both 0 and 0.8."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Of the sampling; 1 if left out.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with all token ids.")
    ] = False,
    context: common.ContextOption = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", help="CPU threads, for all replies; left out, one a core."),
    ] = None,
    gpu_layers: common.GpuLayersOption = None,
    flash_attention: common.FlashAttentionOption = None,
    kv_type: common.KvTypeOption = None,
    debug: common.DebugOption = False,
) -> None:
    """Check that speculation does not change the answer.

    Every prompt is answered by the model alone and by each drafter and rule, and the replies are compared
    token for token. Where they part, the audit says why. The exit code is 1 where they part and the rounding
    of the model, which is measured, does not explain it.
    """
    del debug
    from localspec import settings as config
    from localspec.bench.options import Given, find_files, find_tasks, listed, settings_of
    from localspec.cli.models import progress_display
    from localspec.drafters import check_spec, has_probs
    from localspec.model_choice import resolve
    from localspec.model_files import file_of, resolve_drafts, with_files
    from localspec.runtime.cores import physical_cores
    from localspec.types import DraftOptions
    from localspec.verify import check_verify

    chosen = config.merge(
        config.load_settings(),
        model=model,
        context=context,
        threads=threads,
        gpu_layers=gpu_layers,
        flash_attention=flash_attention,
        kv_type=kv_type,
        seed=seed,
        draft_context=draft_context,
        draft_gpu_layers=draft_gpu_layers,
    )
    engine = config.engine_options(chosen)
    settings = settings_of(
        Given(
            model=chosen.model,
            tasks=None if prompts else _TASKS,
            prompts_per_task=_PROMPTS_PER_TASK,
            prompts_file=prompts,
            modes="free",
            lengths=None if draft_length is None else str(draft_length),
            verify=verify,
            temperatures=_TEMPERATURES if temperature is None else str(temperature),
            tokens=max_tokens,
            context=engine.context or 4096,
            threads=engine.threads or physical_cores(),
            gpu_layers=engine.gpu_layers,
            kv_type=engine.kv_type,
            flash_attention=engine.flash_attention,
            seed=1 if seed is None else seed,
        )
    )
    # A bench's own settings know methods only.
    settings = settings.model_copy(update={"drafts": listed(draft, settings.drafts, "--draft")})
    leaves = 1 if draft_leaves is None else draft_leaves
    target = resolve(chosen.model)
    options: dict[str, DraftOptions] = {}
    wanted: dict[str, Resolved] = {}
    for name in settings.drafts:
        found = resolve_drafts(name, target)
        chosen_draft = DraftOptions(
            name,
            settings.lengths[0],
            leaves=leaves,
            window=engine.draft.window,
            gpu_layers=engine.draft.gpu_layers,
        )
        options[name] = with_files(chosen_draft, found)
        check_spec(options[name])
        for rule in settings.verify:
            check_verify(rule, drafter=name, has_probs=has_probs(options[name]))
        wanted |= found
    tasks, _ = find_tasks(settings)
    with progress_display() as show:
        path = find_files(settings, show)[0]
        for resolved in wanted.values():
            file_of(resolved, show)
    report = _audit(settings, path, tasks, options)
    if as_json:
        sys.stdout.write(report.model_dump_json() + "\n")
    else:
        from localspec.audit.report import report_text

        sys.stdout.write(report_text(report))
    sys.stdout.flush()
    if report.verdict.same_answer is False:
        raise typer.Exit(NOT_THE_SAME)


def _audit(
    settings: Settings, path: Path, tasks: tuple[Task, ...], options: dict[str, DraftOptions]
) -> Report:
    """The audit itself, on models that are loaded for it; progress goes to standard error.

    `options` has what each of the settings' drafters is made of.
    """
    from contextlib import ExitStack

    from localspec.audit.compare import Audit, Question
    from localspec.audit.records import Report
    from localspec.audit.verdict import verdict_of
    from localspec.bench.driver import Driver
    from localspec.bench.files import load_file
    from localspec.bench.prompts import prompt_tokens
    from localspec.bench.records import Configuration
    from localspec.chat.template import ChatTemplate
    from localspec.draft_models import DraftModels
    from localspec.drafters import Drafter, make_drafter
    from localspec.types import EngineOptions

    line = common.StatusLine()
    with ExitStack() as stack:
        stack.callback(line.clear)
        line.show(f"Loading {path.stem}")
        files = {name: file for own in options.values() for name, file in own.files.items()}
        loaded, _ = load_file(path, settings, files)
        stack.callback(loaded.close)
        models = DraftModels(
            loaded,
            EngineOptions(
                threads=settings.threads,
                gpu_layers=settings.gpu_layers,
                flash_attention=settings.flash_attention,
            ),
            lambda share: line.show(f"Loading the draft model {share:4.0%}"),
        )
        # Closed before the target.
        stack.callback(models.close)

        def drafter(configuration: Configuration) -> Drafter:
            own = options[configuration.draft]
            return make_drafter(own, model=lambda name: models.drafter(name, own))

        model = loaded.model
        template = ChatTemplate.of(model)
        configurations = [
            Configuration(draft=draft, length=length, leaves=own.leaves, verify=rule)
            for draft, own in options.items()
            for length in settings.lengths
            for rule in settings.verify
        ]
        for configuration in configurations:
            # A draft model that cannot be used is said before anything is asked.
            drafter(configuration).close()
        for note in models.notes:
            line.clear()
            typer.echo(f"note: {note}", err=True)
        given = settings.prompts_file is not None
        questions = [
            Question(task.name, prompt.name, tuple(prompt_tokens(prompt, template, model)), temperature)
            for task in tasks
            for prompt in task.prompts[: None if given else settings.prompts(task.name)]
            for temperature in settings.temperatures
        ]
        findings = Audit(
            Driver(loaded.context, model),
            configurations,
            questions,
            tokens=settings.tokens,
            seed=settings.seed,
            spell=model.token_text,
            make=drafter,
            listen=lambda what, share: line.show(f"{share:4.0%}  {what}"),
        ).run()
        return Report(
            model=settings.model,
            file=path.stem,
            backend=loaded.backend,
            threads=settings.threads,
            context=loaded.context.capacity,
            max_tokens=settings.tokens,
            seed=settings.seed,
            verdict=verdict_of(findings, configurations, settings.temperatures),
            comparisons=findings.comparisons,
            plain=findings.plain,
            noise=findings.noise,
        )
