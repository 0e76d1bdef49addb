"""What a load takes is what was estimated; what does not fit is refused before, or beside, the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.errors import NotEnoughMemoryError
from localspec.models.fit import ROWS, Machine, sizes
from localspec.models.ggml_types import KV_TYPES, TENSOR_TYPES
from localspec.runtime import loading
from localspec.runtime.context import MAX_ROWS
from localspec.runtime.devices import Device, repacked_types
from localspec.runtime.library import forget_buffers, lib, taken_buffers
from localspec.runtime.loading import LoadedModel, describe, free_memory, load, load_draft
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions, EngineOptions
from tests.models.shapes import (
    GEMMA_4B,
    LLAMA_1B,
    LLAMA_3B,
    Q4_K,
    QWEN3_06B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    Shape,
    write_file,
)

GIB = 2**30
CONTEXTS = (512, 2048, 8192)


def within(estimate: float, real: float, percent: float) -> bool:
    return abs(estimate - real) <= real * percent / 100


def buffers_of(path: Path, **settings: Any) -> dict[str, float]:
    """What llama.cpp would take, found out by itself without taking it: megabytes by kind."""
    low = lib()
    params = low.llama_model_default_params()
    params.n_gpu_layers, params.no_alloc, params.load_mode = 0, True, low.LLAMA_LOAD_MODE_NONE
    forget_buffers()
    model = low.llama_model_load_from_file(str(path).encode(), params)
    assert model
    context = low.llama_context_default_params()
    context.n_ctx = settings["context"]
    context.n_batch = context.n_ubatch = min(settings.get("batch", 512), settings["context"])
    context.n_outputs_max, context.n_seq_max, context.kv_unified = MAX_ROWS, MAX_LEAVES, True
    context.flash_attn_type = 0 if settings.get("flash_attention") is False else -1
    context.type_k = context.type_v = KV_TYPES[settings.get("kv_type", "f16")]
    handle = low.llama_init_from_model(model, context)
    assert handle
    low.llama_free(handle)
    low.llama_model_free(model)
    found: dict[str, float] = {}
    for buffer in taken_buffers():
        found[buffer.kind] = found.get(buffer.kind, 0) + buffer.size_bytes
    return found


@pytest.mark.parametrize(
    "shape",
    [QWEN3_06B, QWEN3_8B, LLAMA_1B, LLAMA_3B, GEMMA_4B, QWEN3_30B_A3B],
    ids=["qwen3-0.6b", "qwen3-8b", "llama-1b", "llama-3b", "gemma3-4b", "qwen3-30b-a3b"],
)
def test_compute_buffers_are_those_of_llama_cpp(shape: Shape, tmp_path: Path):
    # Layers make no difference to the compute buffer, and the holes that files are add up.
    path = tmp_path / "shape.gguf"
    header = write_file(replace(shape, layers=2), path)
    for context in (*CONTEXTS, 32768):
        for settings in ({}, {"flash_attention": False}, {"kv_type": "q8_0"}, {"batch": 128}):
            asked = {"context": context, **settings}
            real = buffers_of(path, **asked)
            estimate = sizes(header, **asked)
            assert within(estimate.compute_bytes, real["compute"], 12), (asked, real)
            # All else of a real file is larger, so the whole is closer.
            whole = estimate.weights_bytes + estimate.kv_bytes
            assert within(whole + estimate.compute_bytes, whole + real["compute"], 6), (asked, real)


@pytest.mark.model
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_real_load_takes_what_was_estimated(smollm2_path: Path, context: int):
    loaded = load(smollm2_path, EngineOptions(context=context, threads=1))
    try:
        info = describe(loaded, "smollm2", draft="none", speculation=False, reason="")
        assert info.memory_used > 100e6
        assert within(info.memory_estimated, info.memory_used, 2)
        by_kind = {buffer.kind: buffer.size_bytes for buffer in taken_buffers()}
        host = loaded.footprint.host
        assert within(host.kv_bytes, by_kind["KV"], 0.1)
        assert within(host.weights_bytes, by_kind["model"], 1)
        assert within(host.compute_bytes, by_kind["compute"], 10)
        assert host.repacked_bytes == 0
    finally:
        loaded.close()


def test_constants_are_those_of_the_runtime():
    assert ROWS == MAX_ROWS


@pytest.mark.model
def test_types_that_this_cpu_wants_laid_out_anew(tmp_path: Path):
    """Each in a file with one layer of that type: llama.cpp reports a second buffer, or does not."""
    known = repacked_types()
    assert known <= set(TENSOR_TYPES)
    for kind in (2, 8, 10, Q4_K, 13, 14):
        shape = Shape("llama", 1, 256, 4, 4, 64, 256, 256)
        path = tmp_path / f"{kind}.gguf"
        write_file(shape, path, kind)
        low = lib()
        params = low.llama_model_default_params()
        params.n_gpu_layers = 0
        forget_buffers()
        model = low.llama_model_load_from_file(str(path).encode(), params)
        low.llama_model_free(model)
        again = [buffer for buffer in taken_buffers() if "REPACK" in buffer.device]
        assert bool(again) == (kind in known), kind


@pytest.fixture
def target(smollm2_path: Path) -> Iterator[LoadedModel]:
    loaded = load(smollm2_path, EngineOptions(context=512, threads=1))
    yield loaded
    loaded.close()


@pytest.mark.model
def test_a_draft_model_has_its_own_estimate_and_no_note_without_a_gpu(
    target: LoadedModel, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = EngineOptions(context=512, threads=1)
    draft = load_draft(smollm2_path, options, target, DraftOptions(window=256))
    try:
        assert draft.context.capacity == 256
        assert within(draft.footprint.buffers_bytes, draft.used_bytes, 5)
    finally:
        draft.close()
    # With a GPU that the target has filled, the draft model is on the CPU, and that is said.
    machine = Machine(8 * GIB, GIB // 2, 1)
    monkeypatch.setattr(loading, "free_memory", lambda beside=None: machine)
    draft = load_draft(smollm2_path, options, target, DraftOptions(window=256))
    draft.close()
    assert draft.gpu_layers == 0
    assert "runs on the CPU" in draft.note
    assert "0.5 GiB of GPU memory are left" in draft.note


@pytest.mark.model
def test_no_memory_for_a_draft_model(
    target: LoadedModel, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loading, "free_memory", lambda beside=None: Machine(50 * 2**20))
    with pytest.raises(NotEnoughMemoryError, match=r"needs 0\.2 GiB beside the model and 0\.0 GiB"):
        load_draft(smollm2_path, EngineOptions(threads=1), target, DraftOptions())


@pytest.mark.model
def test_a_pair_that_does_not_fit_is_refused_before_anything_is_read(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loading, "free_memory", lambda beside=None: Machine(GIB // 4))
    draft = DraftOptions(spec="other", files={"other": str(smollm2_path)})
    options = EngineOptions(context=512, threads=1, draft=draft)
    with pytest.raises(NotEnoughMemoryError, match=r"with the draft model .* free; use "):
        load(smollm2_path, options)
    # The chat goes on without its draft model.
    loaded = load(smollm2_path, replace(options, needs_draft=False))
    loaded.close()
    assert loaded.context.capacity == 512
    # A file that is no model is another one's to complain about.
    missing = replace(options, draft=replace(draft, files={"other": "/nowhere.gguf"}))
    load(smollm2_path, missing).close()


@pytest.mark.model
def test_where_other_programs_have_all_of_a_gpu_it_is_not_used_at_all(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tried: list[bool] = []
    real = loading._open

    def opened(*args: Any, **kwargs: Any) -> Any:
        tried.append(kwargs["without_gpu"])
        if not kwargs["without_gpu"]:
            raise NotEnoughMemoryError("no room for compute buffers")
        return real(*args, **kwargs)

    monkeypatch.setattr(loading, "_open", opened)
    monkeypatch.setattr(loading, "used_gpus", lambda: [Device("CUDA0", "", "CUDA", "gpu", 0, GIB)])
    loaded = load(smollm2_path, EngineOptions(context=512, threads=1))
    assert loaded.gpu_layers == 0
    assert len(loaded.context.decode([1, 2, 3], "all")) == 3
    loaded.close()
    assert tried == [False, True]
    assert free_memory().repacked == frozenset()


@pytest.mark.model
def test_pages_of_a_loaded_file_are_not_free(target: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(loading.sys, "platform", "linux")
    assert free_memory().free_ram == memory.available
    assert free_memory(target).free_ram == memory.available - target.footprint.host.weights_bytes
