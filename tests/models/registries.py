"""A family as it is shipped, for tests that shall not depend on what is shipped."""

from __future__ import annotations

from pathlib import Path

from localspec.models import registry
from localspec.models.families import Family

# name: parameters, weights, weights a token, bytes of cache a token, bytes of each file
SIZES = {
    "0.6b": ("0.6B", 596_049_920, None, 114_688, {"Q8_0": 639_446_688}),
    "1.7b": ("1.7B", 1_720_574_976, None, 114_688, {"Q8_0": 1_834_426_016}),
    "4b": ("4B", 4_022_468_096, None, 147_456, {"Q4_K_M": 2_497_280_256, "Q8_0": 4_280_404_704}),
    "8b": (
        "8B",
        8_190_735_360,
        None,
        147_456,
        {"Q4_K_M": 5_027_783_488, "Q6_K": 6_725_899_040, "Q8_0": None},
    ),
    "14b": ("14B", 14_768_307_200, None, 163_840, {"Q4_K_M": 9_001_752_960, "Q6_K": 12_121_937_920}),
    "30b-a3b": ("30B", 30_532_122_624, 3_345_000_000, 98_304, {"Q4_K_M": 18_556_685_856}),
    "32b": ("32B", 32_762_123_264, None, 262_144, {"Q4_K_M": 19_762_149_120}),
}


def family_text(name: str = "tall", sizes: tuple[str, ...] = tuple(SIZES), head: str = "") -> str:
    """A family as TOML; `head` is put into its first table."""
    lines = [f"[families.{name}]", 'description = "Many sizes."', 'license = "Apache-2.0"', "context = 40960"]
    lines.append(head)
    for size in sizes:
        parameters, weights, active, cache, files = SIZES[size]
        lines += [f'[families.{name}.sizes."{size}"]', f'parameters = "{parameters}"', f"weights = {weights}"]
        lines += [f"active = {active}"] if active else []
        lines += [f"cache_bytes = {cache}", f'[families.{name}.sizes."{size}".files]']
        for quantization, count in files.items():
            source = f'source = "hf:o/{name}-{size}/{name}-{size}-{quantization}.gguf"'
            lines.append(f"{quantization} = {{ {source}{f', size = {count}' if count else ''} }}")
    return "\n".join(lines) + "\n"


def write_user_file(text: str) -> Path:
    """The user's own registry."""
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def family(sizes: tuple[str, ...] = tuple(SIZES), head: str = "", name: str = "tall") -> Family:
    """The family, read from a file."""
    return registry.load(write_user_file(family_text(name, sizes, head))).families[name]
