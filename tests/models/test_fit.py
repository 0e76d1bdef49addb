"""Estimated memory, and plans for machines that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import NotEnoughMemoryError, UsageError
from localspec.models.cache import cache_widths, is_recurrent, snapshots, state_bytes
from localspec.models.fit import (
    GPU_RESERVE,
    SMALLEST_PAIR_CONTEXT,
    Machine,
    Plan,
    plan_pair,
    propose_pair,
    sizes,
)
from localspec.models.footprint import ModelShape, Settings
from localspec.models.gguf import GGUFHeader, read_header, read_part
from localspec.types import DraftOptions, EngineOptions
from tests.models.conftest import gguf_bytes
from tests.models.shapes import (
    GEMMA_4B,
    LLAMA_1B,
    LLAMA_3B,
    Q4_K,
    QWEN3_06B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    Shape,
    header_of,
)

GIB = 2**30
MIB = 2**20
QWEN = header_of(QWEN3_8B, "Qwen3-8B.gguf")
SMALL_QWEN = header_of(QWEN3_06B, "Qwen3-0.6B.gguf")
LLAMA = header_of(LLAMA_3B, "Llama-3.2-3B.gguf")
SMALL_LLAMA = header_of(LLAMA_1B, "Llama-3.2-1B.gguf")
AVX2 = frozenset({2, Q4_K, 20, 39})


# --- sizes


def test_the_cache_is_rounded_up_and_follows_its_type():
    at = sizes(QWEN, context=1000)
    assert at.kv_bytes == 1024 * 36 * 8 * 256 * 2
    assert sizes(QWEN, context=1024).kv_bytes == at.kv_bytes
    assert sizes(QWEN, context=1024, kv_type="q8_0").kv_bytes == at.kv_bytes * 34 // 64
    with pytest.raises(UsageError, match="q9_9"):
        sizes(QWEN, context=1024, kv_type="q9_9")


def test_weights_are_those_of_the_file_and_a_second_copy_is_told_apart():
    plain, again = sizes(QWEN, context=512), sizes(QWEN, context=512, repacked=AVX2)
    assert plain.weights_bytes == QWEN.tensor_bytes
    assert plain.needed_bytes == plain.total_bytes
    assert again.repacked_bytes == again.replaced_bytes > 0.8 * QWEN.tensor_bytes
    assert again.total_bytes == plain.total_bytes + again.repacked_bytes
    assert again.needed_bytes == plain.total_bytes, "the system can take back what is never read again"
    # The token table serves as the output too, and is needed as it is for looking tokens up.
    tied = sizes(SMALL_QWEN, context=512, repacked=AVX2)
    assert tied.repacked_bytes - tied.replaced_bytes == SMALL_QWEN.tensor_sizes["token_embd.weight"]


def test_buffers_grow_with_what_they_hold():
    base = sizes(QWEN, context=8192)
    assert base.output_bytes == 128 * 151936 * 4
    assert sizes(QWEN, context=8192, rows=16).output_bytes == 16 * 151936 * 4
    assert sizes(QWEN, context=8192, batch=2048).compute_bytes > 3 * base.compute_bytes
    scores = sizes(QWEN, context=8192, flash_attention=False).compute_bytes
    assert scores > 8192 * 512 * 32 * 4 > base.compute_bytes
    assert sizes(header_of(QWEN3_30B_A3B, "moe.gguf"), context=512).compute_bytes > 80 * MIB


def test_which_layers_keep_what():
    assert cache_widths(header_of(GEMMA_4B, "gemma.gguf")) == (4 * 512,) * 34, "a window saves nothing"
    shape = Shape("llama", 4, 256, 4, 2, 64, 512, 1000)
    assert cache_widths(header_of(shape, "x", **{"attention.shared_kv_layers": 2})) == (256, 256, 0, 0)
    assert cache_widths(header_of(shape, "x", nextn_predict_layers=1)) == (256, 256, 256, 0)
    assert cache_widths(header_of(shape, "x", **{"attention.key_length_mla": 64})) == (128,) * 4
    sliding = {
        "attention.sliding_window_pattern": (1, 0, 1, 0),
        "attention.key_length_swa": 32,
        "attention.value_length_swa": 32,
    }
    assert cache_widths(header_of(shape, "x", **sliding)) == (128, 256, 128, 256)
    state = {"ssm.inner_size": 512, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.group_count": 1}
    hybrid = header_of(shape, "x", full_attention_interval=2, **state)
    assert cache_widths(hybrid) == (0, 256, 0, 256)
    elements = 3 * (512 + 32) + 16 * 512
    assert state_bytes(hybrid) == (elements * 4, 0, elements * 4, 0)
    assert is_recurrent(hybrid)
    assert not is_recurrent(QWEN)
    assert sizes(hybrid, context=256).kv_bytes == 256 * 512 * 2 + 2 * elements * 4
    predicting = header_of(shape, "x", full_attention_interval=2, nextn_predict_layers=2, **state)
    assert state_bytes(predicting) == (elements * 4, 0, 0, 0), "layers that only predict have no state"
    named = header_of(shape, "x", **{"attention.recurrent_layers": (False, True, True, False)}, **state)
    assert state_bytes(named) == (0, elements * 4, elements * 4, 0)
    everywhere = header_of(shape, "x", nextn_predict_layers=1, **state)
    assert state_bytes(everywhere) == (elements * 4,) * 3 + (0,)


def test_earlier_states_are_kept_where_llama_cpp_can_and_they_are_small():
    state = {"ssm.inner_size": 512, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.group_count": 1}
    keys = {"full_attention_interval": 2, **state}
    known = header_of(Shape("qwen35", 4, 256, 4, 2, 64, 512, 1000), "x", **keys)
    assert snapshots(header_of(Shape("falcon-h1", 4, 256, 4, 2, 64, 512, 1000), "x", **keys)) == 0
    assert snapshots(QWEN) == 0
    one = sum(state_bytes(known))
    assert one > 0
    for weights, kept in ((1, 1), (3 * 4 * one, 3), (10**12, 8)):
        assert snapshots(replace(known, tensor_bytes=weights)) == kept
    settings = Settings(256)
    without = ModelShape(known).footprint(settings).host.kv_bytes
    assert ModelShape(known).footprint(replace(settings, snapshots=5)).host.kv_bytes == without + 5 * one


def test_prediction_layers_count_where_they_are_read():
    header = header_of(Shape("llama", 4, 256, 4, 2, 64, 512, 1000), "x", nextn_predict_layers=1)
    last = sum(size for name, size in header.tensor_sizes.items() if name.startswith("blk.3."))
    assert last > 0
    for layers in (0, 2, 5):
        plain = ModelShape(header).footprint(Settings(256), layers)
        read = ModelShape(header).footprint(Settings(256, prediction=True), layers)
        assert read.total_bytes == plain.total_bytes + last
    # A file of such layers alone names all layers of its target.
    alone = {name: size for name, size in header.tensor_sizes.items() if not name.startswith("blk.")}
    alone |= {name: size for name, size in header.tensor_sizes.items() if name.startswith("blk.3.")}
    beside = sizes(replace(header, tensor_sizes=alone), context=256)
    assert beside.weights_bytes == sum(alone.values())
    assert beside.kv_bytes == 256 * 256 * 2
    one = Machine(64 * GIB)
    plans = [propose_pair(header, None, EngineOptions(), one, prediction=flag) for flag in (False, True)]
    assert plans[1].target.total_bytes == plans[0].target.total_bytes + last


def test_a_header_that_says_nothing_has_no_memory_to_speak_of(tmp_path: Path):
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "novel"}, tensors=()))
    assert sizes(read_header(path), context=8192).total_bytes < 13 * MIB


def test_a_model_in_several_files_counts_whole(tmp_path: Path):
    tensors = (("blk.0.ffn_up.weight", (64, 64), 8),)
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(gguf_bytes({"split.count": 2}))
    alone = sizes(read_part(first), context=256).weights_bytes
    second = gguf_bytes({"split.count": 2, "split.no": 1}, tensors=tensors)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    for header in (read_header(first), read_part(first)):
        assert sizes(header, context=256).weights_bytes == alone + 64 * 64 // 32 * 34


def test_layers_move_to_the_gpu_from_the_last_on():
    shape = ModelShape(SMALL_QWEN)
    settings = Settings(4096, repacked=AVX2)
    nothing = shape.footprint(settings)
    assert nothing.gpu.total_bytes == 0
    before = nothing
    for layers in range(1, 30):
        now = shape.footprint(settings, layers)
        assert now.gpu.total_bytes > before.gpu.total_bytes
        assert now.host.needed_bytes < before.host.needed_bytes + 2 * MIB
        before = now
    table = SMALL_QWEN.tensor_sizes["token_embd.weight"]
    assert before.host.weights_bytes == table, "tokens are looked up in the system's memory"
    assert before.gpu.weights_bytes == SMALL_QWEN.tensor_bytes, "the output has a copy of the table"
    assert before.host.repacked_bytes == before.host.kv_bytes == 0
    assert before.host.output_bytes == nothing.host.output_bytes


# --- plans


def pair(target: GGUFHeader, draft: GGUFHeader | None, ram: float, vram: float, /, **options: object) -> Plan:
    free = Machine(int(ram * GIB), int(vram * GIB), 1 if vram else 0, repacked=AVX2)
    return propose_pair(target, draft, EngineOptions(**options), free)


@pytest.mark.parametrize(
    ("ram", "vram", "context", "target", "draft"),
    [
        # Qwen3-8B Q4_K has 36 layers and the output, 0.6B 28 and the output.
        (8, 0, 8192, 0, 0),
        (16, 0, 8192, 0, 0),
        (8, 4, 8192, (18, 30), 0),
        (8, 6, 8192, 37, (1, 10)),
        (8, 8, 8192, 37, 29),
        (16, 12, 8192, 37, 29),
        (32, 24, 8192, 37, 29),
    ],
)
def test_qwen_8b_with_its_small_sister(
    ram: int, vram: int, context: int, target: int | tuple[int, int], draft: int | tuple[int, int]
):
    plan = pair(QWEN, SMALL_QWEN, ram, vram)
    assert plan.fits
    assert plan.context == plan.draft_context == context
    for layers, expected in ((plan.gpu_layers, target), (plan.draft_gpu_layers, draft)):
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert low <= layers <= high
    assert plan.draft is not None
    on_gpu = plan.target.gpu.total_bytes + plan.draft.gpu.total_bytes
    assert on_gpu <= max(0, vram * GIB - GPU_RESERVE)
    assert plan.target.host.needed_bytes + plan.draft.host.needed_bytes <= ram * GIB
    # Said wherever there is a GPU that the draft model is not all on.
    assert bool(plan.advice) == (vram > 0 and plan.draft_gpu_layers < 29)


@pytest.mark.parametrize(
    ("ram", "vram"), [(ram, vram) for ram in (8, 16, 32) for vram in (0, 4, 6, 8, 12, 24)]
)
@pytest.mark.parametrize("context", [None, 4096, 32768, 131072])
def test_llama_3b_with_1b_is_within_the_machine_or_told_what_would_be(
    ram: int, vram: int, context: int | None
):
    plan = pair(LLAMA, SMALL_LLAMA, ram, vram, context=context)
    assert plan.draft is not None
    host = plan.target.host.needed_bytes + plan.draft.host.needed_bytes
    gpu = plan.target.gpu.total_bytes + plan.draft.gpu.total_bytes
    if plan.fits:
        assert host <= ram * GIB
        assert gpu <= vram * GIB
    else:
        assert host > ram * GIB
        assert context is not None
        assert "use --context" in plan.advice
    assert pair(LLAMA, None, ram, vram, context=context).gpu_layers == plan.gpu_layers, "the target first"


def test_a_context_that_nobody_asked_for_is_made_to_fit():
    plan = pair(QWEN, None, 5.2, 0)
    assert plan.fits
    assert 2048 <= plan.context < 8192
    assert plan.context % 256 == 0
    more = pair(QWEN, None, 5.2, 0, context=plan.context + 256)
    assert not more.fits
    assert f"use --context {plan.context} or less" in more.advice
    # But not to almost nothing, for the sake of a draft model.
    least = next(ram / 10 for ram in range(40, 90) if pair(QWEN, SMALL_QWEN, ram / 10, 0).fits)
    assert pair(QWEN, SMALL_QWEN, least, 0).context >= SMALLEST_PAIR_CONTEXT


def test_each_thing_that_is_advised_makes_it_fit():
    plan = pair(QWEN, SMALL_QWEN, 8, 6, context=40960)
    assert not plan.fits
    assert plan.advice.startswith("Qwen3-8B.gguf with the draft model Qwen3-0.6B.gguf needs ")
    assert plan.advice.endswith(".")
    assert "--kv-type q8_0" in plan.advice
    assert pair(QWEN, SMALL_QWEN, 8, 6, context=40960, kv_type="q8_0").fits
    assert "--draft suffix" in plan.advice
    assert pair(QWEN, None, 8, 6, context=40960).fits
    smaller = int(plan.advice.split("--context ")[1].split()[0])
    assert pair(QWEN, SMALL_QWEN, 8, 6, context=smaller).fits
    assert not pair(QWEN, SMALL_QWEN, 8, 6, context=smaller + 256).fits


def test_a_smaller_draft_model_is_advised_where_one_would_do():
    big = header_of(LLAMA_3B, "big-draft.gguf")
    plan = pair(QWEN, big, 7, 0, context=4096)
    assert not plan.fits
    assert "a draft model of 1." in plan.advice
    assert pair(QWEN, SMALL_QWEN, 7, 0, context=4096).fits


def test_layers_that_the_user_chose_are_taken_or_refused():
    chosen = pair(QWEN, None, 16, 8, gpu_layers=10)
    assert chosen.fits
    assert chosen.gpu_layers == 10
    plan = pair(QWEN, None, 16, 4, gpu_layers=99)
    assert plan.gpu_layers == 37
    assert not plan.fits
    assert "of GPU memory" in plan.advice
    fewer = int(plan.advice.split("--gpu-layers ")[1].split()[0])
    assert pair(QWEN, None, 16, 4, gpu_layers=fewer).fits
    draft = pair(QWEN, SMALL_QWEN, 16, 5.6, context=8192, draft=DraftOptions(gpu_layers=99))
    assert not draft.fits
    assert "layers of the draft model on the GPU" in draft.advice
    assert pair(QWEN, SMALL_QWEN, 16, 8, draft=DraftOptions(gpu_layers=0)).advice == "", "as it was asked for"


def test_a_small_window_makes_a_small_draft_cache():
    whole = pair(QWEN, SMALL_QWEN, 32, 0, context=32768)
    window = pair(QWEN, SMALL_QWEN, 32, 0, context=32768, draft=DraftOptions(window=1024))
    assert whole.draft is not None
    assert window.draft is not None
    assert window.draft_context == 1024
    assert window.draft.host.kv_bytes * 32 == whole.draft.host.kv_bytes
    # The draft model's cache is not quantized with the target's.
    quantized = pair(QWEN, SMALL_QWEN, 32, 0, context=32768, kv_type="q4_0")
    assert quantized.draft == whole.draft


def test_memory_that_is_shared_is_not_counted_twice():
    own = Machine(6 * GIB, 6 * GIB, 1)
    assert propose_pair(QWEN, SMALL_QWEN, EngineOptions(context=8192), own).fits
    shared = replace(own, shared=True)
    assert own.free_bytes == 2 * shared.free_bytes
    assert not propose_pair(QWEN, SMALL_QWEN, EngineOptions(context=8192), shared).fits
    assert propose_pair(QWEN, SMALL_QWEN, EngineOptions(context=1024), replace(shared, free_ram=7 * GIB)).fits


def test_what_fits_nowhere_is_refused_in_one_sentence():
    machine = Machine(2 * GIB)
    with pytest.raises(NotEnoughMemoryError) as caught:
        plan_pair(QWEN, None, EngineOptions(), machine)
    assert caught.value.exit_code == 5
    sentence = str(caught.value)
    assert "2.0 GiB are free; choose a smaller model or close other programs." in sentence
    assert sentence.count(". ") == 0
