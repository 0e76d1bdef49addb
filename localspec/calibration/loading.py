"""The costs of a model that was loaded: under which key they are kept, and what they are likely to be."""

from __future__ import annotations

from pathlib import Path

from localspec import paths
from localspec.calibration.costs import PassCosts
from localspec.calibration.store import CurveStore, Key
from localspec.cost_presets import likely_curve
from localspec.models.hashes import identity
from localspec.runtime.cores import physical_cores
from localspec.runtime.devices import devices, llama_version
from localspec.runtime.loading import LoadedModel
from localspec.types import EngineOptions


def pass_costs(path: Path, options: EngineOptions, loaded: LoadedModel, file_type: str | None) -> PassCosts:
    """What passes cost, as far as it is known: by the calibration on disk, else by a preset.

    Args:
        path: the model's file.
        options: how it was loaded.
        loaded: the same, loaded.
        file_type: of the weights, None where the file does not say.

    Raises:
        ModelFileError: the file cannot be read.
        EngineError: llama.cpp's libraries cannot be asked.
    """
    key = calibration_key(path, options, gpu_layers=loaded.gpu_layers, backend=loaded.backend)
    likely = likely_curve(file_type or "", on_gpu=loaded.gpu_layers > loaded.model.placed_layers)
    return PassCosts(likely, CurveStore(paths.cache_dir() / "calibration", key))


def calibration_key(path: Path, options: EngineOptions, *, gpu_layers: int, backend: str) -> Key:
    """What times depend on: another value of any of these means measuring anew.

    Args:
        path: the file.
        options: how it was loaded.
        gpu_layers: layers that are on the GPU.
        backend: what computes.

    Raises:
        ModelFileError: the file cannot be read.
        EngineError: llama.cpp's libraries cannot be asked.
    """
    return {
        "file": identity(path),
        "llama.cpp": llama_version(),
        "backend": backend,
        "devices": ", ".join(f"{each.name} {each.description}" for each in devices()),
        "gpu_layers": gpu_layers,
        # None follows the load; on another number of cores that is something else.
        "threads": options.threads,
        "cores": physical_cores(),
        "batch": options.batch,
        "flash_attention": options.flash_attention,
        "kv_type": options.kv_type,
    }
