"""The script behind `make`: which backend is chosen, and what is said when something is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from localspec.diagnosis import backends

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def setup_env() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_env", ROOT / "scripts" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def having(*programs: str) -> Callable[..., bool]:
    return lambda program, *args: program in programs


@pytest.mark.parametrize(
    ("programs", "vulkan_parts", "system", "machine", "accel"),
    [
        ((), False, "Linux", "x86_64", "cpu"),
        (("nvcc",), False, "Linux", "x86_64", "cpu"),
        (("nvidia-smi",), False, "Linux", "x86_64", "cpu"),
        (("nvidia-smi", "nvcc"), False, "Linux", "x86_64", "cuda"),
        (("nvidia-smi", "nvcc", "glslc"), True, "Linux", "x86_64", "cuda"),
        (("rocminfo", "hipcc"), True, "Linux", "x86_64", "rocm"),
        (("rocminfo", "hipcc"), False, "Linux", "x86_64", "cpu"),
        (("rocminfo", "glslc"), True, "Linux", "x86_64", "vulkan"),
        (("rocminfo",), True, "Linux", "x86_64", "cpu"),
        (("hipcc",), False, "Linux", "x86_64", "cpu"),
        (("glslc",), True, "Linux", "x86_64", "vulkan"),
        (("glslc",), False, "Linux", "x86_64", "cpu"),
        ((), True, "Linux", "x86_64", "cpu"),
        ((), False, "Darwin", "arm64", "metal"),
        ((), False, "Darwin", "x86_64", "cpu"),
    ],
)
def test_the_backend_is_the_best_that_can_be_built_and_used(
    setup_env: ModuleType,
    programs: tuple[str, ...],
    vulkan_parts: bool,
    system: str,
    machine: str,
    accel: str,
) -> None:
    chosen, why = setup_env.detect_accel(
        having(*programs),
        system=system,
        machine=machine,
        headers=lambda: vulkan_parts,
        render=lambda: vulkan_parts,
    )
    assert chosen == accel
    assert why


def test_a_gpu_without_its_toolkit_is_pointed_out(setup_env: ModuleType) -> None:
    _, why = setup_env.detect_accel(having("nvidia-smi"), system="Linux", render=lambda: False)
    assert "CUDA toolkit" in why
    _, why = setup_env.detect_accel(having("rocminfo"), system="Linux", render=lambda: True)
    assert "hipcc" in why


@pytest.mark.parametrize(
    ("accel", "word"),
    [
        ("cuda", "nvcc"),
        ("rocm", "hipcc"),
        ("vulkan", "glslc"),
        ("metal", "macOS"),
        ("tpu", "unknown"),
        ("wheel-cu99", "cu124"),
    ],
)
def test_a_backend_that_cannot_be_built_is_refused(setup_env: ModuleType, accel: str, word: str) -> None:
    with pytest.raises(setup_env.SetupError, match=word):
        setup_env.check_accel(accel, having(), system="Linux")


def test_a_missing_compiler_is_named(setup_env: ModuleType) -> None:
    with pytest.raises(setup_env.SetupError, match="build-essential"):
        setup_env.check_compiler(having("cmake"))
    with pytest.raises(setup_env.SetupError, match="ACCEL=wheel"):
        setup_env.check_compiler(having())
    setup_env.check_compiler(having("clang++"))


def test_a_program_that_is_there_but_fails_does_not_count(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "nvidia-smi"
    shim.write_text("#!/bin/sh\nexit 9\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not setup_env.works("nvidia-smi")
    assert not setup_env.works("nvcc")
    assert setup_env.works(sys.executable, "-c", "")


def test_the_users_cmake_options_win(setup_env: ModuleType) -> None:
    options = setup_env.cmake_args("cuda", "-DGGML_CUDA=off -DGGML_NATIVE=off").split()
    assert options.index("-DGGML_CUDA=on") < options.index("-DGGML_CUDA=off")
    assert "-DGGML_VULKAN=off" in options


def test_wheels_of_different_backends_do_not_mix(setup_env: ModuleType, private_home: Path) -> None:
    assert setup_env.wheel_folder("cpu") != setup_env.wheel_folder("cuda")
    assert private_home in setup_env.wheel_folder("cpu").parents


def test_the_first_error_of_a_log_is_shown(setup_env: ModuleType) -> None:
    log = ["fine", "  CMake Error at CMakeLists.txt:178:", "  CUDA::cublas not found", *["more"] * 20]
    assert setup_env.what_went_wrong(log)[:2] == log[1:3]
    assert setup_env.what_went_wrong(["a"] * 20 + ["b"]) == ["a"] * 14 + ["b"]


@pytest.mark.parametrize(
    ("accel", "system", "machine", "kind"),
    [
        ("wheel", "Linux", "x86_64", "cpu"),
        ("wheel", "Darwin", "arm64", "metal"),
        ("wheel", "Darwin", "x86_64", "cpu"),
        ("wheel-cu124", "Linux", "x86_64", "cu124"),
        ("wheel-hip-radeon", "Windows", "AMD64", "hip-radeon"),
        ("cpu", "Linux", "x86_64", None),
        ("metal", "Darwin", "arm64", None),
    ],
)
def test_the_kind_of_wheel(
    setup_env: ModuleType, accel: str, system: str, machine: str, kind: str | None
) -> None:
    setup_env.check_accel(accel, lambda *_command: True, system="Darwin")
    assert setup_env.wheel_kind(accel, system=system, machine=machine) == kind


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "ERROR: Could not find a version that satisfies x (from versions: 0.3.4, 0.3.35)",
            "0.3.35 is the newest",
        ),
        ("ERROR: ... (from versions: none)", "no ready-made wheel of kind cpu for"),
        ("WARNING: Retrying (Retry(total=4\nERROR: ... (from versions: none)", "cannot be reached"),
        ("ERROR: No space left on device", ""),
    ],
)
def test_why_there_is_no_wheel(setup_env: ModuleType, log: str, words: str) -> None:
    told = setup_env.wheel_problem(log, "cpu", "llama-cpp-python~=0.3.36")
    assert words in told
    assert bool(told) == bool(words)


def test_doctor_and_the_manual_know_the_same_wheels(setup_env: ModuleType) -> None:
    manual = (ROOT / "docs" / "INSTALL.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in manual for kind in setup_env.WHEELS)
    assert setup_env.WHEEL_INDEX == backends.WHEEL_INDEX
    known = {f"cu{version.replace('.', '')}" for version in backends._CUDA_WHEELS}
    assert known == set(setup_env.CUDA_WHEELS)


@pytest.fixture
def own_place(setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script with a Python whose packages go into `target`, and with the wheels of `wheels` alone."""
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "LOG", tmp_path / "setup.log")
    monkeypatch.setattr(setup_env, "PYTHON", Path(sys.executable))
    (tmp_path / "wheels").mkdir()
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_NO_INDEX": "1",
        "PIP_TARGET": str(tmp_path / "target"),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def put_wheel(folder: Path, version: str) -> None:
    stem = f"llama_cpp_python-{version}"
    about = f"Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llama_cpp/__init__.py", f'__version__ = "{version}"\n')
        wheel.writestr(f"{stem}.dist-info/METADATA", about)
        wheel.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def test_a_ready_made_wheel_is_installed_without_a_compiler(setup_env: ModuleType, own_place: Path) -> None:
    put_wheel(own_place / "wheels", "0.3.35")
    put_wheel(own_place / "wheels", "0.3.37")
    setup_env.install_llama("wheel", "llama-cpp-python~=0.3.36")
    assert (own_place / "target" / "llama_cpp" / "__init__.py").read_text() == '__version__ = "0.3.37"\n'


