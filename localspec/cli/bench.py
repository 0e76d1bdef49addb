"""`localspec bench`: what speculation gains on this machine, with this model, on this kind of work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import common
from localspec.cli.progress import long_work
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.records import Results

INTERRUPTED = 130


_WITH_RESUME = {"json_file", "csv_file", "markdown_file", "plots", "resume", "debug"}
"""Options that say where results go; the others make the grid, which --resume has already."""


def bench(
    ctx: typer.Context,
    model: common.ModelOption = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Tasks, with commas; all when left out.")
    ] = None,
    draft: common.DraftListOption = None,
    draft_length: common.DraftLengthListOption = None,
    policy: common.PolicyListOption = None,
    files: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Files: own (the model's), quantizations to make from it (BF16, Q8_0, ...), names, paths.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="transcript (one text for all), free (as users run it), or both."),
    ] = None,
    verify: Annotated[str | None, typer.Option(metavar="LIST", help="Rules of verification.")] = None,
    temperature: Annotated[
        str | None, typer.Option("--temperature", "-t", metavar="LIST", help="In place of each task's own.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Of drafters that remember: cold, warm, or both as if left out."),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own prompts: text, or JSON lines.")
    ] = None,
    from_history: Annotated[bool, typer.Option("--from-history", help="Your own past chats.")] = False,
    prompts_per_task: Annotated[
        str, typer.Option(metavar="N", help="Prompts of each task; 1,copy=6 for more of one.")
    ] = "1",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", metavar="N", help="Tokens of a reply at most.")
    ] = 128,
    runs: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Rounds; every contestant runs once a round. Fewer than 4 take the median; from 8 on there "
            "are up to twice as many, as long as a speed-up is uncertain by more than 1 %.",
        ),
    ] = 5,
    parallel: Annotated[
        str | None, typer.Option(metavar="LIST", help="Several sequences in one batch: 1,2,4,8 (first file).")
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="llama-server in the same rounds: all, or some (first file)."),
    ] = None,
    peer_url: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A running OpenAI-compatible server; may repeat.")
    ] = None,
    peer_draft: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|TYPE|PATH",
            help="What llama-server's draft-model types draft with, such as Q2_K (made from the model).",
        ),
    ] = None,
    synthetic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RATE", help="Accept by dice: RATE, R1,R2,... or length:L. No measurement of a drafter."
        ),
    ] = None,
    startup: Annotated[
        bool, typer.Option("--startup/--no-startup", help="Also time and memory of a fresh start.")
    ] = True,
    passes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Tokens of the passes at which T(n) is measured; 1 to 64 if left out."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Where the results go as JSON.")
    ] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Rows as CSV.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="The whole report as Markdown.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Pictures, as SVG and PNG (extra `plots`).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the results in --json FILE, or with the last ones.")
    ] = False,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of the sampling; 1 if left out.")] = None,
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of context; 4096 if left out.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="CPU threads; left out, one a core.")
    ] = None,
    gpu_layers: common.GpuLayersOption = None,
    flash_attention: common.FlashAttentionOption = None,
    kv_type: common.KvTypeOption = None,
    debug: common.DebugOption = False,
) -> None:
    """Measure what speculation gains here, so that it can be believed.

    Every drafter alternates with plain decoding on the same text, in rounds that are spread over the whole
    run. Every round is kept: after an interrupt, --resume goes on.
    """
    del debug
    from localspec import settings as config
    from localspec.bench.options import (
        Given,
        find_drafts,
        find_files,
        find_peer_draft,
        find_tasks,
        settings_of,
    )
    from localspec.bench.report import store
    from localspec.bench.runner import Bench
    from localspec.paths import data_dir, ensure

    if resume:
        _check_resume(ctx)
    _check_targets([json_file, csv_file, markdown_file], plots)
    target = json_file or ensure(data_dir()) / "last-bench.json"
    earlier = store.load(target) if resume else None
    if earlier is not None:
        settings = earlier.settings
    else:
        from localspec.runtime.cores import physical_cores

        chosen = config.merge(
            config.load_settings(),
            model=model,
            context=context,
            threads=threads,
            gpu_layers=gpu_layers,
            flash_attention=flash_attention,
            kv_type=kv_type,
            seed=seed,
        )
        engine = config.engine_options(chosen)
        settings = settings_of(
            Given(
                model=chosen.model,
                files=files,
                tasks=tasks,
                prompts_per_task=prompts_per_task,
                prompts_file=prompts,
                from_history=from_history,
                modes=mode,
                drafts=draft,
                lengths=draft_length,
                policies=policy,
                verify=verify,
                temperatures=temperature,
                memories=memory,
                synthetic=synthetic or (),
                parallel=parallel,
                peers=peers,
                peer_urls=peer_url or (),
                peer_draft=peer_draft,
                tokens=max_tokens,
                runs=runs,
                context=engine.context or 4096,
                threads=engine.threads or physical_cores(),
                gpu_layers=engine.gpu_layers,
                kv_type=engine.kv_type,
                flash_attention=engine.flash_attention,
                seed=1 if seed is None else seed,
                startup=startup,
                passes=passes,
            )
        )
    found, notes = find_tasks(settings)
    from localspec.cli.models import progress_display
    from localspec.runtime.library import interrupts_kept

    with interrupts_kept(), progress_display() as show:
        paths = find_files(settings, show)
        drafts = find_drafts(settings, show)
        drafts_with = find_peer_draft(settings, show)
    with interrupts_kept(), long_work() as listen:
        work = Bench(
            settings,
            paths,
            found,
            save=lambda results: store.save(results, target),
            listen=listen,
            earlier=earlier,
            ledger=store.ledger_beside(target),
            notes=notes,
            drafts=drafts,
            peer_draft=drafts_with,
        )
        try:
            results = work.run()
        except KeyboardInterrupt:
            again = f"localspec bench --json {target} --resume" if json_file else "localspec bench --resume"
            typer.echo(f"localspec: interrupted; what was measured is kept. Go on with: {again}", err=True)
            raise typer.Exit(INTERRUPTED) from None
    _report(results, csv_file, markdown_file, plots)


def _check_targets(files: Sequence[Path | None], plots: Path | None) -> None:
    """What cannot be written at the end is said before hours of measuring, not after."""
    from localspec.bench.report.disk import check_target, make_folder
    from localspec.bench.report.plots import check_plots

    for path in files:
        if path is not None:
            check_target(path)
    if plots is not None:
        check_plots()
        make_folder(plots)
        check_target(plots / "speedup.svg")


def _check_resume(ctx: typer.Context) -> None:
    """--resume goes on with the grid that it finds: options that would change it are refused, not ignored."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if name not in _WITH_RESUME and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--resume goes on with the grid in the file; leave out {parameter.opts[0]}, or start anew "
                "without --resume."
            )


def _report(results: Results, csv_file: Path | None, markdown_file: Path | None, folder: Path | None) -> None:
    """Everything that is printed and written beside the JSON."""
    from rich.console import Console

    from localspec.bench.report.csv_file import save_csv
    from localspec.bench.report.disk import write_whole
    from localspec.bench.report.markdown import markdown
    from localspec.bench.report.table import print_results

    print_results(results, Console())
    if csv_file is not None:
        save_csv(results, csv_file)
    pictures = {}
    if folder is not None:
        from localspec.bench.report.plots import plots

        pictures = plots(results, folder, ("svg", "png"))
    if markdown_file is not None:
        links = {
            name: Path(os.path.relpath(path, markdown_file.parent)).as_posix()
            for name, path in pictures.items()
            if path.suffix == ".svg"
        }
        write_whole(markdown_file, markdown(results, links).encode())
