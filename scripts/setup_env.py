"""Make `.venv` ready for `make`: llama.cpp built for this machine, localspec installed, nothing done twice.

Runs on the bare Python that the Makefile found, so it uses the standard library alone. The state of the
environment is kept in `.venv/localspec.json`; when nothing has changed, the script ends at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STATE = VENV / "localspec.json"
LOG = VENV / "setup.log"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

BACKENDS = {"cuda": "GGML_CUDA", "rocm": "GGML_HIP", "vulkan": "GGML_VULKAN", "metal": "GGML_METAL"}
# Ready-made wheels: an index of llama-cpp-python's own project, one folder a kind.
WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl/"
CUDA_WHEELS = ("cu118", "cu121", "cu122", "cu123", "cu124", "cu125", "cu130", "cu132")
WHEELS = ("cpu", "metal", "vulkan", *CUDA_WHEELS, "rocm72", "hip-radeon")
ACCELS = ("cpu", *BACKENDS, "wheel", *(f"wheel-{kind}" for kind in WHEELS))


class SetupError(Exception):
    """Something that the user has to do first, in one sentence."""


# --- the backend ------------------------------------------------------------------------------------


def works(*command: str) -> bool:
    """Whether a program is there and does not fail (a shim or a stub may be there and fail)."""
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has_vulkan_headers() -> bool:
    """Whether the headers that llama.cpp's Vulkan backend includes are installed."""
    roots = [Path(os.environ["VULKAN_SDK"])] if "VULKAN_SDK" in os.environ else []
    roots += [Path("/usr"), Path("/usr/local"), Path("/opt/homebrew")]
    vulkan = any((root / "include/vulkan/vulkan.h").is_file() for root in roots)
    spirv = any(list(root.glob("*/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake")) for root in roots)
    return vulkan and spirv


def has_render_device() -> bool:
    """Whether the kernel offers a GPU to draw or compute on."""
    return any(Path("/dev/dri").glob("renderD*"))


def detect_accel(
    runs: Callable[..., bool] = works,
    *,
    system: str = platform.system(),
    machine: str = platform.machine(),
    headers: Callable[[], bool] = has_vulkan_headers,
    render: Callable[[], bool] = has_render_device,
) -> tuple[str, str]:
    """The best backend that can be built and used here, and why."""
    if system == "Darwin":
        return ("metal", "Apple silicon") if machine == "arm64" else ("cpu", "an Intel Mac")
    missing = "no usable GPU was found"
    if runs("nvidia-smi"):
        if runs("nvcc", "--version"):
            return "cuda", "an NVIDIA GPU and nvcc were found"
        missing = "an NVIDIA GPU is here, but not the CUDA toolkit: install it and run `make chat ACCEL=cuda`"
    elif render() and runs("rocminfo"):
        if runs("hipcc", "--version"):
            return "rocm", "an AMD GPU, ROCm and hipcc were found"
        missing = "an AMD GPU with ROCm is here, but not hipcc: install it and run `make chat ACCEL=rocm`"
    if render() and runs("glslc", "--version") and headers():
        return "vulkan", "a GPU, glslc and the Vulkan headers were found"
    return "cpu", missing


def check_accel(accel: str, runs: Callable[..., bool] = works, *, system: str = platform.system()) -> None:
    """Raise `SetupError` for a backend that cannot be built here."""
    if accel not in ACCELS:
        known = ", ".join(name for name in ACCELS if not name.startswith("wheel-"))
        raise SetupError(
            f"ACCEL={accel} is unknown; use one of: {known}, or wheel-KIND with KIND of {', '.join(WHEELS)}."
        )
    if accel == "cuda" and not runs("nvcc", "--version"):
        raise SetupError("ACCEL=cuda needs nvcc: install the CUDA toolkit and put its bin folder on PATH.")
    if accel == "rocm" and not runs("hipcc", "--version"):
        raise SetupError("ACCEL=rocm needs hipcc: install AMD's ROCm with its HIP SDK and put it on PATH.")
    if accel == "vulkan" and not runs("glslc", "--version"):
        raise SetupError(
            "ACCEL=vulkan needs glslc and headers "
            "(Debian, Ubuntu: apt install glslc libvulkan-dev spirv-headers)."
        )
    if accel == "metal" and system != "Darwin":
        raise SetupError("ACCEL=metal exists on macOS only; leave ACCEL out to have it chosen.")


