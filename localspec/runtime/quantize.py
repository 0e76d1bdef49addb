"""The same model in another quantization, made on this machine."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

from localspec.errors import ModelFileError, StorageError, UsageError
from localspec.runtime.library import forget_errors, lib, recent_errors

FILE_TYPES = {
    "F32": "LLAMA_FTYPE_ALL_F32",
    "F16": "LLAMA_FTYPE_MOSTLY_F16",
    "BF16": "LLAMA_FTYPE_MOSTLY_BF16",
    "Q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0",
    "Q6_K": "LLAMA_FTYPE_MOSTLY_Q6_K",
    "Q5_K_M": "LLAMA_FTYPE_MOSTLY_Q5_K_M",
    "Q4_1": "LLAMA_FTYPE_MOSTLY_Q4_1",
    "Q4_K_M": "LLAMA_FTYPE_MOSTLY_Q4_K_M",
    "Q4_K_S": "LLAMA_FTYPE_MOSTLY_Q4_K_S",
    "Q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0",
    "Q3_K_M": "LLAMA_FTYPE_MOSTLY_Q3_K_M",
    "Q2_K": "LLAMA_FTYPE_MOSTLY_Q2_K",
}

_NEXT_TO_NOTHING = 2**20
"""Bytes that are free on a disk that a model has filled: less than a tensor."""


def requantize(source: Path, target: Path, file_type: str, *, threads: int) -> None:
    """Write `source` to `target` as `file_type`, a key of `FILE_TYPES`.

    Raises:
        UsageError: an unknown type.
        ModelFileError: llama.cpp cannot convert the file.
        StorageError: the disk is full.
    """
    low = lib()
    if file_type not in FILE_TYPES:
        raise UsageError(f"There is no file type '{file_type}'; use one of: {', '.join(FILE_TYPES)}.")
    params = low.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = getattr(low, FILE_TYPES[file_type])
    params.allow_requantize = True
    forget_errors()
    partial = target.with_name(target.name + ".partial")
    code = low.llama_model_quantize(str(source).encode(), str(partial).encode(), ctypes.byref(params))
    if code != 0:
        # llama.cpp writes the file through a stream that does not say why it failed.
        full = shutil.disk_usage(target.parent).free < _NEXT_TO_NOTHING
        partial.unlink(missing_ok=True)
        if full:
            raise StorageError(
                f"There is no room for {source.name} as {file_type} in {target.parent}; free some space."
            )
        cause = (recent_errors() or ["no reason given"])[-1]
        raise ModelFileError(f"{source.name} cannot be written as {file_type}: {cause}.")
    partial.replace(target)
