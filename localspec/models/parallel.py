"""A few jobs at once, watched and stopped from the thread that asked for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_TICK_S = 0.05
_GRACE_S = 0.5

T = TypeVar("T")
Job = Callable[[threading.Event], T]


class StoppedError(Exception):
    """What a job raises when its event was set."""


class _Jobs(Generic[T]):
    def __init__(self, jobs: Sequence[Job[T]], workers: int) -> None:
        self.stop = threading.Event()
        self.outcomes: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[tuple[int, Job[T]]] = queue.SimpleQueue()
        for job in enumerate(jobs):
            self._waiting.put(job)
        # Daemons: one that hangs in a connection must not keep the program from ending.
        self.threads = [
            threading.Thread(target=self._work, daemon=True, name=f"job-{number}")
            for number in range(min(workers, len(jobs)))
        ]

    def _work(self) -> None:
        while not self.stop.is_set():
            try:
                index, job = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self.outcomes.put((index, job(self.stop), None))
            except BaseException as error:
                self.outcomes.put((index, None, error))


def run_all(jobs: Sequence[Job[T]], tick: Callable[[], None], workers: int = 3) -> list[T]:
    """Run the jobs, some at a time, and return their results in order.

    The caller's thread waits, and calls `tick` twenty times a second. The first error of a job, an exception
    from `tick` and Ctrl+C stop all jobs through the event that each is given; those that do not notice it
    within half a second are left behind.

    Args:
        jobs: each gets the event that tells it to raise `StoppedError`, and looks before it changes anything.
        tick: called from this thread.
        workers: jobs that run at the same time.
    """
    running = _Jobs(jobs, workers)
    results: dict[int, T] = {}
    try:
        for thread in running.threads:
            thread.start()
        while len(results) < len(jobs):
            try:
                index, value, error = running.outcomes.get(timeout=_TICK_S)
            except queue.Empty:
                tick()
                continue
            if error is not None:
                raise error
            results[index] = value  # type: ignore[assignment]
    finally:
        running.stop.set()
        end = time.monotonic() + _GRACE_S
        for thread in running.threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
    return [results[index] for index in range(len(jobs))]
