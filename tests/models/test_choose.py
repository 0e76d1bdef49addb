"""Which size of a family suits which machine."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from localspec.models import choose as choosing
from localspec.models.choose import Capacity, best, choose, estimated_bytes
from localspec.models.entries import ModelEntry, Shape
from localspec.models.families import Catalogue
from tests.models.registries import family

GIB = 2**30
DENSE = ("0.6b", "1.7b", "4b", "8b", "14b", "32b")

# Rows: GB of GPU memory. Columns: GB of system memory. Nothing measured: ordinary memory is assumed.
WITH_A_MIXTURE = """
          8              16             32
    0     4b       cpu   8b       cpu   30b-a3b  cpu
    4     8b       both  8b       both  30b-a3b  both
    6     8b       both  8b       both  30b-a3b  both
    8     8b       gpu   8b       gpu   30b-a3b  both
    12    14b      gpu   30b-a3b  both  30b-a3b  both
    16    30b-a3b  both  30b-a3b  both  30b-a3b  both
    24    32b      gpu   32b      gpu   32b      gpu
"""
DENSE_ONLY = """
          8              16             32
    0     4b       cpu   8b       cpu   8b       cpu
    4     8b       both  8b       both  8b       both
    6     8b       both  8b       both  8b       both
    8     8b       gpu   8b       gpu   8b       gpu
    12    14b      gpu   14b      gpu   14b      gpu
    16    14b:Q6_K gpu   14b:Q6_K gpu   14b:Q6_K gpu
    24    32b      gpu   32b      gpu   32b      gpu
