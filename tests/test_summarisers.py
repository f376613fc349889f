"""A service whose summaries are made with models: whatever these do, it answers in time and says what is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.models.summarise import CompressOptions, SummariserOptions
from tests.api.running import Running, hash_settings
from tests.models.chat_server import ChatServer
from tests.models.smollm2_server import WAYS, misbehaving
from tests.models.test_causal import small

TURNS = [
    {"role": "user", "content": "I am planning our trip to Lisbon. No red-eye flights, and my budget is 5000 dollars."},
    {"role": "assistant", "content": "Noted: day flights to Lisbon, at most 5000 dollars. When do you want to leave?"},
    {
        "role": "user",
        "content": "We leave on 12 May. My daughter Mia is allergic to peanuts, so tell the airline please.",
    },
    {"role": "assistant", "content": "I told the airline that Mia is allergic to peanuts."},
]
TARGET = 90
DEADLINE_MS = 300
LATE_S = 5.0
"""Some calls of a model that each wait for a deadline, on a busy machine; a hang would be ten times that."""


def serving(folder: Path, coarse: SummariserOptions, fine: SummariserOptions | None = None) -> Running:
    return Running(hash_settings(folder, compress=CompressOptions(coarse, fine or coarse)))


def server_at(url: str, deadline_ms: int = DEADLINE_MS, **more: Any) -> SummariserOptions:
    return SummariserOptions(backend="openai", url=url, model="m", deadline_ms=deadline_ms, **more)


def compressed(running: Running) -> Any:
    return running.ok("POST", "/v1/compress", json={"turns": TURNS, "target_tokens": TARGET})


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = Running(hash_settings(tmp_path_factory.mktemp("plain")))
    yield compressed(running)
    running.stop()


def test_without_models_nothing_is_missing(extracted: Any) -> None:
    assert extracted["degradation"] == {"level": "full", "reasons": []}
    assert extracted["tokens"] <= TARGET


def test_what_a_model_says_truly_stands_in_the_summary(tmp_path: Path) -> None:
    server = ChatServer()
    server.content = "The airline knows that Mia is allergic to peanuts."
    running = serving(tmp_path, server_at(server.url, deadline_ms=10_000))
    found = compressed(running)
    assert server.content in found["text"]
    assert found["degradation"]["reasons"] == []
    assert "openai:m:" in found["version"]
    assert found["tokens"] <= TARGET
    running.stop()
    server.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_misbehaves_changes_nothing_and_holds_nobody_up(way: str, tmp_path: Path, extracted: Any) -> None:
    server = misbehaving(way)
    running = serving(tmp_path, server_at(server.url))
    for _ in range(3):
        began = time.monotonic()
        found = compressed(running)
        assert time.monotonic() - began < LATE_S
        assert found["text"] == extracted["text"]
        assert found["constraints"] == extracted["constraints"]
        assert any("coarse" in reason for reason in found["degradation"]["reasons"])
    running.stop()
    server.close()


def degraded(running: Running) -> list[str]:
    found = running.ok("GET", "/readyz", key=None)["degraded"]
    return [one["detail"] for one in found if one["what"] == "compressor"]


def test_readiness_names_a_model_that_is_left_alone_or_cannot_be_loaded(tmp_path: Path) -> None:
    server = misbehaving("fails")
    (tmp_path / "nothing").mkdir()
    broken = SummariserOptions(backend="transformers", model=str(tmp_path / "nothing"))
    running = serving(tmp_path / "data", server_at(server.url, rest_s=60), broken)
    assert running.call("GET", "/readyz", key=None).status_code == 200
    for _ in range(3):
        compressed(running)
    until = time.monotonic() + 30
    while len(degraded(running)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert [detail.split(":")[0] for detail in degraded(running)] == ["openai", "transformers"]
    assert "left alone after faults" in degraded(running)[0]
    assert "cannot be loaded" in degraded(running)[1]
    running.stop()
    server.close()


def test_a_model_in_the_process_is_loaded_while_the_service_serves(tmp_path: Path) -> None:
    local = SummariserOptions(backend="transformers", model=str(small(tmp_path / "model")))
    running = serving(tmp_path / "data", local)
    assert running.ok("GET", "/healthz", key=None) == {"status": "alive"}
    assert compressed(running)["tokens"] <= TARGET
    running.stop()


COMPRESS = ("POST", "/v1/compress", {"turns": TURNS, "target_tokens": TARGET})
REFRESH = ("POST", "/v1/sessions/s/summary:refresh?user_id=ann", None)


@pytest.mark.parametrize("waiting", [None, COMPRESS, REFRESH], ids=["background", "compress", "refresh"])
def test_a_model_that_hangs_does_not_hold_the_end_up(tmp_path: Path, waiting: tuple[str, str, Any] | None) -> None:
    """Whoever waits for the model: the refresher, or a caller."""
    server = misbehaving("hangs")
    slow = SummariserOptions(backend="openai", url=server.url, model="m", deadline_ms=60_000)
    running = serving(tmp_path, slow)
    talk = [f"Turn {n} says little." for n in range(8 if waiting is None else 0)]
    running.append("ann", "s", *[turn["content"] for turn in TURNS], *talk)
    caller = threading.Thread(target=lambda: waiting and running.call(waiting[0], waiting[1], json=waiting[2]))
    caller.start()
    until = time.monotonic() + 20
    while not server.asked and time.monotonic() < until:
        time.sleep(0.02)
    assert server.asked
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < 10
    server.close()
    caller.join()
