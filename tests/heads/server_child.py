"""Runs a prompt through llama-server (of `xllamacpp`) with a draft type, in a process of its own.

Reads a request as JSON from its input and writes the answer as JSON to the file that the request names; what
the server logs goes to its error output, since the library writes there itself.
"""

from __future__ import annotations

import json
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
        tokens: of the reply.
        drafted: draft tokens that it verified.
        accepted: how many of them it accepted.
        drafts: of the head, as the log has them: uncut.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    drafts: tuple[tuple[int, ...], ...]


def served(
    model: Path,
    kind: str,
    prompt: Sequence[int],
    *,
    head: Path | None = None,
    length: int = 3,
    count: int = 64,
) -> Served:
    """A reply of `count` tokens to `prompt`.

    Args:
        model: the target.
        kind: `eagle3`, `mtp`, `dflash`, `dspark` or `none`.
        prompt: token ids.
        head: the head's file; None: in the target's own.
        length: draft tokens at most.
        count: tokens of the reply.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        request = {
            "model": str(model),
            "head": str(head) if head else "",
            "type": f"DRAFT_{kind.upper()}" if kind != "none" else "NONE",
            "length": length,
            "count": count,
            "prompt": list(prompt),
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
        reply = json.load(answer)
    return Served(
        tuple(reply["tokens"]),
        reply["timings"].get("draft_n", 0),
        reply["timings"].get("draft_n_accepted", 0),
        _drafts(done.stderr),
    )


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
    # As the tests have it: in half precision the width of a pass would decide near ties.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    for pool in (params, draft):
        pool.cpuparams.n_threads = pool.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    body = {
        "prompt": request["prompt"],
        "n_predict": request["count"],
        "temperature": 0.0,
        "cache_prompt": False,
        "ignore_eos": True,
        "return_tokens": True,
        "stream": False,
    }
    reply = _completion(server.listening_address, body)
    Path(request["answer"]).write_text(json.dumps(reply), encoding="utf-8")
    # Ends its threads and writes what there is of the log.
    del server


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