def test_wheels_that_are_too_old_are_told(setup_env: ModuleType, own_place: Path) -> None:
    put_wheel(own_place / "wheels", "0.3.35")
    with pytest.raises(
        setup_env.SetupError, match=r"0\.3\.35 is the newest .* needs llama-cpp-python~=0\.3\.36"
    ):
        setup_env.install_llama("wheel-vulkan", "llama-cpp-python~=0.3.36")


def test_an_index_that_cannot_be_reached_is_told(
    setup_env: ModuleType, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setattr(setup_env, "WHEEL_INDEX", "http://127.0.0.1:9/whl/")
    with pytest.raises(
        setup_env.SetupError, match=r"whl/cpu, where ready-made wheels are, cannot be reached"
    ):
        setup_env.install_llama("wheel", "llama-cpp-python~=0.3.36")


def make(*args: str, path: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-n", "-f", str(ROOT / "Makefile"), *args]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def python_shim(folder: Path, name: str, script: str) -> Path:
    shim = folder / name
    shim.write_text(f"#!/bin/sh\n{script}\n")
    shim.chmod(0o755)
    return shim


def test_make_takes_the_newest_python_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python_shim(tmp_path, "python3.13", "exit 127")
    python_shim(tmp_path, "python3.12", f'exec "{sys.executable}" "$@"')
    done = make("env", path=f"{tmp_path}:/usr/bin:/bin")
    assert '"python3.12" scripts/setup_env.py' in done.stdout


def test_make_says_which_python_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("python3.13", "python3.12", "python3.11", "python3", "python"):
        python_shim(tmp_path, name, "exit 1")
    command = ["make", "-f", str(ROOT / "Makefile"), "env"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