GET_COMPILER = (
    "a C++ compiler (Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install)"
)


def has_compiler(runs: Callable[..., bool] = works) -> bool:
    """Whether llama.cpp can be compiled here."""
    compilers = [os.environ.get("CXX", "").split(" ")[0], "c++", "g++", "clang++"]
    return any(name and runs(name, "--version") for name in compilers)


def check_compiler(runs: Callable[..., bool] = works) -> None:
    """Raise `SetupError` where llama.cpp cannot be compiled."""
    if not has_compiler(runs):
        raise SetupError(
            f"No C++ compiler was found: install {GET_COMPILER} and run make again, or run "
            "`make chat ACCEL=wheel` for a ready-made llama.cpp."
        )


def wheel_kind(
    accel: str, *, system: str = platform.system(), machine: str = platform.machine()
) -> str | None:
    """The kind of ready-made wheel that a value of ACCEL means; None where llama.cpp is to be built."""
    if accel == "wheel":
        return "metal" if (system, machine) == ("Darwin", "arm64") else "cpu"
    return accel.removeprefix("wheel-") if accel.startswith("wheel-") else None


def hip_environment() -> dict[str, str]:
    """Where the HIP compiler and ROCm are, for CMake; what is set already stays."""
    found = {}
    for name, option, end in (("HIPCXX", "-l", "/clang"), ("HIP_PATH", "-R", "")):
        if name not in os.environ and works("hipconfig", option):
            answer = subprocess.run(["hipconfig", option], capture_output=True, text=True, check=False)
            found[name] = answer.stdout.strip() + end
    return found


def cmake_args(accel: str, given: str = "") -> str:
    """CMake options for a backend; those that the user gave come last, so they win."""
    options = [f"-D{option}={'on' if name == accel else 'off'}" for name, option in BACKENDS.items()]
    # The vision library: localspec does not load it, and it is a fifth of the build.
    return " ".join([*options, "-DLLAVA_BUILD=off", given]).strip()


