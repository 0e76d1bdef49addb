"""Asks llama.cpp's own server how it writes conversations; run as a process of its own.

Reads a JSON list of [file, [request, ...]] from standard input, and prints a list of lists of
{"prompt": text, "tokens": ids}: /apply-template's answer, tokenized as the server tokenizes prompts.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

import xllamacpp


def _post(address: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        address, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _answers(file: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx, params.n_parallel, params.n_gpu_layers = 256, 1, 0
    params.fit_params = params.warmup = False
    params.cache_ram_mib = 0
    params.use_jinja = True
    params.n_threads_http = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    address = server.listening_address
    answers = []
    for request in requests:
        prompt = _post(f"{address}/apply-template", request)["prompt"]
        body = {"content": prompt, "add_special": True, "parse_special": True}
        answers.append({"prompt": prompt, "tokens": _post(f"{address}/tokenize", body)["tokens"]})
    return answers


def main() -> None:
    """Answer all, and end at once."""
    asked = json.load(sys.stdin)
    # Its native code prints to descriptor 1, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump([_answers(file, requests) for file, requests in asked], answers)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
