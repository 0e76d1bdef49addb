"""Any running server with OpenAI's completions API, by its address."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.bench.peers.base import PeerReply
from localspec.bench.peers.web import Server, StatusError
from localspec.errors import PeerError
from localspec.types import SamplingParams

AS_IT_RUNS = "as it runs"
UNKNOWN = "server"
"""The name of a program that does not tell its own."""

_REPLY_TIMEOUT_S = 600.0
_PROGRAMS = {"vllm": "vLLM", "llamacpp": "llama-server", "sglang": "SGLang"}
_DRAFTED = ("vllm:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total")
_ACCEPTED = ("vllm:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total")
_METRIC = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{.*\})?\s+(?P<value>\S+)")


class OpenAIPeer:
    """A server that others started, as it runs: whether and how it drafts is not ours to choose.

    Decoding time is the server's own where it tells it (llama-server), else from the first to the last token
    as they arrive here. Draft counters are differences of its /metrics around the reply, so nobody else
    may use the server meanwhile. The key comes from OPENAI_API_KEY.

    Args:
        url: such as "http://localhost:8000", with or without "/v1".
        model: its name there; None takes the first that the server lists.
        timeout: seconds for one reply.

    Raises:
        PeerError: no such server, or one that lists no model.

    Attributes:
        model: the model's name there.
    """

    config = AS_IT_RUNS

    def __init__(self, url: str, model: str | None = None, *, timeout: float = _REPLY_TIMEOUT_S) -> None:
        self._server = Server(url)
        self._timeout = timeout
        self._extensions = True
        listed = self._models(needed=model is None)
        first = listed[0] if listed else {}
        self.model = model or str(first.get("id"))
        self.name = _PROGRAMS.get(str(first.get("owned_by")).lower(), UNKNOWN)
        self.about = f"{self.model} at {self._server.place}"

    def is_alive(self) -> bool:
        """Whether it answers."""
        try:
            self._server.text("/v1/models")
        except StatusError:
            return True
        except PeerError:
            return False
        return True

    def close(self) -> None:
        """Nothing to let go of: every question has a connection of its own."""

    def complete(
        self,
        prompt: str | Sequence[int],
        tokens: int,
        temperature: float,
        seed: int,
        *,
        stops: bool = False,
    ) -> PeerReply:
        """Continue `prompt` by `tokens` tokens; see `Peer.complete`.

        A server that knows `ignore_eos` (vLLM, llama-server) makes exactly as many; others may stop earlier.

        Raises:
            PeerError: the server cannot be reached, refuses, is too slow or breaks off.
        """
        request: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": tokens,
            "temperature": temperature,
            # Within what servers of all kinds take as a seed.
            "seed": seed % 0x7FFFFFFF,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        ours = SamplingParams(temperature=temperature)
        beyond_openai: dict[str, Any] = {"ignore_eos": not stops}
        if temperature > 0:
            request["top_p"] = ours.top_p
            beyond_openai |= {"top_k": ours.top_k, "min_p": ours.min_p}
        before = self._counters()
        if self._extensions:
            try:
                stream = self._read(request | beyond_openai)
            except StatusError as error:
                if error.status not in (400, 422):
                    raise
                stream = self._read(request)
                # It was the fields beyond OpenAI's that it did not take.
                self._extensions = False
        else:
            stream = self._read(request)
        return self._reply(stream, tokens, before, self._counters() if before else None)

    def _models(self, *, needed: bool) -> list[dict[str, Any]]:
        try:
            answer = self._server.json("/v1/models")
        except StatusError as error:
            if needed or error.status in (401, 403):
                raise
            return []
        found = answer.get("data") if isinstance(answer, dict) else None
        listed = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        if needed and not (listed and listed[0].get("id")):
            raise PeerError(f"The server at {self._server.place} lists no model; load one, or name it.")
        return listed

    def _read(self, request: dict[str, Any]) -> _Stream:
        stream = _Stream()
        for moment, event in self._server.events("/v1/completions", request, self._timeout):
            if "error" in event:
                error = event["error"]
                message = error.get("message") if isinstance(error, dict) else error
                said = str(message or "no reason given").strip().rstrip(".")
                raise PeerError(
                    f"The server at {self._server.place} gave up in the middle of its reply: {said}."
                )
            stream.take(moment, event)
        if not stream.finished:
            raise PeerError(f"The server at {self._server.place} broke off in the middle of its reply.")
        return stream

    def _reply(
        self,
        stream: _Stream,
        asked: int,
        before: tuple[int, int] | None,
        after: tuple[int, int] | None,
    ) -> PeerReply:
        tokens = stream.tokens(asked)
        drafted = accepted = None
        if before and after and after[0] >= before[0] and after[1] >= before[1]:
            drafted, accepted = after[0] - before[0], after[1] - before[1]
        seconds, counted_by = stream.seconds, "client"
        if "predicted_ms" in stream.timings:
            seconds, counted_by = stream.timings["predicted_ms"] / 1000, "peer"
            drafted = stream.timings.get("draft_n", drafted)
            accepted = stream.timings.get("draft_n_accepted", accepted)
        if tokens == 0:
            raise PeerError(f"The server at {self._server.place} answered with no tokens.")
        if tokens > 1 and seconds <= 0:
            raise PeerError(
                f"The server at {self._server.place} sent all its tokens at once, so its decoding time "
                "cannot be told from the prompt's."
            )
        return PeerReply(
            text="".join(stream.text),
            token_ids=(),
            tokens=tokens,
            seconds=seconds,
            timed_tokens=tokens - 1,
            drafted=drafted,
            accepted=accepted,
            counted_by=counted_by,
        )

    def _counters(self) -> tuple[int, int] | None:
        """Draft tokens that the server has drafted and accepted so far; None where it does not say."""
        try:
            page = self._server.text("/metrics")
        except PeerError:
            return None
        drafted, accepted = _total(page, _DRAFTED), _total(page, _ACCEPTED)
        return None if drafted is None or accepted is None else (drafted, accepted)


class _Stream:
    """What has come of one reply.

    Attributes:
        text: pieces.
        timings: llama-server's own figures.
        finished: whether the server said that it is done.
    """

    def __init__(self) -> None:
        self.text: list[str] = []
        self.timings: dict[str, Any] = {}
        self.finished = False
        self._counted: int | None = None
        self._full = False
        self._first: float | None = None
        self._last = 0.0

    @property
    def seconds(self) -> float:
        """From the first to the last piece of text."""
        return self._last - self._first if self._first is not None else 0.0

    def tokens(self, asked: int) -> int:
        """How many: as the server counts, else all that were asked for where it says so, else the pieces."""
        if self._counted is not None:
            return self._counted
        return asked if self._full else len(self.text)

    def take(self, moment: float, event: Mapping[str, Any]) -> None:
        """Add one event; the empty one is the "[DONE]" mark."""
        if not event:
            self.finished = True
        usage, timings = event.get("usage"), event.get("timings")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._counted = usage["completion_tokens"]
        if isinstance(timings, dict):
            self.timings = timings
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, dict):
            return
        piece, reason = choice.get("text"), choice.get("finish_reason")
        if isinstance(piece, str) and piece:
            self.text.append(piece)
            self._last = moment
            if self._first is None:
                self._first = moment
        if reason:
            self.finished = True
            self._full = reason == "length"


def _total(page: str, names: Sequence[str]) -> int | None:
    """Sum of a counter over its labels, None where no line has one of the names."""
    values = []
    for line in page.splitlines():
        match = _METRIC.match(line)
        if match and match["name"] in names:
            try:
                values.append(float(match["value"]))
            except ValueError:
                continue
    return int(sum(values)) if values and all(math.isfinite(value) for value in values) else None
