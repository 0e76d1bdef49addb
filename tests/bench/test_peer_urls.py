"""A server by its address: a real HTTP server that speaks as vLLM and others do, or fails as they do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localspec.bench.peers import OpenAIPeer, Peer
from localspec.errors import PeerError
from tests.bench.server_double import Double, serving


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # A proxy of the user's has nothing to do with servers on this machine.
    monkeypatch.setenv("http_proxy", "http://localhost:9")
    with serving() as state:
        yield state


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
    place = double.url.removeprefix("http://")
    assert (peer.name, peer.config, peer.about) == ("vLLM", "as it runs", f"some/model at {place}")
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
    peer._counters = lambda: None
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
