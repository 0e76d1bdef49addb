"""llama-server from the `xllamacpp` wheel, in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from localspec import paths
from localspec.bench.peers.base import PeerReply
from localspec.bench.peers.configs import PeerConfig, draft_file
from localspec.errors import PeerError, StorageError
from localspec.types import SamplingParams

_NAME = "llama-server"
_LOAD_TIMEOUT_S = 600.0
_REPLY_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 2.0
_MOST_LOG_READ = 1 << 20
_ERROR_LINE = re.compile(r"^[\d.]+ E (?:\S+\s+)??[^:\s]+: (?P<text>.+)$")
_LEVEL = re.compile(r"^[\d.]+ [IWED] ")


class LlamaServerPeer:
    """A running llama-server with one slot; made by `start_llama_server`.

    Its native code, its idle threads and whatever it prints stay in the other process; if that process dies,
    whoever waits for an answer gets a `PeerError` at once. ngram-mod, ngram-cache and both maps remember
    earlier requests for as long as the process lives, so a cold memory takes a new one.

    Attributes:
        url: its HTTP address, on the loopback interface.
        api_key: what that address asks for.
        log: file of all that it prints; None where none could be written.
    """

    name = _NAME

    def __init__(self, config: PeerConfig, log: Path | None, timeout: float) -> None:
        self.config = config.name
        self.about = ""
        self.url = ""
        self.api_key = secrets.token_urlsafe(16)
        self.log = log
        self._speculates = config.speculates
        self._timeout = timeout
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        environment = dict(os.environ)
        # An abort must end the process at once, not start a debugger.
        environment.setdefault("GGML_NO_BACKTRACE", "1")
        with log.open("wb") if log else contextlib.nullcontext(subprocess.DEVNULL) as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "localspec.bench.peers.llama_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                # Ctrl+C in the terminal is the bench's to handle.
                start_new_session=os.name == "posix",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        self._reader = threading.Thread(target=self._read, name="llama-server-answers", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def complete(
        self,
        prompt: str | Sequence[int],
        tokens: int,
        temperature: float,
        seed: int,
        *,
        stops: bool = False,
    ) -> PeerReply:
        """Continue `prompt` by exactly `tokens` tokens, unless the model may end it; see `Peer.complete`.

        Raises:
            PeerError: a prompt that is empty or does not fit, no answer in time (the process is then ended),
                or a process that is gone.
        """
        request: dict[str, Any] = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": tokens,
            "temperature": temperature,
            # Its largest seed asks for a random one.
            "seed": seed % 0xFFFFFFFF,
            "ignore_eos": not stops,
            "cache_prompt": False,
            "stream": False,
            # Token ids come only with the fields meant for debugging, after the clock has stopped.
            "return_tokens": True,
            "verbose": True,
            **_filters(temperature),
        }
        self._send(request)
        answer = self._receive(self._timeout, "answer")
        if "choices" not in answer:
            raise PeerError(f"llama-server ({self.config}) refused: {_message(answer)}.")
        reply = self._reply(answer)
        ended = stops and answer["choices"][0].get("finish_reason") == "stop"
        if not reply.tokens or (reply.tokens < tokens and not ended):
            raise PeerError(
                f"llama-server ({self.config}) stopped after {reply.tokens} of {tokens} tokens; the prompt "
                "is empty or the context full."
            )
        return reply

    def close(self) -> None:
        """End the process; never raises."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._end()
        self._reader.join(_END_TIMEOUT_S)

    def load(self, setup: dict[str, Any], timeout: float) -> None:
        """Hand the settings to the process and wait until the model is loaded.

        Raises:
            PeerError: it refused, died or took too long.
        """
        self._send({**setup, "api_key": self.api_key})
        ready = self._receive(timeout, "load the model")
        if "failed" in ready:
            reason = _first_error(self.log) or str(ready["failed"])
            raise PeerError(f"llama-server ({self.config}) cannot load the model: {reason}{self._see_log()}.")
        self.url = ready["address"]
        self.about = ready["about"]
        if self._speculates and ready["speculative"] is False:
            reason = _first_error(self.log) or "no reason given"
            raise PeerError(f"llama-server cannot draft with {self.config} here: {reason}{self._see_log()}.")

    def _reply(self, answer: dict[str, Any]) -> PeerReply:
        timings = answer["timings"]
        drafts = 0 if self._speculates else None
        return PeerReply(
            text=answer["choices"][0]["text"],
            token_ids=tuple(answer.get("__verbose", {}).get("tokens", ())),
            tokens=timings["predicted_n"],
            seconds=timings["predicted_ms"] / 1000,
            timed_tokens=max(timings["predicted_n"] - 1, 0),
            # Left out of the answer when nothing was drafted.
            drafted=timings.get("draft_n", drafts),
            accepted=timings.get("draft_n_accepted", drafts),
        )

    def _send(self, line: dict[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - it was opened as a pipe
        try:
            pipe.write(json.dumps(line).encode() + b"\n")
            pipe.flush()
        except (OSError, ValueError) as error:
            # Closed by us, or nobody reads it any more.
            raise PeerError(self._why_it_ended()) from error

    def _receive(self, timeout: float, task: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self._end()
            raise PeerError(
                f"llama-server ({self.config}) did not {task} within {timeout:g} seconds and was ended"
                f"{self._see_log()}."
            ) from None
        if line is None:
            # Whoever asks again gets the same answer.
            self._lines.put(None)
            raise PeerError(self._why_it_ended())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101 - it was opened as a pipe
        with pipe:
            for line in pipe:
                if line.endswith(b"\n"):
                    self._lines.put(line)
        self._lines.put(None)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _why_it_ended(self) -> str:
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"llama-server ({self.config}) does not listen any more{self._see_log()}."
        how = f"stopped with exit code {code}"
        if code < 0:
            try:
                how = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was ended by signal {-code}"
        reason = _last_words(self.log) if code not in (0, -signal.SIGTERM, -9) else ""
        return f"llama-server ({self.config}) {how}{': ' if reason else ''}{reason}{self._see_log()}."

    def _see_log(self) -> str:
        return f" (log: {self.log})" if self.log else ""


def start_llama_server(
    path: Path,
    config: PeerConfig,
    *,
    threads: int,
    context: int,
    gpu_layers: int | None = None,
    draft_path: Path | None = None,
    kv_type: str = "f16",
    flash_attention: bool | None = None,
    load_timeout: float = _LOAD_TIMEOUT_S,
    timeout: float = _REPLY_TIMEOUT_S,
) -> LlamaServerPeer:
    """Start llama-server with a model and wait until it is loaded.

    Args:
        path: the model's GGUF file.
        config: one of `SPEC_CONFIGS`.
        threads: CPU threads of the model, of its draft and of prefill.
        context: tokens of the one slot.
        gpu_layers: layers on the GPU; None offloads all that fit. A wheel without GPU code ignores it;
            `about` of the result tells the devices.
        draft_path: draft model or head, for configurations that need one.
        kv_type: as in `EngineOptions`.
        flash_attention: as in `EngineOptions`.
        load_timeout: seconds for loading.
        timeout: seconds for one reply.

    Raises:
        PeerError: xllamacpp is not installed; the configuration needs a file that was not given or is of
            another kind; the model was refused; the process died or took too long.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        command = f"{sys.executable} -m pip install 'localspec[peers]'"
        raise PeerError(f"llama-server is not installed; `{command}` adds it.")
    draft = draft_file(config, path, draft_path)
    peer = LlamaServerPeer(config, _log_path(config), timeout)
    try:
        setup = {
            "path": str(path),
            "threads": threads,
            "context": context,
            "gpu_layers": gpu_layers,
            "kv_type": kv_type,
            "flash_attention": flash_attention,
            "spec_type": config.spec_type,
            "settings": config.settings,
            "draft_path": str(draft) if draft else None,
        }
        peer.load(setup, load_timeout)
    except BaseException:
        peer.close()
        raise
    return peer


def _filters(temperature: float) -> dict[str, float]:
    if temperature <= 0:
        return {"top_k": 1}
    ours = SamplingParams(temperature=temperature)
    return {"top_k": ours.top_k, "top_p": ours.top_p, "min_p": ours.min_p}


def _message(answer: dict[str, Any]) -> str:
    error = answer.get("error", answer)
    found = error.get("message") or answer.get("failed") if isinstance(error, dict) else error
    return str(found or "no reason given").strip().rstrip(".")


def _log_path(config: PeerConfig) -> Path | None:
    name = re.sub(r"[^a-z0-9.]+", "-", config.name)
    try:
        path = paths.ensure(paths.log_dir()) / f"llama-server-{name}.log"
        path.touch()
    except (OSError, StorageError):
        # A log that cannot be written is no reason to go without the figures.
        return None
    return path


def _log_lines(log: Path | None) -> list[str]:
    if log is None:
        return []
    try:
        with log.open("rb") as file:
            return _decode(file).splitlines()
    except OSError:
        return []


def _decode(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_LOG_READ))
    return file.read().decode("utf-8", "replace")


def _first_error(log: Path | None) -> str:
    """The first error in the log: the later ones follow from it."""
    for line in _log_lines(log):
        match = _ERROR_LINE.match(line)
        if match:
            return match["text"].strip().rstrip(".")
    return ""


def _last_words(log: Path | None) -> str:
    """What native code printed as it gave up: a line without the log's prefix; else the first error."""
    words = [line.strip() for line in _log_lines(log) if line.strip() and not _LEVEL.match(line)]
    asserts = [line for line in words if "ASSERT" in line or "terminate" in line or "what()" in line]
    chosen = (asserts or words)[-1:] or [_first_error(log)]
    return chosen[0].rstrip(".")[:300]
