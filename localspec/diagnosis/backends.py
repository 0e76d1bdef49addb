"""Which backend llama.cpp could use on a machine, and the very command that gets it: from the facts alone.

Options and names of ready-made wheels are those that llama-cpp-python documents; docs/INSTALL.md says which
have been tried.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from localspec.diagnosis.facts import Machine, installed_version

WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl/"
"""Ready-made wheels of llama-cpp-python, one folder a kind."""

_CUDA_WHEELS = ("13.2", "13.0", "12.5", "12.4", "12.3", "12.2", "12.1", "11.8")
"""Versions of CUDA that there are wheels for, newest first."""

_OPTIONS = {
    "CUDA": "-DGGML_CUDA=on",
    "ROCm": "-DGGML_HIP=on",
    "Vulkan": "-DGGML_VULKAN=on",
    "Metal": "-DGGML_METAL=on",
    "SYCL": "-DGGML_SYCL=on -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx",
}
_ACCELS = {"CUDA": "cuda", "ROCm": "rocm", "Vulkan": "vulkan", "Metal": "metal", "MTL": "metal"}
"""Values of ACCEL by llama.cpp's names of its backends; it has had two for Metal."""

_CARD_BANDWIDTH = 250e9
"""Bytes a second that the memory of a graphics card of the last years gives at least."""
_CARD_GAIN, _LEAST_GAIN, _MOST_GAIN = 5.0, 2.0, 20.0
"""Of a card where the system's memory was not measured, and the limits of what is told."""
_METAL_GAIN, _SHARED_GAIN, _OTHER_BACKEND_GAIN = 2.0, 1.2, 1.1
"""Of GPUs that read the same memory as the CPU, and of a maker's own backend in place of Vulkan."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A backend that could be used, and is not.

    Attributes:
        backend: its name.
        reason: why, the first half of a sentence.
        needs: what has to be installed first, "" for nothing.
        command: gets it; that of make in a checkout, else of pip.
        pip: gets it with pip.
        gain: how many times faster replies are likely to be.
    """

    backend: str
    reason: str
    needs: str
    command: str
    pip: str
    gain: float


def better_backend(machine: Machine, bandwidth: float | None = None) -> Upgrade | None:
    """The backend to change to; None where there is nothing better, or nothing is known of it.

    Args:
        machine: what there is.
        bandwidth: of the system's memory in bytes a second, where it was measured.
    """
    backend, graphics = machine.backend.lower(), machine.graphics
    if machine.gpus:
        if graphics.nvidia and backend == "vulkan" and "nvcc" in graphics.tools:
            return _upgrade(
                machine, "CUDA", "CUDA is the faster backend for this GPU", "", _OTHER_BACKEND_GAIN
            )
        return None
    card = min(_MOST_GAIN, max(_LEAST_GAIN, _CARD_BANDWIDTH / bandwidth)) if bandwidth else _CARD_GAIN
    if graphics.nvidia:
        return _for_nvidia(machine, card)
    if machine.system == "Darwin":
        if machine.architecture != "arm64":
            return None
        return _upgrade(machine, "Metal", "llama.cpp was built without Metal", "", _METAL_GAIN)
    if graphics.rocm:
        needs = "" if "hipcc" in graphics.tools or not machine.compiler else "ROCm's HIP SDK (hipcc)"
        return _upgrade(machine, "ROCm", "llama.cpp does not use the AMD GPU that ROCm sees", needs, card)
    if "AMD" in graphics.makers:
        # Most are parts of the processor; a card gains more than is said here.
        return _upgrade(
            machine, "Vulkan", "llama.cpp does not use the AMD GPU", _vulkan(machine), _METAL_GAIN
        )
    if "Intel" in graphics.makers and "icpx" in graphics.tools:
        reason = "llama.cpp does not use the Intel GPU, and Intel's compiler is here"
        return _upgrade(machine, "SYCL", reason, "", _SHARED_GAIN)
    if "Intel" in graphics.makers:
        # It reads the same memory as the CPU: prompts are faster, replies hardly.
        return _upgrade(
            machine, "Vulkan", "llama.cpp does not use the Intel GPU", _vulkan(machine), _SHARED_GAIN
        )
    if graphics.vulkan and "NVIDIA" not in graphics.makers:
        reason = "a Vulkan driver is installed, and there may be a GPU"
        return _upgrade(machine, "Vulkan", reason, _vulkan(machine), _SHARED_GAIN)
    return None


