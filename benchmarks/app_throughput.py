"""Tokens/s in the app against `localspec run` on the same prompt, and the app's own share of a core."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import alternate, model_file, paired_ratio, parser, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from localspec.stats.metrics import Tally
from localspec.stats.recorder import read_steps
from tests.e2e.terminal import Terminal

PROMPT = "Write a very long story about a lighthouse keeper, with many chapters."


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--tokens", type=int, default=600)
    options.add_argument("--draft", default="ngram")
    options.add_argument("--follow-load", action="store_true", help="let the thread count follow the load")
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    command = [sys.executable, "-m", "localspec"]
    shared = [
        "--model",
        str(path),
        "--draft",
        given.draft,
        "--policy",
        "fixed",
        "--temperature",
        "0",
        "--seed",
        "1",
    ]
    shared += ["--max-tokens", str(given.tokens)]
    shared += [] if given.follow_load else ["--threads", str(given.threads)]
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LOCALSPEC_HOME": folder}
        recording = Path(folder) / "steps.jsonl"

        def headless() -> float:
            output = subprocess.run(
                [*command, "run", PROMPT, "--json", *shared], env=environment, capture_output=True, check=True
            )
            return float(json.loads(output.stdout)["timings"]["tokens_per_second"])

        def in_the_app() -> float:
            recording.unlink(missing_ok=True)
            terminal = Terminal(
                [*command, "chat", "--new", "--record", str(recording), *shared], environment, 120, 40
            )
            terminal.wait_for("Message")
            time.sleep(1.0)
            terminal.send(PROMPT + "\r")
            terminal.wait_for("Writing")
            app = psutil.Process(terminal.process.pid)
            terminal.blind = True
            began, used = time.monotonic(), sum(app.cpu_times()[:2])
            while not replied(Path(folder) / "data" / "conversations.db"):
                time.sleep(0.5)
            shares.append((sum(app.cpu_times()[:2]) - used) / (time.monotonic() - began))
            terminal.send("\x11")
            terminal.wait_until_ended()
            terminal.close()
            return Tally(read_steps(recording)).tokens_per_second or 0.0

        results = alternate({"run": headless, "app": in_the_app}, given.runs)
    report(
        "throughput in the app, tok/s",
        results,
        file=path.name,
        draft=given.draft,
        ratio=round(paired_ratio(results["app"], results["run"]), 3),
        app_share_of_a_core=round(statistics.median(shares), 3),
    )


def replied(database: Path) -> bool:
    """Whether the newest reply has ended."""
    kept = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        row = kept.execute("SELECT role, status FROM message ORDER BY id DESC LIMIT 1").fetchone()
    finally:
        kept.close()
    return row is not None and row[0] == "assistant" and row[1] != "streaming"


if __name__ == "__main__":
    main()
