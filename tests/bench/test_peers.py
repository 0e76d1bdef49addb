"""llama-server in its own process, and what keeps its rows honest."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.peers import (
    SPEC_CONFIGS,
    LlamaServerPeer,
    OpenAIPeer,
    PeerConfig,
    chosen_draft,
    peer_configs,
    start_llama_server,
)
from localspec.errors import PeerError, UsageError
from localspec.paths import log_dir
from tests.models.conftest import gguf_bytes

REPEATS = "one two three four five six seven. " * 3 + "one two three four"
WIDTH, VOCABULARY, FLOAT = 64, 300, 0


def start(path: Path, config: str, **more: Any) -> LlamaServerPeer:
    return start_llama_server(path, SPEC_CONFIGS[config], threads=1, context=1024, **more)


def tiny(path: Path, **metadata: Any) -> Path:
    """A model of zeros that llama.cpp loads in no time; its vocabulary is nobody else's."""
    shapes = {"attn_norm": 1, "ffn_norm": 1, "attn_q": 2, "attn_k": 2, "attn_v": 2, "attn_output": 2}
    shapes |= {"ffn_gate": 2, "ffn_up": 2, "ffn_down": 2}
    tensors = [("token_embd.weight", (WIDTH, VOCABULARY), FLOAT), ("output_norm.weight", (WIDTH,), FLOAT)]
    tensors += [(f"blk.0.{name}.weight", (WIDTH,) * rank, FLOAT) for name, rank in shapes.items()]
    values = {
        "llama.block_count": 1,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": 4096,
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(VOCABULARY)],
        "tokenizer.ggml.token_type": [1] * VOCABULARY,
        "tokenizer.ggml.merges": ["t 1"],
    }
    path.write_bytes(gguf_bytes(values | metadata, tensors=tuple(tensors)))
    return path


def test_every_draft_type_of_llama_server_has_a_configuration() -> None:
    import xllamacpp

    members = xllamacpp.common_speculative_type.__members__
    types = {name.removeprefix("COMMON_SPECULATIVE_TYPE_").lower().replace("_", "-") for name in members}
    assert {config.spec_type for config in peer_configs()} == types - {"count"}


def test_every_setting_has_its_place_and_the_first_of_a_type_is_the_default() -> None:
    import xllamacpp

    seen: set[str] = set()
    for config in peer_configs():
        for path, value in config.settings:
            owner, field = path.split(".")
            default = getattr(getattr(xllamacpp.CommonParams().speculative, owner), field)
            assert isinstance(default, int | float)
            if config.spec_type not in seen and config.spec_type not in ("draft-dflash", "draft-dspark"):
                assert default == value
        seen.add(config.spec_type)


def test_configurations_are_chosen_by_name_or_type_and_plain_comes_first() -> None:
    names = [config.name for config in peer_configs(["ngram-mod", "ngram-simple 3/8", "mtp"])]
    assert names == ["plain", "ngram-simple 3/8", "ngram-mod 24/48-64", "ngram-mod 4/2-16", "draft-mtp 3"]
    assert peer_configs(["all"]) == peer_configs() == peer_configs(None)
    assert peer_configs([]) == (SPEC_CONFIGS["plain"],)
    with pytest.raises(UsageError, match="no configuration 'medusa'; use all, ngram-simple"):
        peer_configs(["medusa"])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("draft-simple 3", "needs a smaller model with the same vocabulary; none was given"),
        ("draft-eagle3 3", "needs an EAGLE-3 head for this model; none was given"),
        ("draft-mtp 3", "multi-token-prediction heads, or a file of them, and model.gguf has none"),
        ("draft-dflash 15", "needs a DFlash head for this model; none was given"),
        ("draft-dspark 7", "needs a DSpark head for this model; none was given"),
    ],
)
def test_a_missing_file_is_said_before_anything_starts(config: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=sentence):
        start(tiny(tmp_path / "model.gguf"), config)
    assert not log_dir().exists()


