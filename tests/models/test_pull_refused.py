"""What the hub may answer in place of a file, and what users are told then."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from localspec.errors import DownloadError, LocalspecError, UsageError
from localspec.models import hub_errors, sources, store
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.progress import PullProgress
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub, Refusal

MODEL = gguf_bytes()
REPO = "owner/tiny-GGUF"


def entry(repo: str = REPO, file: str = "tiny.gguf", revision: str = "main") -> ModelEntry:
    return ModelEntry(name="tiny", sources=(HubSource(repo, file, revision),))


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": MODEL})


def message_of(wanted: ModelEntry, kind: type[LocalspecError] = DownloadError) -> str:
    with pytest.raises(kind) as caught:
        sources.pull(wanted)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert store.fetched(wanted) is None
    return message


def test_what_does_not_exist(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no repository owner/other" in message_of(entry("owner/other"))
    assert 'no revision "v9"' in message_of(entry(revision="v9"))
    assert "no file tiny-Q4.gguf (nearest: tiny.gguf); correct" in message_of(entry(file="tiny-Q4.gguf"))
    hub.publish("owner/plain", {"README.md": b"no model"})
    assert "no file other.gguf; correct" in message_of(entry("owner/plain", "other.gguf"))
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert "no repository owner/other, or it is private" in message_of(entry("owner/other"))


def test_a_gated_repository_says_where_its_licence_is_and_opens_with_a_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated = {REPO}
    message = message_of(entry())
    assert f"is gated; accept its licence on {hub.url}/{REPO}" in message
    assert "hf auth login" in message
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert sources.pull(entry()).read_bytes() == MODEL


def test_a_token_that_is_not_accepted(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    assert "does not accept your token" in message_of(entry())


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refusal(403, "GatedRepo"), "gated; accept its licence"),
        (Refusal(403), f"does not allow you to fetch hf:{REPO}/tiny.gguf (403)"),
        (Refusal(403, message="Access to this resource is disabled."), f"disabled the repository {REPO}"),
        (Refusal(401), "does not accept your token"),
        (Refusal(418), "answered 418"),
        (Refusal(500), "answered 500"),
        (Refusal(429), "too many requests from here (429)"),
    ],
)
def test_refusals(hub: Hub, refusal: Refusal, said: str) -> None:
    hub.refusal = refusal
    assert said in message_of(entry())
    tries = 5 if refusal.status in (429, 500) else 1
    assert len(hub.requests) == tries


def test_a_busy_hub_is_asked_again(hub: Hub) -> None:
    hub.refusals = [Refusal(429), Refusal(503), Refusal(429, headers={"Retry-After": "1"})]
    seen: list[PullProgress] = []
    assert sources.pull(entry(), seen.append).read_bytes() == MODEL
    assert "paused" in {progress.stage for progress in seen}
    assert [method for method, *_ in hub.requests] == ["HEAD"] * 4 + ["GET"]


def test_a_pause_that_the_hub_asks_for_is_kept_and_shown(hub: Hub) -> None:
    seen: list[PullProgress] = []

    def watch(progress: PullProgress) -> None:
        seen.append(progress)
        if progress.stage == "downloading" and later:
            hub.refusals.append(later.pop())

    later = [Refusal(429, headers={"Retry-After": "1"})]
    assert sources.pull(entry(), watch).read_bytes() == MODEL
    assert [method for method, *_ in hub.requests] == ["HEAD", "GET", "GET"]
    assert "paused" in {progress.stage for progress in seen}


def test_how_long_the_hub_asks_to_wait() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=90), usegmt=True)
    assert asked({"Retry-After": "7"}) == 7
    assert asked({"Retry-After": past}) == 0
    assert 80 < (asked({"Retry-After": soon}) or 0) <= 90
    assert asked({"RateLimit": '"resolvers";r=0;t=55'}) == 55
    assert asked({"RateLimit": '"resolvers";r=9;t=55'}) is None
    assert asked({"Retry-After": "soon"}) is None
    assert asked({"Retry-After": "\u00b2"}) is None
    assert (asked({"Retry-After": "9" * 400}) or 0) > 10**8
    assert asked({}) is None
    assert hub_errors.asked_pause(OSError("no answer at all")) is None


def asked(headers: dict[str, str]) -> float | None:
    """What a refusal with these headers asks for, through the hub library's own error."""
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.errors import HfHubHTTPError

    server = Hub(refusal=Refusal(429, headers=headers))
    with server.serving(), pytest.raises(HfHubHTTPError) as caught:
        get_hf_file_metadata(f"{server.url}/owner/tiny/resolve/main/tiny.gguf")
    return hub_errors.asked_pause(caught.value)


def test_a_pause_that_is_too_long_is_left_to_the_user(hub: Hub) -> None:
    hub.refusal = Refusal(429, headers={"Retry-After": "1200"})
    assert "asks to wait 20 minutes; try again" in message_of(entry())
    assert len(hub.requests) == 1


def test_an_absurd_pause_is_more_than_a_day(hub: Hub) -> None:
    hub.refusal = Refusal(429, headers={"Retry-After": "9" * 400})
    assert "asks to wait more than a day; try again" in message_of(entry())


def test_names_that_the_hub_lists_are_harmless(hub: Hub) -> None:
    hub.publish(REPO, {"tiny\x1b[31m.gguf": MODEL})
    assert "(nearest: tiny.gguf)" in message_of(entry(file="tinyy.gguf"))


def test_settings_that_the_hub_library_cannot_read() -> None:
    """In a process of its own: the library reads them once."""
    code = "from localspec.models.hub import prepare_library; prepare_library()"
    for name, value in {"HF_ENDPOINT": "http://[::1", "HF_HUB_DOWNLOAD_TIMEOUT": "soon"}.items():
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, name: value},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "UsageError: The hub library cannot read its settings" in done.stderr


def test_a_pause_can_be_stopped(hub: Hub) -> None:
    hub.refusal = Refusal(429, headers={"Retry-After": "200"})

    def stop(progress: PullProgress) -> None:
        if hub.requests:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sources.pull(entry(), stop)


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    message = message_of(entry())
    assert "cannot be reached" in message
    assert "check the network, or set HF_ENDPOINT" in message


def test_offline_mode(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sources.pull(entry())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert sources.pull(entry()) == path
    path.unlink()
    hub.requests.clear()
    assert "not on this machine, and cannot be fetched in offline mode; unset HF_HUB_OFFLINE" in message_of(
        entry()
    )
    assert hub.requests == []


def test_a_file_that_is_no_model_is_not_fetched(hub: Hub) -> None:
    hub.publish(REPO, {"model.safetensors": MODEL})
    assert "is not a .gguf file" in message_of(entry(file="model.safetensors"), UsageError)
    assert hub.requests == []


def test_a_name_that_no_repository_can_have() -> None:
    assert '"a--b/c" cannot be a repository' in message_of(entry("a--b/c"), UsageError)
