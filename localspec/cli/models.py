"""`localspec models`: what is known, what is here, and fetching the rest."""

from __future__ import annotations

import typer

from localspec.cli.model_check import check
from localspec.cli.models_files import path, pull, quantize, rm
from localspec.cli.models_output import print_table, progress_display
from localspec.cli.models_scan import add, scan
from localspec.cli.models_show import list_models, show

__all__ = ["app", "print_table", "progress_display"]

app = typer.Typer(
    help="List, describe, fetch and find models; make smaller copies, and check which can draft for which.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("list")(list_models)
app.command()(show)
app.command()(pull)
app.command()(rm)
app.command()(scan)
app.command()(add)
app.command()(path)
app.command()(quantize)
app.command()(check)
