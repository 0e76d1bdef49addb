"""Runs prompts through llama-server (of `xllamacpp`) with a draft type, in a process of its own.

Reads a request as JSON from its input and writes the results as JSON to the file that the request names; what
the server logs goes to its error output, since the library writes there itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CANDIDATE = re.compile(r"draft candidate +0, pos +(\d+): +(\d+) ")
_DEBUG = 10


@dataclass(frozen=True)
class Served:
    """What the server made of a prompt.

    Attributes:
        tokens: of its reply.
        drafted: draft tokens that it verified.
        accepted: how many of them it accepted.
        drafts: the head's drafts as its log has them, uncut; empty where the log was not asked for.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    drafts: tuple[tuple[int, ...], ...] = ()


def served(
    model: Path,
    kind: str,
    prompts: Sequence[Sequence[int]],
    *,
    head: Path | None = None,
    length: int = 3,
    count: int = 64,
    temperature: float = 0.0,
) -> list[Served]:
    """Replies of `count` tokens to `prompts`, one after the other.

    Args:
        model: the target.
        kind: `eagle3`, `mtp`, `dflash`, `dspark` or `none`.
        prompts: token ids.
        head: the head's file; None: in the target's own.
        length: draft tokens at most.
        count: tokens of every reply.
        temperature: 0: greedy.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        request = {
            "model": str(model),
            "head": str(head) if head else "",
            "type": f"DRAFT_{kind.upper()}" if kind != "none" else "NONE",
            "length": length,
            "count": count,
            "prompts": [list(prompt) for prompt in prompts],
            "temperature": temperature,
            "answer": answer.name,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.heads.server_child"],
            input=json.dumps(request),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"llama-server ended with {done.returncode}: {done.stderr[-2000:]}")
        replies = json.load(answer)
    logged = done.stderr.split(_MARK)[1:]
    return [
        Served(tuple(reply["tokens"]), reply["drafted"], reply["accepted"], _drafts(log))
        for reply, log in zip(replies, logged, strict=True)
    ]


_MARK = "=== reply ===\n"


def _drafts(log: str) -> tuple[tuple[int, ...], ...]:
    """The drafts in a log: a candidate in place 0 begins the next one."""
    drafts: list[list[int]] = []
    first: int | None = None
    for place, token in _CANDIDATE.findall(log):
        first = int(place) if first is None else first
        if int(place) == first:
            drafts.append([])
        drafts[-1].append(int(token))
    return tuple(tuple(draft) for draft in drafts)


def main() -> None:
    """Serve the request on the standard input."""
    import xllamacpp

    request = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = request["model"]
    params.n_ctx = 1024
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.fit_params = False
    params.warmup = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_threads_http = 2
    params.verbosity = _DEBUG
    draft = params.speculative.draft
    params.speculative.types = [
        getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{request['type']}")
    ]
    draft.n_max = request["length"]
    draft.n_gpu_layers = 0
    if request["head"]:
        draft.mparams.path = request["head"]
    for pool in (params, draft):
        pool.cpuparams.n_threads = pool.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    replies: list[dict[str, Any]] = []
    for prompt in request["prompts"]:
        sys.stderr.write(_MARK)
        sys.stderr.flush()
        reply = _completion(
            server.listening_address,
            {
                "prompt": prompt,
                "n_predict": request["count"],
                "temperature": request["temperature"],
                "cache_prompt": False,
                "ignore_eos": True,
                "return_tokens": True,
                "stream": False,
            },
        )
        timings = reply["timings"]
        replies.append(
            {
                "tokens": reply["tokens"],
                "drafted": timings.get("draft_n", 0),
                "accepted": timings.get("draft_n_accepted", 0),
            }
        )
    Path(request["answer"]).write_text(json.dumps(replies), encoding="utf-8")
    # The server's threads would keep the process.
    os._exit(0)


def _completion(address: str, body: dict[str, Any]) -> dict[str, Any]:
    """The native route, which tells token ids; the one that the library offers directly does not."""
    request = urllib.request.Request(
        f"{address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        return dict(json.load(response))


if __name__ == "__main__":
    main()
