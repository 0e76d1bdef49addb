"""Where layers go: rates and device memory with all, half and none of the layers on the GPU."""

from __future__ import annotations

import json

from common import COPY_PROMPT, model_file, parser

from localspec.engine import Engine
from localspec.messages import Generate, MemoryUse, Reply
from localspec.runtime.devices import devices
from localspec.types import DraftOptions, EngineOptions, SamplingParams


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--tokens", type=int, default=200)
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    found = devices()
    print(json.dumps({"devices": [[d.name, d.backend, d.kind, d.free_bytes, d.total_bytes] for d in found]}))
    has_gpu = any(device.kind in ("gpu", "igpu") for device in found)
    texts = {}
    for name, layers in (("automatic", None), ("half", 15), ("none", 0)) if has_gpu else (("none", 0),):
        engine = Engine(
            path,
            path.stem,
            EngineOptions(context=4096, gpu_layers=layers, draft=DraftOptions("ngram", policy="fixed")),
        )
        try:
            replies = {}
            for speculation in (False, True, False, True):
                engine.set_speculation(speculation)
                replies[speculation] = answer(engine, given.tokens)
            texts[name] = replies[False].token_ids
            print(
                json.dumps(
                    {
                        "placement": name,
                        "gpu_layers": engine.info.gpu_layers,
                        "backend": engine.info.backend,
                        "load_s": round(engine.load_s, 2),
                        "plain_tok_s": replies[False].timings.tokens_per_second,
                        "ngram_tok_s": replies[True].timings.tokens_per_second,
                        "acceptance_length": replies[True].speculation.acceptance_length,
                        "same_text_with_drafts": replies[True].token_ids == replies[False].token_ids,
                        "memory": memory(engine.memory()),
                    }
                )
            )
        finally:
            engine.close()
    if has_gpu:
        same = [name for name, tokens in texts.items() if tokens == texts["none"]]
        print(json.dumps({"same_text_as_on_the_cpu": same}))


def answer(engine: Engine, tokens: int) -> Reply:
    """One greedy reply to the copy task."""
    request = Generate(
        1, prompt=COPY_PROMPT, sampling=SamplingParams(temperature=0), max_tokens=tokens, ignore_eos=True
    )
    return engine.generate(request).reply


def memory(use: MemoryUse) -> dict[str, int]:
    """Bytes in use by device."""
    return {**{device.name: device.used for device in use.devices}, "engine_rss": use.engine_rss}


if __name__ == "__main__":
    main()
