"""An encoder that is down, slow or hangs costs vectors and nothing else: every answer comes in time and says why."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from serve_app.memory.memory import MemoryOptions
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Encodings
from tests.api.running import Running, hash_settings, refused

DEADLINE_MS = 400
SLACK_S = 2.0
"""What a shared machine may add to a deadline."""


class Fickle(HashEmbedder):
    """Embeds as long as nothing is wrong; then does what `wrong` does first."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: Callable[[], None] | None = None

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        if self.wrong is not None:
            self.wrong()
        return super().encode(texts, tokens=tokens)


def fails() -> None:
    raise RuntimeError("CUDA error while embedding 'the walrus sleeps'")


def is_slow() -> None:
    time.sleep(0.6)


@pytest.fixture
def fickle() -> Fickle:
    return Fickle()


@pytest.fixture
def running(tmp_path: Path, fickle: Fickle) -> Iterator[Running]:
    options = MemoryOptions(vector_wait_s=0.5, index_wait_s=0.5)
    running = Running(hash_settings(tmp_path, memory=options), encoder=lambda _: fickle)
    running.append("u", "s", "the walrus sleeps", "the gull flies", wait="indexed")
    yield running
    fickle.wrong = None
    running.stop()


@pytest.fixture
def hangs() -> Iterator[Callable[[], None]]:
    """Waits until the test is over."""
    over = threading.Event()
    yield over.wait  # type: ignore[misc]
    over.set()


def degraded(running: Running, reason: str, **more: Any) -> None:
    """Search and context answer within the deadline, by words, and say why."""
    started = time.monotonic()
    answer = running.search("u", "walrus?", **more)
    assert [one["content"] for one in answer["results"]][:1] == ["the walrus sleeps"]
    assert answer["degradation"]["reasons"] == [f"dense: {reason}"]
    context = running.context("u", "the walrus?", **more)
    assert context["degradation"] == {"level": "full", "reasons": [f"dense: {reason}"]}
    assert "the walrus sleeps" in str(context["messages"])
    assert time.monotonic() - started < 2 * more.get("deadline_ms", 500) / 1e3 + SLACK_S


def test_what_a_filter_lets_through_is_found_without_vectors_too(running: Running, fickle: Fickle) -> None:
    fickle.wrong = fails
    assert running.found("u", "walrus?", filters={"roles": ["user"]}) == ["the walrus sleeps", "the gull flies"]
    assert running.found("u", "walrus?") == ["the walrus sleeps"]


@pytest.mark.parametrize("deadline", [{}, {"deadline_ms": DEADLINE_MS}])
def test_an_encoder_that_fails(running: Running, fickle: Fickle, deadline: dict[str, int]) -> None:
    fickle.wrong = fails
    degraded(running, "encoder_failed", **deadline)


@pytest.mark.parametrize("deadline", [{}, {"deadline_ms": DEADLINE_MS}])
def test_an_encoder_that_is_slow(running: Running, fickle: Fickle, deadline: dict[str, int]) -> None:
    fickle.wrong = is_slow
    degraded(running, "deadline", **deadline)


def test_an_encoder_that_hangs(running: Running, fickle: Fickle, hangs: Callable[[], None]) -> None:
    fickle.wrong = hangs
    degraded(running, "deadline", deadline_ms=DEADLINE_MS)
    assert running.search("u", "walrus?")["degradation"]["reasons"] == ["dense: deadline"]
    started = time.monotonic()
    degraded(running, "left_alone", deadline_ms=DEADLINE_MS)
    assert time.monotonic() - started < DEADLINE_MS / 1e3, "nobody waits for it any more"
    started = time.monotonic()
    body = {"user_id": "u", "turns": [{"role": "user", "content": "the walrus wakes"}], "wait": "indexed"}
    late = running.call("POST", "/v1/sessions/s/turns", json=body)
    assert (late.status_code, late.json()["index_state"]) == (202, "pending")
    assert time.monotonic() - started < 0.5 + SLACK_S
    assert running.found("u", "wakes", mode="lexical") == ["the walrus wakes"]


def test_dense_alone_without_vectors_finds_nothing_and_says_so(running: Running, fickle: Fickle) -> None:
    fickle.wrong = fails
    answer = running.search("u", "walrus?", mode="dense")
    assert (answer["results"], answer["degradation"]["reasons"]) == ([], ["dense: encoder_failed"])


def test_words_alone_never_ask_the_encoder(running: Running, fickle: Fickle, hangs: Callable[[], None]) -> None:
    fickle.wrong = hangs
    answer = running.search("u", "walrus?", mode="lexical")
    assert answer["degradation"]["reasons"] == []
    assert running.search("u", filters={"roles": ["user"]})["degradation"]["reasons"] == []


def test_asking_for_vectors_themselves_is_refused_while_there_are_none(
    running: Running, fickle: Fickle, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(running.ok("POST", "/v1/embeddings", json={"input": ["a", "b"]})["data"]) == 2
    fickle.wrong = fails
    refused(running.call("POST", "/v1/embeddings", json={"input": "a"}), 503, "encoder_unavailable")
    assert "walrus" not in running.call("POST", "/v1/embeddings", json={"input": "a"}).text
    assert "the encoder failed: RuntimeError" in caplog.text


def test_vectors_come_by_themselves_once_the_encoder_is_back(running: Running, fickle: Fickle) -> None:
    fickle.wrong = fails
    running.append("u", "s", "a puffin dives")
    assert running.search("u", "puffin")["results"][0]["content"] == "a puffin dives"
    fickle.wrong = None
    deadline = time.monotonic() + 10
    while "a puffin dives" not in running.found("u", "a puffin dives", mode="dense")[:1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert running.search("u", "puffin")["degradation"]["reasons"] == []


def test_the_end_does_not_wait_for_the_backlog_of_vectors(running: Running, fickle: Fickle) -> None:
    """What the indexer waits for fails at once; the turns are embedded after the next start."""
    fickle.wrong = is_slow
    running.append("u", "s", *["a long story of walruses " * 400 for _ in range(20)])
    time.sleep(0.3)
    started = time.monotonic()
    running.run(running.service.stop())
    assert time.monotonic() - started < 5
