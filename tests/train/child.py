"""A training run in a process of its own, which tests kill: pieces and checkpoints come quickly."""

from __future__ import annotations

import sys
from pathlib import Path

from localspec.train import course, loop
from localspec.train.course import Course, Request, check, open_run
from localspec.train.state import Clock

TOKENS = 4000


def request_for(target: Path, output: Path, minutes: float) -> Request:
    """What the run is asked for."""
    return Request(name=target.stem, target=target, minutes=minutes, threads=1, tokens=TOKENS, output=output)


class Ticks(Clock):
    """Time that goes on when it is noted, so that a busy machine learns as much as an idle one."""

    _gone = 0

    @property
    def seconds(self) -> float:
        """Spent so far, earlier starts included."""
        return self._before + self._gone

    def tick(self, *, save: bool = False) -> None:
        """Note the time, a second later."""
        self._gone += 1
        super().tick(save=save)


def main() -> None:
    """Run: target, output, minutes; says what is at work line by line, and in the end what came out."""
    target, output = Path(sys.argv[1]), Path(sys.argv[2])
    course.PIECE = 4
    loop._SAVE_S = 5.0
    course.Clock = Ticks
    request = request_for(target, output, float(sys.argv[3]))
    header = check(request)
    run = open_run(request, header)
    run.begin()
    work = Course(request, header, run, lambda _, word: print(word, flush=True))
    work.write_texts()
    print("judged", *work.train(output), flush=True)


if __name__ == "__main__":
    main()
