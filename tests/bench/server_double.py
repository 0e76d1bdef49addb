"""A real HTTP server that speaks as vLLM and others do, or fails as they do."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRICS = """\
# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="a}} b"}} {drafted}
vllm:spec_decode_num_draft_tokens_total{{engine="1",model_name="m"}} 1.0
vllm:spec_decode_num_draft_tokens_created{{engine="0"}} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted} 1790000000
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} 99.0
"""


@dataclass
class Double:
    """What the server does and what it was asked.

    Attributes:
        pieces: texts of the stream.
        usage: whether the last event counts the tokens.
        reason: the finish reason, "" for none.
        done: whether the stream ends with its mark.
        delay: seconds before each piece.
        strict: whether fields beyond OpenAI's are refused.
        failures: (status, body, content type) by path.
        models: body of /v1/models.
        metrics: whether there are any.
        event: an event in place of the last piece.
        plain: whether the reply comes as one JSON.
        asked: requests to /v1/completions, and their keys.
    """

    pieces: tuple[str, ...] = ("Hello", " wor", "ld", "!")
    usage: bool = True
    reason: str = "length"
    done: bool = True
    delay: float = 0.005
    strict: bool = False
    failures: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    models: Any = field(default_factory=lambda: {"data": [{"id": "some/model", "owned_by": "vllm"}]})
    metrics: bool = True
    event: str | None = None
    plain: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""


def handler_of(double: Double) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: str, kind: str = "application/json") -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status in (301, 302, 307):
                self.send_header("Location", "http://localhost:9/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path in double.failures:
                self.answer(*double.failures[self.path])
            elif self.path == "/v1/models":
                self.answer(200, json.dumps(double.models))
            elif self.path == "/metrics" and double.metrics:
                count = len(double.asked)
                body = METRICS.format(drafted=float(10 * count), accepted=float(7 * count))
                self.answer(200, body, "text/plain")
            else:
                self.answer(404, "nothing here", "text/plain")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            double.asked.append(request)
            double.keys.append(self.headers.get("Authorization"))
            if self.path in double.failures:
                self.answer(*double.failures[self.path])
            elif double.strict and "ignore_eos" in request:
                self.answer(400, json.dumps({"error": {"message": "Unrecognized request argument"}}))
            elif double.plain:
                self.answer(200, json.dumps({"choices": [{"text": "".join(double.pieces)}]}))
            else:
                self.stream()

        def stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Connection", "close")
            self.end_headers()
            for number, piece in enumerate(double.pieces):
                time.sleep(double.delay)
                last = number == len(double.pieces) - 1
                if last and double.event is not None:
                    self.line(double.event)
                    break
                reason = double.reason if last and double.reason else None
                self.event({"choices": [{"index": 0, "text": piece, "finish_reason": reason}]})
                self.line(": ping")
            if double.usage:
                self.event({"choices": [], "usage": {"completion_tokens": 5, "prompt_tokens": 2}})
            if double.done:
                self.line("data: [DONE]")
            self.close_connection = True

        def event(self, event: dict[str, Any]) -> None:
            self.line("data: " + json.dumps(event))

        def line(self, text: str) -> None:
            # A client that has waited long enough is gone.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(text.encode() + b"\r\n\r\n")
                self.wfile.flush()

    return Handler


@contextlib.contextmanager
def serving() -> Iterator[Double]:
    """A server of this process, as long as the block lasts."""
    state = Double()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(state))
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