"""
# Apple's GPUs may take two thirds of a small memory, three quarters of a large one.
SHARED = {8: ("4b", 68e9), 16: ("8b", 100e9), 32: ("30b-a3b", 150e9), 64: ("30b-a3b", 400e9)}


def cells(table: str) -> list[tuple[int, int, str, str]]:
    head, *rows = (line.split() for line in table.strip().splitlines())
    return [
        (int(row[0]), int(ram), name, place)
        for row in rows
        for ram, name, place in zip(head, row[1::2], row[2::2], strict=True)
    ]


def machine(vram: int, ram: int) -> Capacity:
    # A card has a little less than its box says.
    return Capacity(
        ram=ram * GIB - 200 * 2**20, vram=vram * GIB - 8 * 2**20 if vram else 0, gpus=min(vram, 1)
    )


@pytest.mark.parametrize(("vram", "ram", "name", "place"), cells(WITH_A_MIXTURE))
def test_a_family_on_machines_of_every_size(vram: int, ram: int, name: str, place: str) -> None:
    choice = choose(family(), machine(vram, ram))
    assert (choice.entry.name, choice.place) == (f"tall-{name}", place)
    assert choice.context == 8192
    assert choice.suits


@pytest.mark.parametrize(("vram", "ram", "name", "place"), cells(DENSE_ONLY))
def test_a_family_without_a_mixture_of_experts(vram: int, ram: int, name: str, place: str) -> None:
    choice = choose(family(DENSE), machine(vram, ram))
    assert (choice.entry.name, choice.place) == (f"tall-{name}", place)


@pytest.mark.parametrize("ram", SHARED)
def test_a_gpu_that_shares_the_systems_memory(ram: int) -> None:
    name, bandwidth = SHARED[ram]
    share = 2 / 3 if ram < 32 else 3 / 4
    shared = Capacity(ram * GIB, int(ram * GIB * share), 1, shared=True, vram_bandwidth=bandwidth)
    choice = choose(family(), shared)
    assert (choice.entry.name.partition(":")[0], choice.place) == (f"tall-{name}", "gpu")
    assert f"{ram} GB of memory that this machine's GPU shares" in choice.reason
    assert choice.tokens_per_second is not None


def test_more_memory_never_means_a_smaller_model() -> None:
    for sizes in (DENSE, tuple(reversed(("30b-a3b", *DENSE)))):
        whole = family(sizes)
        for ram in (4, 8, 16, 32, 64):
            found = [
                choose(whole, machine(vram, ram)).entry.shape for vram in (2, 4, 6, 8, 10, 12, 16, 24, 48)
            ]
            counts = [shape.weights for shape in found if shape]
            assert counts == sorted(counts), ram


def test_what_is_chosen_fits() -> None:
    whole = family()
    for vram in (0, 2, 4, 6, 8, 12, 16, 24):
        for ram in (4, 8, 16, 32):
            choice = choose(whole, machine(vram, ram))
            shape = choice.entry.shape
            assert shape is not None
            needed = estimated_bytes(choice.entry) + 8192 * shape.cache_bytes
            if choice.place == "gpu":
                assert needed < (vram - 0.5) * GIB
            elif choice.suits:
                assert needed < (vram + ram - 2.5) * GIB


# --- speed


def test_a_slow_memory_means_a_smaller_model() -> None:
    assert choose(family(DENSE), Capacity(64 * GIB, ram_bandwidth=100e9)).entry.name == "tall-14b"
    assert choose(family(DENSE), Capacity(64 * GIB, ram_bandwidth=400e9)).entry.name == "tall-32b"
    assert choose(family(DENSE), Capacity(64 * GIB, ram_bandwidth=25e9)).entry.name == "tall-4b"
    assert choose(family(), Capacity(64 * GIB, ram_bandwidth=25e9)).entry.name == "tall-30b-a3b"


def test_a_model_that_always_thinks_must_be_quicker() -> None:
    patient = Capacity(16 * GIB, ram_bandwidth=50e9)
    assert choose(family(DENSE), patient).entry.name == "tall-8b"
    assert choose(family(DENSE, 'thinking = "always"'), patient).entry.name == "tall-4b"


def test_the_expected_speed_is_told_only_where_the_memory_was_measured() -> None:
    assert choose(family(), Capacity(16 * GIB)).tokens_per_second is None
    choice = choose(family(), Capacity(16 * GIB, ram_bandwidth=60e9))
    assert choice.tokens_per_second == pytest.approx(0.7 * 60e9 / 5_027_783_488)
    assert "about 8 tokens/s" in choice.reason
    half = Capacity(8 * GIB, 6 * GIB, 1, ram_bandwidth=60e9)
    assert choose(family(), half).tokens_per_second is None
    whole = Capacity(8 * GIB, 6 * GIB, 1, ram_bandwidth=60e9, vram_bandwidth=200e9)
    assert choose(family(), whole).tokens_per_second is not None


def test_a_tiny_model_on_a_gpu_is_not_said_to_be_as_quick_as_its_memory() -> None:
    speed = choose(family(("0.6b",)), Capacity(64 * GIB, 80 * GIB, 1, vram_bandwidth=4e12)).tokens_per_second
    assert speed is not None
    assert 200 < speed < 400


def test_a_gpu_with_its_own_bandwidth_takes_a_better_quantization_only_where_that_is_quick() -> None:
    quick, slow = (Capacity(32 * GIB, 16 * GIB, 1, vram_bandwidth=speed) for speed in (500e9, 150e9))
    assert choose(family(("8b",)), quick).entry.name == "tall-8b:Q8_0"
    assert choose(family(("8b",)), slow).entry.name == "tall-8b"
    assert "in a better quantization than Q4_K_M" in choose(family(("8b",)), quick).reason


def test_half_precision_is_never_chosen_by_itself() -> None:
    text = family(("0.6b",))
    small, (file,) = text.sizes[0], text.files["tall-0.6b"]
    whole = ModelEntry(
        f"{small.name}:F16", small.sources, size=1_200_000_000, quantization="F16", shape=small.shape
    )
    choice = choose(replace(text, files={small.name: (file, whole)}), machine(24, 32))
    assert choice.entry == small


# --- words, and the ends of the scale


@pytest.mark.parametrize(
    ("capacity", "reason"),
    [
        (machine(8, 8), "tall-8b Q4_K_M (5.03 GB) fits this machine's 8 GB of GPU memory."),
        (
            machine(6, 8),
            (
                "tall-8b Q4_K_M (5.03 GB) does not fit the 6 GB of GPU memory as a whole, and is fast enough "
                "with a part of it on the CPU."
            ),
        ),
        (
            machine(0, 8),
            "tall-4b Q4_K_M (2.50 GB) fits this machine's 8 GB of memory, and is fast enough on its CPU.",
        ),
    ],
)
def test_the_reason_is_a_sentence(capacity: Capacity, reason: str) -> None:
    assert choose(family(), capacity).reason == reason


def test_where_nothing_fits_it_is_the_smallest_with_a_warning() -> None:
    choice = choose(family(), Capacity(2 * GIB))
    assert choice.entry.name == "tall-0.6b"
    assert not choice.suits
    assert re.fullmatch(
        r"tall-0\.6b Q8_0 \(639\.4 MB\) is the smallest one, and it may not fit: it takes [\d.]+ GB, and the "
        r"system leaves nothing of this machine's 2 GB of memory\.",
        choice.reason,
    )
    assert "leaves about 1.61 GB of this machine's 4 GB" in choose(family(), Capacity(4 * GIB)).reason


def test_where_everything_is_slow_it_is_the_smallest_with_a_warning() -> None:
    choice = choose(family(), Capacity(32 * GIB, ram_bandwidth=1e9))
    assert choice.entry.name == "tall-0.6b"
    assert not choice.suits
    assert choice.reason.endswith("even that will be slow on this machine.")


@pytest.mark.parametrize(
    "capacity",
    [
        Capacity(0),
        Capacity(1),
        Capacity(32 * GIB, 0, 1),
        Capacity(32 * GIB, 100 * 2**20, 8),
        Capacity(32 * GIB, ram_bandwidth=0.0),
        Capacity(2**60, 2**60, 1000),
    ],
)
def test_odd_machines_get_an_answer(capacity: Capacity) -> None:
    assert choose(family(), capacity).reason


def test_a_gpu_too_small_to_matter_is_left_alone() -> None:
    assert choose(family(DENSE), Capacity(16 * GIB, GIB, 1)).place == "cpu"


# --- over families


def test_the_best_of_all_is_the_largest_that_suits() -> None:
    small = family(("0.6b", "4b"), "recommended = true", "small")
    large = family(("8b", "32b"), "recommended = true", "large")
    ignored = family(("14b",), "", "ignored")
    known = Catalogue({}, {one.name: one for one in (small, large, ignored)})
    expected = {0: "small-4b", 8: "large-8b", 12: "large-8b", 24: "large-32b"}
    for vram, name in expected.items():
        choice = best(known, machine(vram, 8))
        assert choice is not None
        assert choice.entry.name.partition(":")[0] == name
    alike = family(("8b",), "recommended = true", "alike")
    for first, second in ((large, alike), (alike, large)):
        choice = best(Catalogue({}, {one.name: one for one in (first, second)}), machine(8, 8))
        assert choice is not None
        assert choice.entry.family == first.name, "the first of two that are alike"
    nothing = best(known, Capacity(GIB))
    assert nothing is not None
    assert (nothing.entry.name, nothing.suits) == ("small-0.6b", False)
    assert best(Catalogue({}, {ignored.name: ignored}), machine(24, 32)) is None


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ("Q4_K_M", 4.9),
        ("q8_0", 8.5),
        ("UD-Q4_K_XL", 5.1),
        ("IQ3_M", 4.3),
        ("Q3_K_XL", 4.3),
        ("", 4.9),
        ("XYZ", 4.9),
    ],
)
def test_the_size_of_a_file_is_estimated_from_its_quantization(quantization: str, bits: float) -> None:
    entry = ModelEntry("x", (), quantization=quantization, shape=Shape(8_000_000_000, 8_000_000_000, 0))
    assert estimated_bytes(entry) == int(8_000_000_000 * bits / 8)
    assert estimated_bytes(ModelEntry("x", (), size=7)) == 7
    assert estimated_bytes(ModelEntry("x", ())) == 0


def test_estimates_are_near_the_sizes_of_real_files() -> None:
    for files in family().files.values():
        for entry in files:
            if entry.size is not None and entry.shape is not None:
                estimated = entry.shape.weights * choosing._bits(entry.quantization) / 8
                assert estimated == pytest.approx(entry.size, rel=0.03), entry.name