def build_jobs() -> int:
    """Compilers to run at once: one a core, and one a GiB of memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
        return max(1, min(cores, gib))
    return cores


def wheel_folder(accel: str) -> Path:
    """Where built wheels are kept for other checkouts; one folder for each backend and kind of processor.

    pip's own cache knows neither, and a wheel tuned to one processor is an illegal instruction on another.
    """
    if os.environ.get("LOCALSPEC_HOME"):
        cache = Path(os.environ["LOCALSPEC_HOME"]).expanduser() / "cache"
    elif sys.platform == "darwin":
        cache = Path.home() / "Library/Caches/localspec"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localspec"
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        abilities = re.search(r"^(flags|Features)\s*:.*$", cpuinfo.read_text(), re.MULTILINE)
        processor = abilities.group() if abilities else processor
    return cache / "wheels" / f"{accel}-{hashlib.sha256(processor.encode()).hexdigest()[:12]}"


# --- the environment --------------------------------------------------------------------------------


def digest() -> str:
    """Changes with everything that decides what is installed."""
    parts = [(ROOT / "pyproject.toml").read_bytes(), Path(__file__).read_bytes(), str(ROOT).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_state() -> dict[str, object]:
    """What was installed last; empty where nothing was."""
    try:
        state = json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


_OWN_WHEELS = {"PIP_CONFIG_FILE": os.devnull}  # with --isolated: from our own folder, whatever the user's are


def say(text: str) -> None:
    """One line for the user."""
    print(f"localspec: {text}", flush=True)


def pip(*args: str, what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run the environment's pip, with its output in the log and the compiler's progress on the terminal."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *args]
    watched = sys.stdout.isatty()
    begins = LOG.stat().st_size if LOG.exists() else 0
    with LOG.open("a") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                step = re.match(r"\s*\[\s*(\d+/\d+|\d+%)\]", line)
                if step and watched:
                    print(f"\r  compiled {step.group(1)} ", end="", flush=True)
        if process.wait() == 0:
            if watched:
                print("\r\x1b[K", end="", flush=True)
            return
    said = LOG.read_bytes()[begins:].decode(errors="replace").splitlines()
    excerpt = "".join(f"\n  {line}" for line in what_went_wrong(said))
    raise SetupError(f"{what} failed; {LOG.relative_to(ROOT)} has it all, the place that matters:{excerpt}")


def what_went_wrong(lines: Sequence[str]) -> Sequence[str]:
    """The lines of a log that begin with the first error, or its end where none is marked."""
    for number, line in enumerate(lines):
        if re.search(r"CMake Error|\b(fatal )?error: (?!subprocess)|No space left|^ERROR:", line):
            return lines[number : number + 10]
    return lines[-15:]


def install_wheel(kind: str, requirement: str) -> None:
    """Install llama-cpp-python without compiling, from the index of its own project."""
    say(f"fetching a ready-made llama.cpp ({kind})")
    log_begins = LOG.stat().st_size if LOG.exists() else 0
    # Without --only-binary pip would take the sources of a newer version, and miss the compiler.
    fetch = ["--only-binary", "llama-cpp-python", "--extra-index-url", WHEEL_INDEX + kind, "--no-deps"]
    try:
        pip("install", "--force-reinstall", *fetch, requirement, what="Installing llama.cpp")
    except SetupError as error:
        with LOG.open("rb") as log:
            log.seek(log_begins)
            problem = wheel_problem(log.read().decode(errors="replace"), kind, requirement)
        raise SetupError(problem or str(error)) from error


def wheel_problem(log: str, kind: str, requirement: str) -> str:
    """What pip's output says about an index without the wheel, in a sentence; "" for any other failure."""
    found = re.search(r"from versions: ([^)]*)\)", log)
    if not found:
        return ""
    versions = re.findall(r"\d[\w.+]*", found[1])
    if versions:
        problem = f"of kind {kind}, {versions[-1]} is the newest ready-made version for this system"
        problem += f", and localspec needs {requirement}"
    elif re.search(r"Retrying \(|Could not fetch URL|ConnectionError|ProxyError|Max retries", log):
        problem = f"{WHEEL_INDEX}{kind}, where ready-made wheels are, cannot be reached"
    else:
        problem = (
            f"there is no ready-made wheel of kind {kind} for {platform.system()} on {platform.machine()}"
        )
    return f"Installing llama.cpp failed: {problem}; install {GET_COMPILER} and run `make chat ACCEL=cpu`."


def is_built(accel: str, requirement: str) -> bool:
    """Whether a wheel for a backend was built here before."""
    folder = wheel_folder(accel)
    return folder.is_dir() and installable(requirement, folder)


def install_llama(accel: str, requirement: str) -> None:
    """Install llama-cpp-python for a backend, from a wheel built earlier where there is one."""
    kind = wheel_kind(accel)
    if kind:
        install_wheel(kind, requirement)
        return
    folder = wheel_folder(accel)
    find = ["--no-index", "--find-links", str(folder), "--no-deps"]
    if not is_built(accel, requirement):
        check_compiler()
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise SetupError(f"{folder} cannot be written; set LOCALSPEC_HOME to a folder that can.")
        jobs = build_jobs()
        say(f"building llama.cpp ({accel}) on {jobs} cores: some minutes, once on this machine")
        started = time.monotonic()
        building = {
            "CMAKE_ARGS": cmake_args(accel, os.environ.get("CMAKE_ARGS", "")),
            "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(jobs),
            **(hip_environment() if accel == "rocm" else {}),
        }
        # -v: progress comes line by line instead of all at the end.
        build = ["wheel", "-v", "--no-cache-dir", "--no-deps", "--wheel-dir", str(folder), requirement]
        pip(*build, what="Building llama.cpp", environment=building)
        say(f"llama.cpp was built in {time.monotonic() - started:.0f} s")
    command = ["--isolated", "install", "--force-reinstall", *find, requirement]
    pip(*command, what="Installing llama.cpp", environment=_OWN_WHEELS)


