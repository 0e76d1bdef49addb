"""Cost curves by name, from a bench's results, or written out: what a simulated pass takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.bench.records import ModelFile
from localspec.bench.report import store
from localspec.cost import CostCurve
from localspec.cost_presets import CURVES, TOKEN_MS
from localspec.errors import NotFoundError, UsageError


@dataclass(frozen=True, slots=True)
class PassCost:
    """What passes cost in a simulation.

    Attributes:
        name: for reports.
        ratios: T(n)/T(1).
        token_ms: T(1) in milliseconds; None where nobody said, and the drafter's own time cannot be weighed.
    """

    name: str
    ratios: CostCurve
    token_ms: float | None

    @property
    def seconds(self) -> CostCurve:
        """T(n) in seconds; relative, T(1) being 1, where `token_ms` is not known."""
        return self.ratios if self.token_ms is None else self.ratios.scaled(self.token_ms * 1e-3)


PRESETS = {name: PassCost(name, curve, TOKEN_MS[name]) for name, curve in CURVES.items()}
"""Curves to compare with, from measurements made while localspec was designed."""

_WIDEST = 4096
"""Tokens of a pass at most, as in a calibration: every width is looked at."""
_CHEAPEST, _DEAREST = 1e-3, 1e6
"""T(n)/T(1) at least and at most, and T(1) in milliseconds; times are counted in whole nanoseconds."""

_HELP = f"a bench's JSON file, one of {', '.join(PRESETS)}, or points such as 1:1,2:1.4,9:2.1"


def pass_cost(spec: str, token_ms: float | None = None) -> PassCost:
    """The curve that `spec` names.

    Args:
        spec: a name of `PRESETS`; points `N:COST` with commas, relative or in any unit; or a file that
            `localspec bench --json` wrote, followed by `#FILE` where it measured several model files.
        token_ms: T(1) in milliseconds, in place of the one that is known.

    Raises:
        NotFoundError: there is neither such a preset nor such a file.
        UsageError: points that make no curve, a file without one, or a time that is none.
        StorageError: the file cannot be read.
    """
    if token_ms is not None and not _CHEAPEST <= token_ms <= _DEAREST:
        raise UsageError(
            f"--token-ms is the time of one token in milliseconds, {_CHEAPEST:g} to {_DEAREST:.0f}, "
            f"not {token_ms:g}."
        )
    found = _find(spec)
    points = found.ratios.points
    if max(points) > _WIDEST or not all(_CHEAPEST <= ratio <= _DEAREST for ratio in points.values()):
        raise UsageError(
            f"A cost curve has passes of up to {_WIDEST} tokens that cost {_CHEAPEST:g} to {_DEAREST:.0f} "
            f"times one over one token; correct {found.name}."
        )
    return found if token_ms is None else PassCost(found.name, found.ratios, token_ms)


def _find(spec: str) -> PassCost:
    if spec in PRESETS:
        return PRESETS[spec]
    path, _, wanted = spec.partition("#")
    # A file may have a name that looks like points, and its own folder may hold a "#".
    if _exists(spec):
        path, wanted = spec, ""
    # An empty path would be the present folder.
    if (path and _exists(path)) or path.endswith(".json"):
        return _of_bench(Path(path), wanted)
    if ":" in spec:
        return PassCost(spec, _points(spec), None)
    raise NotFoundError(f"There is no cost curve {spec}; give {_HELP}.")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        # Points may be longer than the name of a file can be.
        return False


def _points(spec: str) -> CostCurve:
    points: dict[int, float] = {}
    for part in spec.split(","):
        size, _, cost = part.strip().partition(":")
        try:
            width = int(size)
            if width in points:
                raise UsageError(
                    f"--cost: the pass over {width} tokens has two costs; leave one of them out."
                )
            points[width] = float(cost)
        except ValueError as error:
            raise UsageError(f"--cost: '{part}' is no point of a cost curve; give {_HELP}.") from error
    curve = CostCurve(points)
    return curve.scaled(1 / curve(1))


def _of_bench(path: Path, wanted: str) -> PassCost:
    files = store.load(path).files
    if not files:
        raise UsageError(f"{path} holds no cost curve yet; go on with the bench, or choose another file.")
    names = ", ".join(file.name for file in files)
    if wanted:
        chosen = [file for file in files if wanted in (file.name, file.file_type)]
        if not chosen:
            raise UsageError(f"{path} has no model file {wanted}; it has {names}.")
    elif len(files) > 1:
        raise UsageError(f"{path} has the curves of {names}; choose one: --cost {path}#{files[0].name}.")
    else:
        chosen = list(files)
    return _of_file(path, chosen[0])


def _of_file(path: Path, file: ModelFile) -> PassCost:
    curve = file.cost_curve
    if not curve:
        raise UsageError(f"{path} holds no time of a pass over one token of {file.name}; measure it anew.")
    return PassCost(f"{file.name} in {path.name}", CostCurve(curve), file.pass_ms[1])