def rebuild(machine: Machine) -> str:
    """The command that builds llama.cpp anew for this processor, with the backend that it has."""
    if _has_make(machine):
        # What is there is not built again otherwise.
        return f"make clean && make chat ACCEL={_ACCELS.get(machine.backend, 'cpu')}"
    return _pip(machine, _OPTIONS.get(machine.backend, ""))


def _for_nvidia(machine: Machine, gain: float) -> Upgrade:
    graphics = machine.graphics
    reason = f"llama.cpp does not use the GPU ({', '.join(graphics.nvidia or ())})"
    if "nvcc" in graphics.tools or not machine.compiler:
        return _upgrade(machine, "CUDA", reason, "", gain)
    if "glslc" in graphics.tools and graphics.vulkan:
        return _upgrade(machine, "Vulkan", f"{reason}, and what Vulkan needs is here", "", gain)
    return _upgrade(machine, "CUDA", reason, "the CUDA toolkit", gain)


def _vulkan(machine: Machine) -> str:
    if "glslc" in machine.graphics.tools or not machine.compiler:
        return ""
    return "glslc and the Vulkan headers (Debian, Ubuntu: apt install glslc libvulkan-dev spirv-headers)"


def _upgrade(machine: Machine, backend: str, reason: str, needs: str, gain: float) -> Upgrade:
    pip, make = _build(machine, backend) if machine.compiler else _wheel(machine, backend)
    if not machine.compiler and backend == "CUDA":
        needs = (
            f"the runtime libraries of CUDA {_cuda_of_wheel(machine) or _CUDA_WHEELS[-1]} (cudart, cublas)"
        )
    return Upgrade(backend, reason, needs, make if make and _has_make(machine) else pip, pip, gain)


def _has_make(machine: Machine) -> bool:
    return machine.checkout and machine.system != "Windows"


def _build(machine: Machine, backend: str) -> tuple[str, str]:
    """The commands of pip and of make ("" where make does not know the backend)."""
    make = f"make chat ACCEL={_ACCELS[backend]}" if backend in _ACCELS else ""
    return _pip(machine, _OPTIONS[backend]), make


def _pip(machine: Machine, options: str) -> str:
    install = f"{sys.executable} -m pip install --force-reinstall --no-cache-dir --no-deps {_wanted()}"
    if not options:
        return install
    if machine.system == "Windows":
        return f'$env:CMAKE_ARGS="{options}"; {install}'
    return f'CMAKE_ARGS="{options}" {install}' if " " in options else f"CMAKE_ARGS={options} {install}"


def _wheel(machine: Machine, backend: str) -> tuple[str, str]:
    """The same where there is no compiler: a ready-made wheel. SYCL has none; Vulkan serves the same GPUs."""
    kinds = {"ROCm": "hip-radeon" if machine.system == "Windows" else "rocm72", "Metal": "metal"}
    kind = kinds.get(backend, "vulkan")
    if backend == "CUDA":
        kind = f"cu{(_cuda_of_wheel(machine) or _CUDA_WHEELS[-1]).replace('.', '')}"
    fetch = f"--only-binary llama-cpp-python --extra-index-url {WHEEL_INDEX}{kind}"
    pip = f"{sys.executable} -m pip install --force-reinstall --no-deps {fetch} {_wanted()}"
    return pip, f"make chat ACCEL=wheel-{kind}"


def _cuda_of_wheel(machine: Machine) -> str | None:
    """The newest CUDA that there are wheels for and that the driver runs."""
    try:
        runs = _numbers(machine.graphics.cuda)
    except ValueError:
        return None
    return next((version for version in _CUDA_WHEELS if _numbers(version) <= runs), None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _wanted() -> str:
    version = installed_version("llama-cpp-python")
    return f"llama-cpp-python=={version}" if version else "llama-cpp-python"
