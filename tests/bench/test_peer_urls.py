"""A server by its address: a real HTTP server that speaks as vLLM and others do, or fails as they do."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from localspec.bench.peers import OpenAIPeer, Peer
from localspec.errors import PeerError

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


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # A proxy of the user's has nothing to do with servers on this machine.
    monkeypatch.setenv("http_proxy", "http://localhost:9")
    state = Double()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(state))
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


def ask(double: Double, **more: Any) -> Any:
    return OpenAIPeer(double.url, **more).complete("Hi", 5, 0.0, 1)


def test_a_reply_timed_here_and_counted_there(double: Double) -> None:
    peer: Peer = OpenAIPeer(double.url)
    reply = peer.complete("Hi", 5, 0.0, 3)
    assert reply.text == "Hello world!"
    assert (reply.tokens, reply.timed_tokens, reply.token_ids) == (5, 4, ())
    assert (reply.drafted, reply.accepted, reply.counted_by) == (10, 7, "client")
    # Three gaps between four pieces: the time before the first piece is prefill.
    assert reply.seconds >= 3 * double.delay
    assert peer.name == f"vLLM at {double.url.removeprefix('http://')}"
    assert (peer.config, peer.about) == ("as it runs", "some/model")
    assert double.asked[0] == {
        "model": "some/model",
        "prompt": "Hi",
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    assert double.keys == [None]
    peer.close()


def test_token_ids_a_temperature_a_name_and_a_key(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    double.failures["/v1/models"] = (404, "", "text/plain")
    peer = OpenAIPeer(f"{double.url.removeprefix('http://')}/v1/completions", "mine")
    assert peer.is_alive()
    peer.complete((1, 2, 3), 5, 0.8, 2**40)
    request = double.asked[0]
    assert (request["model"], request["prompt"]) == ("mine", [1, 2, 3])
    assert (request["top_k"], request["top_p"], request["min_p"]) == (40, 0.95, 0.05)
    assert 0 <= request["seed"] < 2**31
    assert double.keys == ["Bearer secret"]


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"usage": False}, 5),
        ({"usage": False, "reason": "stop"}, 4),
        ({"usage": False, "reason": ""}, 4),
        ({"done": False}, 5),
    ],
)
def test_tokens_without_a_count(double: Double, changes: dict[str, Any], tokens: int) -> None:
    vars(double).update(changes)
    assert ask(double).tokens == tokens


def test_no_counters_no_figures(double: Double) -> None:
    double.metrics = False
    reply = ask(double)
    assert (reply.drafted, reply.accepted) == (None, None)
    double.failures["/metrics"] = (200, "vllm:spec_decode_num_draft_tokens_total NaN\n", "text/plain")
    reply = ask(double)
    assert (reply.drafted, reply.accepted) == (None, None)


def test_a_strict_server_gets_openais_fields_alone(double: Double) -> None:
    double.strict = True
    peer = OpenAIPeer(double.url)
    assert peer.complete("Hi", 5, 0.0, 1).tokens == 5
    assert peer.complete("Hi", 5, 0.0, 1).tokens == 5
    assert ["ignore_eos" in request for request in double.asked] == [True, False, False]


def no_json(double: Double) -> None:
    double.failures["/v1/models"] = (200, "<html>", "text/html")


def no_models(double: Double) -> None:
    double.models = {"data": []}


def refused(status: int, body: str) -> Callable[[Double], None]:
    def change(double: Double) -> None:
        double.failures["/v1/completions"] = (status, body, "application/json")

    return change


def changed(**changes: Any) -> Callable[[Double], None]:
    return lambda double: vars(double).update(changes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (no_json, "did not answer with JSON at /v1/models; is it OpenAI-compatible"),
        (no_models, "lists no model"),
        (refused(401, "{}"), r"wants a key \(status 401\); set OPENAI_API_KEY"),
        (refused(404, "no"), "has no /v1/completions"),
        (
            refused(404, '{"error": {"message": "The model does not exist."}}'),
            r"404: The model does not exist\.",
        ),
        (refused(500, '{"detail": "out of\\nmemory"}'), "with status 500: out of memory"),
        (refused(307, ""), "status 307"),
        (changed(plain=True), "in one piece instead of a stream"),
        (changed(done=False, reason="", usage=False), "broke off in the middle"),
        (
            changed(event='data: {"error": {"message": "engine dead"}}'),
            "in the middle of its reply: engine dead",
        ),
        (changed(event="data: {half"), "something else than JSON"),
        (changed(pieces=("all at once",)), "all its tokens at once"),
        (changed(pieces=(), usage=False), "no tokens"),
    ],
)
def test_failures_are_one_sentence(double: Double, change: Callable[[Double], None], sentence: str) -> None:
    change(double)
    with pytest.raises(PeerError, match=sentence) as caught:
        ask(double)
    assert "\n" not in str(caught.value)


def test_too_slow(double: Double) -> None:
    double.pieces, double.delay = ("a",) * 50, 0.1
    with pytest.raises(PeerError, match=r"did not answer within 0\.3 seconds"):
        ask(double, timeout=0.3)


def speaks(answer: bytes) -> tuple[str, threading.Thread]:
    """A socket that answers one connection with some bytes and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is no web server"),
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "broke off its answer"),
    ],
)
def test_what_is_no_server(answer: bytes, sentence: str) -> None:
    url, thread = speaks(answer)
    with pytest.raises(PeerError, match=sentence):
        OpenAIPeer(url)
    thread.join(5)


def test_a_stream_whose_connection_breaks(double: Double) -> None:
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    url, thread = speaks(start + b'40\r\ndata: {"choices": [{"text": "a"')
    double.failures["/v1/models"] = (404, "", "text/plain")
    peer = OpenAIPeer(double.url, "m")
    peer._server._root = url
    peer._counters = lambda: None  # type: ignore[method-assign]
    with pytest.raises(PeerError, match="broke off in the middle"):
        peer.complete("Hi", 5, 0.0, 1)
    thread.join(5)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PeerError, match="No server can be reached at localhost:"):
        OpenAIPeer(f"localhost:{port}")


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://a b", "http://[", "localhost:many"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PeerError, match="is not the address of a server"):
        OpenAIPeer(url)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(PeerError, match="set OPENAI_API_KEY") as caught:
        OpenAIPeer("http://user:hunter2@localhost:1")
    assert "hunter2" not in str(caught.value)
