"""`localspec config`: the settings, one by one or in an editor."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.errors import LocalspecError, StorageError, UsageError

if TYPE_CHECKING:
    from localspec.config_file import Value

_KEYMAP_HINT = '# "chat.speculation" = "f12"  # `localspec config keys` lists the actions.'

app = typer.Typer(help="See and change the settings.", no_args_is_help=True, rich_markup_mode=None)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="A setting, such as engine.threads.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_WIDEST = 32
_EDITORS = ("nano", "vi", "notepad")


@app.command()
def path() -> None:
    """Print the file of the settings, and nothing else; it need not exist."""
    typer.echo(_file().absolute())


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Show every setting with its value and where it comes from.

    Flags beat the environment, the environment beats config.toml.
    """
    from localspec.cli.models_output import print_table
    from localspec.config_values import all_values

    values = all_values()
    if as_json:
        told = {one.key: {"value": one.value, "from": one.origin} for one in values}
        typer.echo(json.dumps(told, indent=2))
        return
    table = [("SETTING", "VALUE", "FROM", "MEANING")]
    print_table([*table, *((one.key, _short(one.value), one.origin, one.description) for one in values)])


@app.command()
def get(key: KeyArgument, as_json: JsonOption = False) -> None:
    """Print the value of one setting; an empty line where none is set."""
    from localspec.config_keys import action_of
    from localspec.config_values import full_key, value_of
    from localspec.settings import load_settings

    whole = full_key(key)
    action = action_of(whole)
    if action is not None:
        from tui.keymap import known

        known(action)
    value = value_of(load_settings(), whole)
    if as_json:
        typer.echo(json.dumps(value))
    elif isinstance(value, str):
        typer.echo(_harmless(value))
    else:
        typer.echo(_shown(value) if value is not None else "")


@app.command("set")
def set_value(
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value, as in the environment.")],
) -> None:
    """Write a setting into config.toml; its comments and everything else stay as they are."""
    from localspec.config_file import write_settings
    from localspec.config_keys import action_of
    from localspec.config_values import full_key, parsed

    whole = full_key(key)
    meant = parsed(whole, value)
    if action_of(whole) is not None or whole == "ui.theme":
        _check_app({whole: value})
    file = _file()
    write_settings(file, {whole: meant})
    typer.echo(f"{whole} = {_shown(meant)} in {file}", err=True)
    _tell_overridden(whole)


@app.command()
def unset(key: KeyArgument) -> None:
    """Take a setting out of config.toml, so that its default counts again."""
    from localspec.config_file import write_settings
    from localspec.config_keys import action_of
    from localspec.config_values import full_key

    whole = full_key(key)
    file = _file()
    action = action_of(whole)
    if action is not None:
        _check_keys_without(action)
    if file.exists():
        write_settings(file, {whole: None})
    typer.echo(f"{whole} is not set in {file}", err=True)
    _tell_overridden(whole)


@app.command()
def keys(as_json: JsonOption = False) -> None:
    """List what the app can do, by the name that the keymap knows it by, with its keys now."""
    from localspec.cli.models_output import print_table
    from localspec.settings import load_settings
    from tui.keymap import Keymap, listed

    keymap = Keymap()
    keymap.use(load_settings().keymap)
    if as_json:
        told = {action.id: {"keys": keymap.shown(action), "title": action.title} for action in listed()}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    table = [("ACTION", "KEYS", "MEANING")]
    print_table([*table, *((action.id, keymap.shown(action), action.title) for action in listed())])


@app.command()
def edit() -> None:
    """Open config.toml in $VISUAL or $EDITOR, and check it afterwards."""
    import subprocess

    from localspec.config_values import check_file
    from localspec.paths import ensure

    file = _file()
    command = [*_editor(), str(file)]
    ensure(file.parent)
    if not file.exists():
        _write_template(file)
    while True:
        try:
            status = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise UsageError(
                f"Cannot start the editor {command[0]} ({error.strerror}); set VISUAL or EDITOR to another."
            ) from error
        if status:
            raise StorageError(
                f"The editor {command[0]} ended with status {status}; {file} is as it left it."
            )
        try:
            check_file()
            _check_app({})
        except LocalspecError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            typer.echo(f"localspec: {error}", err=True)
            if not typer.confirm("Edit it again?", default=True, err=True):
                raise typer.Exit(error.exit_code) from error
        else:
            typer.echo(f"{file} is in order.", err=True)
            return


def _check_keys_without(action: str) -> None:
    """Raise `UsageError` where another action has the keys that one would have again by default."""
    from localspec.settings import from_file
    from tui.keymap import checked

    own = from_file().keymap
    if action in own:
        checked({name: keys for name, keys in own.items() if name != action})


def _check_app(changes: Mapping[str, str]) -> None:
    """Raise `UsageError` where the file's keys or theme of the app, some of it changed, cannot be used."""
    from localspec.settings import from_file

    settings = from_file(changes)
    if settings.keymap:
        from tui.keymap import checked

        checked(settings.keymap)
    if settings.ui.theme is not None:
        from tui.themes import check_theme

        check_theme(settings.ui.theme)


def _file() -> Path:
    from localspec.settings import config_file

    return config_file()


def _editor() -> list[str]:
    import shlex

    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if chosen:
        try:
            # Paths on Windows hold backslashes.
            words = shlex.split(chosen, posix=os.name != "nt")
        except ValueError as error:
            raise UsageError(f"VISUAL or EDITOR is {chosen!r}, which is no command ({error}).") from error
        if words:
            return words
    found = next((name for name in _EDITORS if shutil.which(name)), None)
    if found is None:
        raise UsageError("There is no editor; set VISUAL or EDITOR to one, or use `localspec config set`.")
    return [found]


def _write_template(file: Path) -> None:
    """A new file that says what could stand in it, all of it commented out."""
    from localspec.bench.report.disk import write_whole
    from localspec.config_values import known_keys, value_of
    from localspec.settings import Settings

    defaults = Settings()
    lines = [
        "# Settings of localspec. Take away a # to set a value; flags and the environment beat this file.",
        "",
    ]
    group = ""
    for key, description in known_keys():
        above, _, name = key.rpartition(".")
        if above != group:
            group = above
            lines += ["", f"[{above}]"]
        value = value_of(defaults, key)
        lines.append(f"# {name} = {_shown(value) if value is not None else ''}  # {description}")
    lines += ["", "[keymap]", _KEYMAP_HINT]
    write_whole(file, ("\n".join(lines) + "\n").encode())


def _shown(value: Value) -> str:
    """A value as it would stand in the file; a dash for none."""
    return "-" if value is None else _harmless(json.dumps(value, ensure_ascii=False))


def _short(value: Value) -> str:
    shown = _shown(value)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"


def _harmless(text: str) -> str:
    from localspec.text import printable

    return printable(text) if sys.stdout.isatty() else text


def _tell_overridden(key: str) -> None:
    """The environment beats the file: say where it does."""
    from localspec.config_values import variable_of

    name = variable_of(key)
    if name is not None:
        typer.echo(f"{name} is set in your environment and beats {key} there.", err=True)
