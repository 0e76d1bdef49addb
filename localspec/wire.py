"""Messages as they cross the pipe: one JSON array of them a line, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter

from localspec.messages import Command, Event

_COMMANDS: TypeAdapter[list[Command]] = TypeAdapter(list[Annotated[Command, Field(discriminator="type")]])
_EVENTS: TypeAdapter[list[Event]] = TypeAdapter(list[Annotated[Event, Field(discriminator="type")]])


def encode_commands(commands: Sequence[Command]) -> bytes:
    """One line of JSON, newline included."""
    return _COMMANDS.dump_json(list(commands)) + b"\n"


def decode_commands(line: bytes) -> list[Command]:
    """Commands of one line; raises `pydantic.ValidationError` on anything else."""
    return _COMMANDS.validate_json(line)


def encode_events(events: Sequence[Event]) -> bytes:
    """One line of JSON, newline included."""
    return _EVENTS.dump_json(list(events)) + b"\n"


def decode_events(line: bytes) -> list[Event]:
    """Events of one line; raises `pydantic.ValidationError` on anything else."""
    return _EVENTS.validate_json(line)