@pytest.mark.parametrize(
    ("config", "architecture", "tensor"),
    [
        ("draft-simple 3", "eagle3", "a"),
        ("draft-eagle3 3", "llama", "a"),
        ("draft-dflash 15", "llama", "a"),
        ("draft-dflash 15", "dflash", "markov_w1.weight"),
        ("draft-dspark 7", "dflash", "a"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    config: str, architecture: str, tensor: str, tmp_path: Path
) -> None:
    head = tmp_path / "head.gguf"
    metadata = {"general.architecture": architecture}
    head.write_bytes(gguf_bytes(metadata, tensors=((tensor, (64, 8), FLOAT),)))
    with pytest.raises(PeerError, match=rf"; head\.gguf is of architecture '{architecture}'\."):
        start(tiny(tmp_path / "model.gguf"), config, draft_path=head)


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        ("ngram-mod", None),
        ("draft-simple 3", "model"),
        ("draft-eagle3 3", "eagle3"),
        ("draft-mtp 3", "mtp"),
        ("draft-dflash 15", "dflash"),
        ("draft-dspark 7", "dspark"),
    ],
)
def test_of_several_heads_each_type_gets_its_own(config: str, chosen: str | None, tmp_path: Path) -> None:
    kinds: dict[str, tuple[dict[str, object], str]] = {
        "mtp": ({"general.architecture": "mimo2", "mimo2.nextn_predict_layers": 1}, "a"),
        "dspark": ({"general.architecture": "dflash"}, "markov_w1.weight"),
        "dflash": ({"general.architecture": "dflash"}, "a"),
        "eagle3": ({"general.architecture": "eagle3"}, "a"),
        "model": ({"general.architecture": "llama"}, "a"),
    }
    for name, (metadata, tensor) in kinds.items():
        data = gguf_bytes(metadata, tensors=((tensor, (64, 8), FLOAT),))
        (tmp_path / f"{name}.gguf").write_bytes(data)
    files = [tmp_path / f"{name}.gguf" for name in kinds]
    wanted = next(one for name, one in SPEC_CONFIGS.items() if name.startswith(config))
    assert chosen_draft(wanted, files) == (chosen and tmp_path / f"{chosen}.gguf")
    # Where none suits, the first is said to be of another kind.
    if chosen:
        rest = [file for file in files if file.stem != chosen]
        assert chosen_draft(wanted, rest) == rest[0]
    assert chosen_draft(wanted, []) is None


def test_a_model_file_that_is_missing_or_no_model(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="There is no file"):
        start(tmp_path / "none.gguf", "plain")
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(PeerError, match="is not a GGUF model"):
        start(tmp_path / "text.gguf", "plain")


def test_a_model_that_llama_server_refuses(tmp_path: Path) -> None:
    model = tiny(tmp_path / "model.gguf", **{"general.architecture": "unheard"})
    with pytest.raises(
        PeerError, match=r"cannot load the model: .*unheard.*\(log: .*llama-server-plain\.log\)"
    ):
        start(model, "plain")
    with pytest.raises(PeerError, match="no cache type q9"):
        start(tiny(tmp_path / "model.gguf"), "plain", kv_type="q9")


def test_heads_that_are_not_there_abort_and_say_so(tmp_path: Path) -> None:
    """The header promises heads; llama.cpp finds none of their tensors."""
    model = tiny(tmp_path / "model.gguf", **{"llama.nextn_predict_layers": 1})
    with pytest.raises(PeerError, match=r"llama-server \(draft-mtp 3\) .*log"):
        start(model, "draft-mtp 3")


def test_llama_server_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PeerError, match=r"-m pip install 'localspec\[peers\]'"):
        start(tiny(tmp_path / "model.gguf"), "plain")


def test_a_reply_of_a_tiny_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    peer = start(tiny(tmp_path / "model.gguf"), "plain")
    try:
        assert peer.is_alive()
        assert peer.config == "plain"
        assert peer.about.startswith("xllamacpp 2")
        assert "CPU" in peer.about
        reply = peer.complete([1, 2, 3], 4, 0.0, 1)
        assert (reply.token_ids, reply.tokens, reply.timed_tokens) == ((0, 0, 0, 0), 4, 3)
        assert (reply.drafted, reply.accepted, reply.counted_by) == (None, None, "peer")
        assert reply.seconds > 0
        # Temperature and seed reach the sampler: all tokens of this model are equally likely.
        draws = [peer.complete([1, 2, 3], 8, 1.0, seed).token_ids for seed in (5, 5, 6, 2**32 + 7)]
        assert draws[0] == draws[1] != draws[2]
        with pytest.raises(PeerError, match=r"refused: .*exceeds the available context size"):
            peer.complete([1] * 2000, 4, 0.0, 1)
        with pytest.raises(PeerError, match=r"stopped after \d+ of 64 tokens"):
            peer.complete([1] * 1000, 64, 0.0, 1)
        # Where the model may end a reply that is no failure; that the context is full is one all the same.
        drawn = [peer.complete([1, 2, 3], 64, 1.0, seed, stops=True) for seed in range(1, 33)]
        assert all(reply.tokens for reply in drawn)
        assert any(reply.tokens < 64 for reply in drawn)
        with pytest.raises(PeerError, match=r"stopped after \d+ of 64 tokens"):
            peer.complete([1] * 1000, 64, 0.0, 1, stops=True)
        assert peer.complete([1, 2, 3], 4, 0.0, 1).token_ids == reply.token_ids
    finally:
        peer.close()
        peer.close()
    assert not peer.is_alive()
    with pytest.raises(PeerError, match="stopped"):
        peer.complete([1, 2, 3], 4, 0.0, 1)
    assert capfd.readouterr() == ("", "")
    assert (log_dir() / "llama-server-plain.log").read_text()


