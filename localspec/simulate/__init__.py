"""What a drafter would gain on recorded text, found out without a model.

To verify against a text that is known needs no target: a draft is accepted as far as it is the text. So the
same `StepStats` come out as of a real run, with times of the target taken from a cost curve, and everything
that folds over them (metrics, recordings, controllers) works on a simulation too.

`inputs` reads recordings, `costs` the curve, `study` replays recordings through drafters, `figures` and
`report` say what came of it.
"""

from __future__ import annotations

from localspec.simulate.replay import Simulated, replay

__all__ = ["Simulated", "replay"]
