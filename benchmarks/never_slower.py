"""`auto` against plain decoding and the best fixed length, for tasks and model files: is it ever slower?

The best fixed length of each task is looked for among all of `LENGTHS`: what a length accepts of the recorded
reply is exact, and T(n) of the file is measured. Then plain decoding, `auto` and that length run in turn, in
`localspec bench`. Suffix drafts without a memory, a new controller for every reply, `--tokens` of it at most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import model_file

TASKS = ("copy", "chain", "edit", "explain", "story", "random", "json", "summary")
FILES = ("smollm2", "smollm2:Q4_0", "smollm2:Q8_0", "smollm2:BF16", "gemma3-270m")
LENGTHS = (*range(1, 9), *range(10, 33, 2))
PASSES = "1,2,3,4,5,6,7,9,13,17,25,33"
PLAIN, FIXED, ORACLE = 0.98, 0.95, 0.75
"""Bounds: of plain decoding, of the best fixed length, and of the oracle on copying with BF16 weights."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", default=",".join(FILES), help="models; MODEL:TYPE is requantized first")
    options.add_argument("--tasks", default=",".join(TASKS))
    options.add_argument("--runs", type=int, default=5, help="rounds")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--tokens", type=int, default=512, help="tokens of a reply at most")
    options.add_argument(
        "--folder", type=Path, required=True, help="of results; what is there is not repeated"
    )
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    report([row for name in given.files.split(",") for row in measured(name, given)])


def measured(name: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Every task on one file: speeds over plain decoding of `auto` and of the best fixed length."""
    model, _, file_type = name.partition(":")
    path = model_file(model, file_type or None, given.threads)
    stem = name.replace(":", "-")
    curve = given.folder / f"{stem}.json"
    bench(path, given, curve, given.tasks, "auto", runs=1)
    best = best_lengths(path, curve, given)
    rows = []
    for task in given.tasks.split(","):
        results = given.folder / f"{stem}-{task}.json"
        bench(path, given, results, task, f"auto,{best[task]}", runs=given.runs)
        lines = json.loads(results.read_text(encoding="utf-8"))["rows"]
        auto = next(line for line in lines if line["policy"] is not None)
        fixed = next(line for line in lines if line["draft_length"] is not None)
        row = {"file": name, "task": task, "auto": auto["speedup"], "of_oracle": auto["of_oracle"]}
        rows.append({**row, "length": fixed["draft_length"], "fixed": fixed["speedup"]})
        print(cell(rows[-1]), flush=True)
    return rows


def best_lengths(path: Path, curve: Path, given: argparse.Namespace) -> dict[str, int]:
    """The fixed length that is fastest on each task's first reply, by its counts and the T(n) of `curve`."""
    asked = ["simulate", "--model", str(path), "--tasks", given.tasks, "--draft", "suffix", "--no-memory"]
    asked += ["--draft-length", ",".join(map(str, LENGTHS)), "--cost", str(curve), "-n", str(given.tokens)]
    document = json.loads(localspec(*asked, "--json"))
    places: dict[str, int] = {}
    for place, recording in enumerate(document["recordings"]):
        places.setdefault(recording["name"].split()[0], place)
    best = {}
    for task, place in places.items():
        row = max(document["rows"], key=lambda row: row["per_reply"][place]["predicted_speedup"])
        best[task] = row["draft_length"]
    return best


def bench(path: Path, given: argparse.Namespace, results: Path, tasks: str, lengths: str, runs: int) -> None:
    """Measure, unless that was done."""
    if results.exists():
        if not json.loads(results.read_text(encoding="utf-8"))["complete"]:
            localspec("bench", "--json", str(results), "--resume")
        return
    asked = ["bench", "--model", str(path), "--draft", "suffix", "--memory", "cold", "--mode", "transcript"]
    asked += ["--tasks", tasks, "--draft-length", lengths, "--runs", str(runs), "-n", str(given.tokens)]
    asked += ["--threads", str(given.threads), "--passes", PASSES, "--no-startup", "--json", str(results)]
    localspec(*asked)


def localspec(*arguments: str) -> str:
    """Standard output of a command of localspec; its progress goes where ours does."""
    command = [sys.executable, "-m", "localspec", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def report(rows: list[dict[str, Any]]) -> None:
    """A table, and what the bounds say."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    print("\n| file | " + " | ".join(tasks) + " |\n|---" + "|---" * len(tasks) + "|")
    for name in dict.fromkeys(row["file"] for row in rows):
        cells = [
            f"{row['auto']:.2f} ({row['auto'] / row['fixed']:.2f} of {row['length']})"
            for row in rows
            if row["file"] == name
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    slow = [row for row in rows if row["auto"] < PLAIN]
    behind = [row for row in rows if row["auto"] < FIXED * row["fixed"]]
    print(f"\nbelow {PLAIN} of plain decoding: {len(slow)} of {len(rows)}", *map(cell, slow), sep="\n  ")
    print(f"below {FIXED} of the best fixed length: {len(behind)}", *map(cell, behind), sep="\n  ")
    print(f"geometric mean of auto: {statistics.geometric_mean(row['auto'] for row in rows):.3f}")
    for row in rows:
        if row["task"] == "copy" and row["file"].endswith("BF16"):
            print(f"copy, BF16: {row['of_oracle']:.2f} of the oracle, bound {ORACLE}")


def cell(row: dict[str, Any]) -> str:
    return f"{row['file']} {row['task']}: {row['auto']:.3f}, best fixed {row['length']}: {row['fixed']:.3f}"


if __name__ == "__main__":
    main()
