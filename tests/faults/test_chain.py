"""The chain of levels under a whole service: what is given when a table hangs, when nothing answers in time, and that a
deadline which is kept changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.reranking import RerankOptions
from serve_app.models.summarise import CompressOptions, SummariserOptions
from serve_app.ports import Shortlist
from tests.api.running import Running, hash_settings, refused
from tests.faults.load import Faulty
from tests.models.chat_server import ChatServer

REST_S = 0.2
SLACK_S = 2.0
"""What a busy machine may add."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    one = Faulty(tmp_path_factory.mktemp("chain"), REST_S)
    yield one
    one.stop()


@pytest.fixture
def faulty(shared: Faulty) -> Iterator[Faulty]:
    """Nothing is wrong at first, nor afterwards."""
    shared.settle()
    yield shared
    for fault in shared.faults.values():
        fault.mend()
    assert shared.recovered_after_s(("context",)) < 10


def level(answer: Any) -> str:
    return str(answer["degradation"]["level"])


def turn(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


# ---- the state of a hung table


def test_what_the_log_holds_of_a_user_who_cannot_be_loaded_is_shown(faulty: Faulty) -> None:
    running = faulty.running
    running.append("away-1", "s", "the boat was sold today")
    faulty.settle()
    faulty.faults["warm"].put("hung")
    context = running.context("away-1", "which boat?", session_id="s", deadline_ms=400)
    assert level(context) == "recent_only"
    assert "sold today" in str(context["messages"])
    assert "number 1" not in str(context["messages"])
    alone = running.context("away-2", "which boat?", session_id="s", deadline_ms=400, system="Be brief.")
    assert level(alone) == "system_only"
    assert (alone["zones"]["recent"]["tokens"], alone["zones"]["system"]["tokens"] > 0) == (0, True)
    sent = running.context("away-2", "which boat?", history=[turn("the boat of the harbour")], deadline_ms=400)
    assert level(sent) == "recent_only"
    assert "boat of the harbour" in str(sent["messages"])


def test_without_a_deadline_that_of_the_service_holds(tmp_path: Path) -> None:
    """No request waits for ever, whatever it names."""
    faulty = Faulty(tmp_path, REST_S, deadline_s=0.4)
    try:
        faulty.faults["warm"].put("hung")
        faulty.faults["embedder"].put("hung")
        started = time.monotonic()
        assert level(faulty.running.context("away-0", "which boat?", session_id="s")) == "system_only"
        assert faulty.running.search("large", "which boat?")["results"]
        assert time.monotonic() - started < 2 * 0.4 + SLACK_S
    finally:
        faulty.stop()


def test_a_write_that_needs_the_table_keeps_no_other_waiting(faulty: Faulty) -> None:
    running = faulty.running
    faulty.faults["warm"].put("hung")
    refusals: list[Any] = []
    body = {"user_id": "away-3", "turns": [turn("a boat")]}
    waits = threading.Thread(target=lambda: refusals.append(running.call("POST", "/v1/sessions/s/turns", json=body)))
    waits.start()
    started = time.monotonic()
    for value in range(20):
        running.ok("PUT", "/v1/users/here/facts/boat", json={"value": str(value)})
    assert waits.is_alive() or time.monotonic() - started > 0.3, "the others were done while it waited"
    waits.join()
    assert int(refused(refusals[0], 503, "store_unavailable") and refusals[0].headers["retry-after"]) >= 1


def test_a_fold_that_hangs_keeps_nothing_in_memory_waiting(faulty: Faulty) -> None:
    running = faulty.running
    running.ok("PUT", "/v1/users/here/facts/boat", json={"value": "to be folded"})
    faulty.faults["warm"].put("hung")
    folds = threading.Thread(target=running.fold)
    folds.start()
    while not faulty.faults["warm"].inside:
        time.sleep(0.005)
    for value in range(5):
        running.ok("PUT", "/v1/users/here/facts/boat", json={"value": str(value)})
        assert running.context("here", "which boat?", session_id="s")["degradation"] == {"level": "full", "reasons": []}
        assert running.turns("here", "s")
    assert running.ok("GET", "/v1/admin/stats")["shards"][0]["tail_records"] >= 5
    assert folds.is_alive()
    faulty.faults["warm"].mend()
    folds.join(20)


def test_plain_reads_of_a_hung_table_are_refused_in_time_and_others_answered(faulty: Faulty) -> None:
    running = faulty.running
    faulty.faults["warm"].put("hung")
    started = time.monotonic()
    for user in ("away-0", "away-1", "away-2", "away-3"):
        refused(running.call("GET", f"/v1/sessions/s/turns?user_id={user}"), 503, "store_unavailable")
    assert time.monotonic() - started < 4 * 1.0 + SLACK_S
    assert len(running.turns("here", "s")) == 4
    assert running.ok("GET", "/v1/admin/stats")["shards"][0]["table_fragments"] is None


# ---- the compressor


@pytest.mark.parametrize("how", ["hung", "killed"])
def test_the_compressor_is_never_on_the_way_of_a_read(tmp_path: Path, how: str) -> None:
    """Its model hangs or resets connections while summaries are due all the time: no answer lacks anything for it."""
    server = ChatServer()
    server.content = "Something was said about boats."
    model = SummariserOptions(backend="openai", url=server.url, model="m", deadline_ms=1_000, rest_s=REST_S)
    settings = hash_settings(
        tmp_path,
        compress=CompressOptions(coarse=model),
        memory=MemoryOptions(summary=SummaryOptions(every_turns=1, settle_s=0.05)),
    )
    running = Running(settings)
    try:
        running.append("u", "s", *[f"the boat number {n}" for n in range(12)], wait="indexed")
        server.delay_s, server.resets = (60.0, False) if how == "hung" else (0.0, True)
        slowest = 0.0
        for number in range(30):
            running.append("u", "s", f"the boat that came as number {number}")
            started = time.monotonic()
            context = running.context("u", f"which boat, {number}?", session_id="s", deadline_ms=5_000)
            assert context["degradation"] == {"level": "full", "reasons": []}
            assert running.search("u", "which boat?", deadline_ms=5_000)["degradation"]["reasons"] == []
            slowest = max(slowest, time.monotonic() - started)
            time.sleep(0.02)
        assert slowest < SLACK_S
        made = running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"})
        assert made["last_seq"] > 0, "what needs no model makes it"
        server.delay_s, server.resets = 0.0, False
        ends = time.monotonic() + 10
        while running.ok("GET", "/readyz", key=None)["degraded"]:
            running.append("u", "s", "one more boat")
            assert time.monotonic() < ends
            time.sleep(0.1)
    finally:
        running.stop()
        server.close()


# ---- time


def test_a_deadline_that_is_kept_changes_nothing(faulty: Faulty) -> None:
    asked = {"session_id": "s", "now": "2040-01-01T00:00:00Z", "budget": 400}
    for user in ("here", "large", "away-0"):
        contexts = [
            faulty.running.context(user, "which boat was it?", **asked, **deadline)
            for deadline in ({}, {"deadline_ms": 5_000}, {"deadline_ms": 60_000})
        ]
        assert {one["context_id"] for one in contexts} == {contexts[0]["context_id"]}
        assert all(one["messages"] == contexts[0]["messages"] for one in contexts)
        assert level(contexts[0]) == "full"


class Deaf:
    """A reranker that hangs on the thread that asks it, whatever the deadline: it breaks what its port promises."""

    name = "deaf"

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()

    def scores(self, shortlist: Shortlist, deadline: float) -> NDArray[np.float64]:
        self.goes_on.wait()
        return np.zeros(len(shortlist.scores))

    def contributions(self, shortlist: Shortlist) -> dict[str, NDArray[np.float64]]:
        return {}

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[NDArray[np.float64]]:
        raise NotImplementedError

    def close(self) -> None:
        self.goes_on.set()


def test_when_every_thread_hangs_a_smaller_answer_comes_all_the_same(tmp_path: Path) -> None:
    deaf = Deaf()
    settings = hash_settings(
        tmp_path,
        memory=MemoryOptions(threads=2),
        rerank=RerankOptions(late=False, ranker="none", model="deaf"),
    )
    running = Running(settings, reranker=lambda _: deaf)  # type: ignore[arg-type,return-value]
    try:
        running.append("u", "s", *[f"the boat number {n}" for n in range(12)], wait="indexed")
        running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"})
        whole = running.context("u", "which boat?", session_id="s")
        assert level(whole) == "full"
        deaf.goes_on.clear()
        for number in range(4):  # each asks something new: of what was judged before the judgement is remembered
            started, query = time.monotonic(), f"which boat, {number}?"
            context = running.context("u", query, session_id="s", deadline_ms=300)
            assert context["degradation"] == {"level": "summary_only", "reasons": ["retrieve: deadline"]}
            assert (context["retrieved"], context["messages"] != []) == ([], True)
            assert context["context_id"] != whole["context_id"]
            found = running.search("u", query, deadline_ms=300)
            assert len(found["results"]) == 10
            assert found["degradation"] == {"level": "full", "reasons": ["rerank: deadline"]}
            assert time.monotonic() - started < 2 * 0.3 + SLACK_S
        assert running.search("u", "which boat?", mode="lexical")["degradation"]["reasons"] == []
        deaf.goes_on.set()
        assert running.context("u", "which boat?", session_id="s")["degradation"]["level"] == "full"
    finally:
        deaf.goes_on.set()
        running.stop()
