"""The process that llama-server runs in: one model, one slot.

It speaks JSON lines: the first line of standard input says what to load, each further one is a request; each
answer is one line on standard output. The server's own prints go to standard error, which is a log file.
`localspec.bench.peers.llama_server` is the other end.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import urllib.request
from typing import IO, Any

_NOT_THERE = object()
# The server's log is written by a thread of its own; the bench looks there for the reason of a failure.
_LOG_LAG_S = 0.3


def main() -> None:
    """Entry point of `python -m localspec.bench.peers.llama_child`."""
    # Ctrl+C is the bench's to handle: it closes standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.buffer.readline() or b"null")
    if setup is None:
        return
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    try:
        server, about = _start(setup)
    except Exception as error:
        time.sleep(_LOG_LAG_S)
        _answer(answers, {"failed": str(error) or type(error).__name__})
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The server's handler would end its loop and leave this process waiting for it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    address = server.listening_address
    speculative = _speculative(address, setup["api_key"])
    if speculative is False:
        time.sleep(_LOG_LAG_S)
    _answer(answers, {"address": address, "about": about, "speculative": speculative})
    while True:
        request = json.loads(requests.get())
        try:
            _answer(answers, server.handle_completions(request))
        except Exception as error:
            _answer(answers, {"failed": str(error) or type(error).__name__})


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    # The bench is done or gone: end at once, in the middle of a reply too.
    os._exit(0)


def _answer(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _start(setup: dict[str, Any]) -> tuple[Any, str]:
    """The loaded server, and its version, instruction sets and devices in one line."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = setup["path"]
    params.n_ctx = setup["context"]
    params.n_parallel = 1
    params.n_gpu_layers = -1 if setup["gpu_layers"] is None else setup["gpu_layers"]
    params.fit_params = setup["gpu_layers"] is None
    params.cache_type_k = params.cache_type_v = _member(
        xllamacpp.ggml_type, f"GGML_TYPE_{setup['kv_type'].upper()}", f"cache type {setup['kv_type']}"
    )
    if setup["flash_attention"] is not None:
        state = "ENABLED" if setup["flash_attention"] else "DISABLED"
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{state}")
    # Copies of finished prompts in memory would cost time between the replies.
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    # It listens on the loopback address. The key keeps others from disturbing a measurement.
    params.api_keys = [setup["api_key"]]
    params.endpoint_metrics = True
    params.n_threads_http = 2
    speculative = params.speculative
    kind = setup["spec_type"]
    name = f"COMMON_SPECULATIVE_TYPE_{kind.upper().replace('-', '_')}"
    speculative.types = [_member(xllamacpp.common_speculative_type, name, f"draft type {kind}")]
    for path, value in setup["settings"]:
        owner, field = path.split(".")
        setattr(getattr(speculative, owner), field, value)
    if setup["draft_path"]:
        speculative.draft.mparams.path = setup["draft_path"]
        speculative.draft.n_gpu_layers = 0 if setup["gpu_layers"] == 0 else -1
    for pool in (params, speculative.draft):
        pool.cpuparams.n_threads = pool.cpuparams_batch.n_threads = setup["threads"]
    # Asked before the server is there: it silences ggml's log, which the server then takes for itself.
    devices = [device["name"] for device in xllamacpp.get_device_info()]
    features = xllamacpp.get_system_info().split("|")
    used = [part.split(":")[-1].split("=")[0].strip() for part in features if part.strip().endswith("= 1")]
    about = f"xllamacpp {xllamacpp.__version__} on {', '.join(devices)} ({' '.join(used)})"
    return xllamacpp.Server(params), about


def _member(names: Any, name: str, what: str) -> Any:
    value = getattr(names, name, _NOT_THERE)
    if value is _NOT_THERE:
        raise ValueError(f"this version of xllamacpp has no {what}")
    return value


def _speculative(address: str, api_key: str) -> bool | None:
    """Whether the slot drafts: a drafter that cannot start leaves a server that decodes plainly."""
    request = urllib.request.Request(f"{address}/slots", headers={"Authorization": f"Bearer {api_key}"})  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            found = json.load(response)[0].get("speculative")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
    return found if isinstance(found, bool) else None


if __name__ == "__main__":
    main()
