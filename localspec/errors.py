"""Every error that a user can meet, as one tree.

    LocalspecError                 exit 1   anything that stops a command
    +-- UsageError                 exit 2   an option or input that cannot be used
    |   +-- PromptTooLongError     exit 2   the newest message alone overflows the context
    |   +-- DeadEndError           exit 2   a grammar that lets no token follow
    +-- NotFoundError              exit 3   unknown model name, missing file
    +-- ModelFileError             exit 1   truncated, not GGUF, wrong hash, unsupported architecture
    +-- IncompatibleError          exit 4   a draft that cannot serve this target
    +-- NotEnoughMemoryError       exit 5   weights or context larger than memory
    +-- DownloadError              exit 1   no network, no space, a source that refuses
    +-- StorageError               exit 1   a folder or database that cannot be used
    +-- PeerError                  exit 1   another program of a bench that refuses or is gone
    +-- EngineError                exit 1   the engine failed while working
        +-- EngineDiedError        exit 1   its process is gone
        +-- RollbackRefusedError   exit 1   the KV cache would not drop its tail
        +-- BadLogitsError         exit 1   the model returned NaN

A message is one sentence (two at most) that says what is wrong and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class LocalspecError(Exception):
    """Base of every error shown to a user; `exit_code` is the process's exit status."""

    exit_code: ClassVar[int] = 1


class UsageError(LocalspecError):
    """An option or an input that cannot be used as given."""

    exit_code = 2


class PromptTooLongError(UsageError):
    """The newest message does not fit into the context, even with every older turn dropped."""


class DeadEndError(UsageError):
    """A grammar that forbids every token there is a logit for."""


class NotFoundError(LocalspecError):
    """A model name or a file that does not exist."""

    exit_code = 3


class ModelFileError(LocalspecError):
    """A model file that is damaged, of another format, or of an architecture llama.cpp does not know."""


class IncompatibleError(LocalspecError):
    """A drafter that cannot serve this target."""

    exit_code = 4


class NotEnoughMemoryError(LocalspecError):
    """Weights, context or compute buffers do not fit into memory."""

    exit_code = 5


class DownloadError(LocalspecError):
    """A model that could not be fetched."""


class StorageError(LocalspecError):
    """A folder or a database that cannot be read or written."""


class PeerError(LocalspecError):
    """Another program in a bench answered with an error, not in time, or has ended."""


class EngineError(LocalspecError):
    """The engine failed while generating."""


class EngineDiedError(EngineError):
    """The engine's process ended without being asked to."""


class RollbackRefusedError(EngineError):
    """llama.cpp refused to drop the tail of a sequence from its cache."""


class BadLogitsError(EngineError):
    """The model returned logits that are not numbers."""


BY_NAME: dict[str, type[LocalspecError]] = {
    cls.__name__: cls
    for cls in (
        LocalspecError,
        UsageError,
        PromptTooLongError,
        DeadEndError,
        NotFoundError,
        ModelFileError,
        IncompatibleError,
        NotEnoughMemoryError,
        DownloadError,
        StorageError,
        PeerError,
        EngineError,
        EngineDiedError,
        RollbackRefusedError,
        BadLogitsError,
    )
}
"""Error classes by name: how an error crosses the pipe between the engine and its client."""
