"""`localspec chat`: the terminal app."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from localspec.cli import common
from localspec.errors import UsageError


def chat(
    model: common.ModelOption = None,
    draft: common.DraftOption = None,
    draft_length: common.DraftLengthOption = None,
    temperature: common.TemperatureOption = None,
    top_k: common.TopKOption = None,
    top_p: common.TopPOption = None,
    min_p: common.MinPOption = None,
    repeat_penalty: common.RepeatPenaltyOption = None,
    presence_penalty: common.PresencePenaltyOption = None,
    frequency_penalty: common.FrequencyPenaltyOption = None,
    seed: common.SeedOption = None,
    max_tokens: common.MaxTokensOption = None,
    context: common.ContextOption = None,
    threads: common.ThreadsOption = None,
    gpu_layers: common.GpuLayersOption = None,
    flash_attention: common.FlashAttentionOption = None,
    kv_type: common.KvTypeOption = None,
    chat_template: common.ChatTemplateOption = None,
    system: common.SystemOption = None,
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation.")] = False,
    conversation: Annotated[
        int | None, typer.Option("--conversation", min=1, metavar="ID", help="Open that conversation.")
    ] = None,
    record: common.RecordOption = None,
    debug: common.DebugOption = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Chat in the terminal.

    Goes on with the last conversation, unless --new, --conversation or --system says otherwise.
    """
    _need_terminal()
    if new and conversation is not None:
        raise UsageError("--new and --conversation exclude each other; give one of them.")
    plan = common.plan(
        common.Flags(
            model=model,
            draft=draft,
            draft_length=draft_length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repeat_penalty=repeat_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            seed=seed,
            max_tokens=max_tokens,
            context=context,
            threads=threads,
            gpu_layers=gpu_layers,
            flash_attention=flash_attention,
            kv_type=kv_type,
            chat_template=chat_template,
            system=system,
        )
    )

    # A system prompt belongs to the conversation that begins with it.
    opened: int | Literal["last", "new"] = "new" if new or system is not None else "last"
    # The one place where the library knows the app.
    from tui.app import Launch, run_chat

    launch = Launch(
        model_name=plan.model.name,
        options=plan.engine,
        sampling=plan.sampling,
        resolve_model=plan.model_file,
        system_prompt=plan.system,
        max_tokens=plan.max_tokens,
        conversation=opened if conversation is None else conversation,
        record=record,
        fresh_seeds=plan.settings.sampling.seed is None,
        theme=plan.settings.ui.theme,
        panel=plan.settings.ui.panel,
    )
    raise typer.Exit(run_chat(launch))


def _need_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("localspec chat needs a terminal; use `localspec run` in pipes.")
    if os.environ.get("TERM", "") in ("", "dumb") and os.name != "nt":
        raise UsageError("localspec chat cannot draw on a dumb terminal (TERM); use `localspec run` there.")
