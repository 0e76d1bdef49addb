"""The CPU cores that this process may use."""

from __future__ import annotations

from pathlib import Path

import psutil


def physical_cores() -> int:
    """Physical cores that this process may use, within its affinity and its container's limit."""
    allowed = _allowed_cpus()
    cores = _cores_of(allowed) if allowed else psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    limit = _container_limit()
    return max(1, min(cores, limit) if limit else cores)


def _allowed_cpus() -> set[int]:
    """Logical CPUs in the affinity mask; empty where the system has no such thing."""
    try:
        return set(psutil.Process().cpu_affinity() or ())
    except (AttributeError, psutil.Error, OSError):
        return set()


def _cores_of(cpus: set[int]) -> int:
    """Number of physical cores behind logical CPUs."""
    siblings = set()
    for cpu in cpus:
        try:
            topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            siblings.add(topology.read_text(encoding="ascii").strip())
        except OSError:
            return min(psutil.cpu_count(logical=False) or len(cpus), len(cpus))
    return len(siblings)


def _container_limit() -> int | None:
    """Whole CPUs that the process's control group grants, None without a limit."""
    for folder in _control_groups():
        quota, period = _read_words(folder / "cpu.max")[:2] or ("max", "1")
        if quota == "max":
            quota = (_read_words(folder / "cpu.cfs_quota_us") or ["-1"])[0]
            period = (_read_words(folder / "cpu.cfs_period_us") or ["1"])[0]
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            return max(1, int(quota) // int(period))
    return None


def _control_groups() -> list[Path]:
    """Folders of the process's control group, innermost first, then the root as containers see it."""
    root = Path("/sys/fs/cgroup")
    folders = []
    for line in _read_lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        inner = Path(path.lstrip("/"))
        if controllers in ("", "cpu", "cpu,cpuacct"):
            base = root / controllers if controllers else root
            folders += [base / part for part in (inner, *inner.parents)]
    return folders


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _read_words(path: Path) -> list[str]:
    return " ".join(_read_lines(path)).split()