def test_a_log_that_cannot_be_written_is_done_without(tmp_path: Path, private_home: Path) -> None:
    (private_home / "logs").write_text("a file where the folder should be")
    peer = start(tiny(tmp_path / "model.gguf"), "plain")
    assert peer.log is None
    assert peer.complete([1, 2, 3], 4, 0.0, 1).tokens == 4
    peer.close()


@pytest.mark.model
def test_drafts_change_the_counters_and_not_the_text(smollm2_path: Path) -> None:
    replies = {}
    for config in ("plain", "ngram-map-k 3/8"):
        peer = start(smollm2_path, config)
        try:
            replies[config] = peer.complete(REPEATS, 32, 0.0, 1)
        finally:
            peer.close()
    plain, drafted = replies.values()
    assert plain.text == drafted.text
    assert plain.token_ids == drafted.token_ids
    assert len(plain.token_ids) == plain.tokens == 32
    assert (plain.drafted, plain.accepted) == (None, None)
    assert drafted.drafted is not None
    assert drafted.accepted is not None
    assert 0 < drafted.accepted <= drafted.drafted


@pytest.mark.model
def test_a_draft_model(smollm2_path: Path, tmp_path: Path) -> None:
    peer = start(smollm2_path, "draft-simple 3", draft_path=smollm2_path)
    try:
        reply = peer.complete(REPEATS, 16, 0.0, 1)
    finally:
        peer.close()
    assert reply.accepted
    with pytest.raises(PeerError, match=r"cannot draft with draft-simple 3 here: .*vocab"):
        start(smollm2_path, "draft-simple 3", draft_path=tiny(tmp_path / "draft.gguf"))


@pytest.mark.model
def test_a_configuration_that_drafts_nothing_counts_nothing(smollm2_path: Path) -> None:
    peer = start(smollm2_path, "ngram-simple 12/48")
    try:
        reply = peer.complete("Once", 4, 0.0, 1)
    finally:
        peer.close()
    assert (reply.drafted, reply.accepted) == (0, 0)


@pytest.mark.model
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_peer_that_is_killed_in_the_middle(smollm2_path: Path) -> None:
    peer = start(smollm2_path, "plain")
    threading.Timer(0.3, os.kill, (peer.pid, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(PeerError, match="was ended by SIGKILL"):
        peer.complete(REPEATS, 900, 0.0, 1)
    assert time.monotonic() - began < 60
    assert not peer.is_alive()
    with pytest.raises(PeerError, match="was ended by SIGKILL"):
        peer.complete(REPEATS, 4, 0.0, 1)
    peer.close()


@pytest.mark.model
def test_a_peer_that_takes_too_long_is_ended(smollm2_path: Path) -> None:
    peer = start(smollm2_path, "plain", timeout=0.2)
    with pytest.raises(PeerError, match=r"did not answer within 0\.2 seconds and was ended"):
        peer.complete(REPEATS, 900, 0.0, 1)
    assert not peer.is_alive()
    peer.close()
    with pytest.raises(PeerError, match="did not load the model within 0 seconds"):
        start(smollm2_path, "plain", load_timeout=0)


@pytest.mark.model
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_closing_in_the_middle_of_a_reply(smollm2_path: Path) -> None:
    peer = start(smollm2_path, "plain")
    failures: list[PeerError] = []

    def ask() -> None:
        try:
            peer.complete(REPEATS, 900, 0.0, 1)
        except PeerError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    peer.close()
    asking.join(10)
    assert not peer.is_alive()
    assert len(failures) == 1


@pytest.mark.model
def test_the_same_server_by_its_address(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(smollm2_path, "ngram-map-k 3/8")
    try:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(PeerError, match="wants a key"):
            OpenAIPeer(server.url)
        monkeypatch.setenv("OPENAI_API_KEY", server.api_key)
        peer = OpenAIPeer(f"{server.url}/v1/")
        assert peer.name == "llama-server"
        assert peer.is_alive()
        reply = peer.complete(REPEATS, 32, 0.0, 1)
        native = server.complete(REPEATS, 32, 0.0, 1)
        assert reply.text == native.text
        assert (reply.tokens, reply.timed_tokens, reply.counted_by) == (32, 31, "peer")
        # The second run of a prompt is drafted otherwise: the map keeps how well its keys did.
        assert reply.drafted
        assert native.drafted
        ids = peer.complete([28, 29, 30], 4, 1.0, 7)
        assert ids.tokens == 4
        with pytest.raises(PeerError, match="exceeds the available context size"):
            peer.complete([1] * 2000, 4, 0.0, 1)
    finally:
        server.close()
    assert not peer.is_alive()
    with pytest.raises(PeerError, match="No server can be reached"):
        peer.complete(REPEATS, 4, 0.0, 1)


def test_a_configuration_of_ones_own(tmp_path: Path) -> None:
    odd = PeerConfig("odd", "ngram-unheard")
    with pytest.raises(PeerError, match="this version of xllamacpp has no draft type ngram-unheard"):
        start_llama_server(tiny(tmp_path / "model.gguf"), odd, threads=1, context=256)