def installable(requirement: str, folder: Path | None = None) -> bool:
    """Whether a requirement is met by what is installed, or by wheels in `folder` alone."""
    find = ["--ignore-installed", "--find-links", str(folder)] if folder else []
    check = ["install", "--dry-run", "--quiet", "--no-deps", "--no-index", *find, requirement]
    command = [str(PYTHON), "-m", "pip", "--isolated", *check]
    done = subprocess.run(command, capture_output=True, check=False, env=os.environ | _OWN_WHEELS)
    return done.returncode == 0


def prepare(accel: str, *, dev: bool) -> None:
    """Bring `.venv` to what was asked for: no `accel` keeps or detects, `dev` adds the checks' tools."""
    state = read_state()
    if accel:
        check_accel(accel)
    wanted = accel or str(state.get("accel", ""))
    dev = dev or bool(state.get("dev"))
    runs = PYTHON.exists() and works(str(PYTHON), "-c", "")
    if runs and state == {"digest": digest(), "accel": wanted, "dev": dev}:
        return
    # One whose making was interrupted has no pip yet.
    pip_works = runs and (
        works(str(PYTHON), "-m", "pip", "--version") or works(str(PYTHON), "-m", "ensurepip", "--default-pip")
    )
    if not pip_works:
        say(f"making {VENV.name} with Python {platform.python_version()}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    LOG.write_text("")
    # Should this end half-way, the next call does not take it for done.
    STATE.write_text(json.dumps({**state, "digest": ""}))
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    requirement = next(name for name in dependencies if name.startswith("llama-cpp-python"))
    detected = ""
    # An environment without a state was made by hand: what it has is kept unless a backend is asked for.
    kept = installable(requirement) and not (accel and accel != state.get("accel"))
    if not (wanted or kept):
        wanted, why = detect_accel()
        if not (has_compiler() or is_built(wanted, requirement)):
            wanted, why = "wheel", "no C++ compiler was found to build one"
        detected = wanted
        say(f"backend {wanted}, since {why}")
    if not kept:
        try:
            install_llama(wanted, requirement)
        except SetupError as error:
            if detected in ("", "cpu", "wheel"):
                raise
            say(f"{error}\nlocalspec: going on without {detected}; `make chat ACCEL={detected}` tries again")
            wanted = "cpu"
            install_llama(wanted, requirement)
    STATE.write_text(json.dumps({**state, "accel": wanted, "digest": ""}))
    say("installing localspec" + (" and the tools of its checks" if dev else ""))
    pip("install", "-e", f"{ROOT}[dev,train]" if dev else str(ROOT), what="Installing localspec")
    STATE.write_text(json.dumps({"digest": digest(), "accel": wanted, "dev": dev}))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when the environment is ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accel", default="", metavar="|".join(("cpu", *BACKENDS, "wheel", "wheel-KIND")))
    parser.add_argument("--dev", action="store_true", help="with the tools of `make check` and `make test`")
    given = parser.parse_args(argv)
    try:
        prepare(given.accel.strip().lower(), dev=given.dev)
    except SetupError as error:
        print(f"localspec: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except (OSError, RuntimeError) as error:
        print(f"localspec: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        print("localspec: the virtual environment could not be made; see above.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
