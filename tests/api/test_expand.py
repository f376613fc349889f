"""`POST /v1/query:expand`, and what a search says and does about its query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.memory.memory import MemoryOptions
from serve_app.models.expand import ExpanderOptions
from tests.api.running import Running, hash_settings, refused
from tests.models.chat_server import ChatServer

NOW = "2025-03-12T15:30:00+01:00"
ASKED = {"query": "What did I say yesterday about the lease?", "now": NOW}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("expand")))
    yield running
    running.stop()


def expand(service: Running, **more: Any) -> Any:
    return service.ok("POST", "/v1/query:expand", json=ASKED | more)


def test_keywords_rewrite_and_window(service: Running) -> None:
    assert expand(service) == {
        "rewritten": ASKED["query"],
        "keywords": ["yesterday", "lease"],
        "time_window": {"start": "2025-03-11T00:00:00+01:00", "end": "2025-03-12T00:00:00+01:00"},
        "degradation": {"level": "full", "reasons": []},
    }


def test_a_zone_or_a_locale_says_when_clocks_change(service: Running) -> None:
    query = "in January"
    assert expand(service, query=query)["time_window"]["start"] == "2025-01-01T00:00:00+01:00"
    summer = {"query": query, "now": "2025-06-12T15:30:00+02:00"}
    assert expand(service, **summer)["time_window"]["start"] == "2025-01-01T00:00:00+02:00"
    for told in ({"tz": "Europe/Madrid"}, {"locale": "es-ES"}):
        assert expand(service, **summer, **told)["time_window"]["start"] == "2025-01-01T00:00:00+01:00"


def test_open_ends_are_null(service: Running) -> None:
    assert expand(service, query="before May 2024")["time_window"] == {
        "start": None,
        "end": "2024-05-01T00:00:00+01:00",
    }
    assert expand(service, query="What is my dog's name?")["time_window"] is None


def test_a_query_is_resolved_from_history(service: Running) -> None:
    history = [{"role": "user", "content": "I bought the Leica in Porto"}]
    rewritten = expand(service, query="and how much was it?", history=history)["rewritten"]
    assert "Leica" in rewritten
    assert expand(service, query="and how much was it?")["rewritten"] == "and how much was it?"


@pytest.mark.parametrize(
    "wrong",
    [
        {"now": "2025-03-12T15:30:00"},
        {"now": "soon"},
        {"now": None},
        {"tz": "Mars/Olympus"},
        {"tz": "../etc/passwd"},
        {"tz": ""},
        {"tz": "localtime"},
        {"tz": "posixrules"},
        {"tz": "right/UTC"},
        {"locale": "en US"},
        {"locale": "x" * 65},
        {"query": ""},
        {"query": "  "},
        {"query": "x" * 16_385},
        {"query": 3},
        {"history": [{"role": "user"}]},
        {"history": [{"role": "nobody", "content": "x"}]},
        {"nonsense": 1},
    ],
)
def test_a_wrong_request_is_refused(service: Running, wrong: dict[str, Any]) -> None:
    refused(service.call("POST", "/v1/query:expand", json=ASKED | wrong), 422, "invalid_request")


@pytest.mark.parametrize("left_out", ["query", "now"])
def test_what_is_needed_is_named(service: Running, left_out: str) -> None:
    body = {name: value for name, value in ASKED.items() if name != left_out}
    problem = refused(service.call("POST", "/v1/query:expand", json=body), 422, "invalid_request")
    assert left_out in problem["detail"]


def test_a_search_says_what_it_took_the_query_for(service: Running) -> None:
    service.append("ann", "s", "hello")
    told = service.search("ann", "上周三说的租房合同", now=NOW, tz="Asia/Shanghai")["query"]
    assert told["time_window"] == {"start": "2025-03-05T00:00:00+08:00", "end": "2025-03-06T00:00:00+08:00"}
    assert told["rewritten"] == "上周三说的租房合同"
    assert told["keywords"]


def test_what_lies_in_the_window_comes_first_and_nothing_is_hidden(service: Running) -> None:
    turns = [
        {"role": "user", "content": "the lease costs much", "created_at": f"2025-03-{day:02}T10:00:00+01:00"}
        for day in range(1, 12)
    ]
    service.append("ben", "s", *turns)
    by_words = {"now": NOW, "k": 20, "mode": "lexical", "explain": True}  # vectors come when they come
    found = service.search("ben", "the lease on 4 March", **by_words)["results"]
    assert found[0]["created_at"].startswith("2025-03-04")
    assert len(found) == len(turns)
    assert found[0]["scores"]["window"] > 0 == found[1]["scores"]["window"]
    hinted = service.search("ben", "the lease a few days ago", **by_words)["results"]
    assert 0 < hinted[0]["scores"]["window"] < found[0]["scores"]["window"]


def test_a_window_older_than_what_is_in_memory_is_looked_for_in_the_tables(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=10)))
    try:
        for number in range(30):
            day = f"2025-0{1 + number // 10}-{1 + number % 10:02}T10:00:00Z"
            running.append("ann", "s", {"role": "user", "content": f"the boat trip {number}", "created_at": day})
        running.fold()
        old = running.search("ann", "the boat trip in January", now=NOW, k=3, rerank=False)["results"]
        assert [one["tier"] for one in old] == ["warm"] * 3
        assert all(one["created_at"].startswith("2025-01") for one in old)
    finally:
        running.stop()


def test_only_what_goes_on_is_resolved_from_the_session(service: Running) -> None:
    service.append("eve", "s", "I bought the Leica in Porto", "Traffic was awful today")
    goes_on = service.search("eve", "and how much was it?", session_id="s")["query"]["rewritten"]
    assert "Leica" in goes_on
    older = service.search("eve", "what was it called again?", session_id="s")["query"]["rewritten"]
    assert older == "what was it called again?"


# ---- with a model


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    found = ChatServer()
    yield found
    found.close()


@pytest.fixture
def helped(tmp_path: Path, chat: ChatServer) -> Iterator[Running]:
    options = ExpanderOptions(backend="openai", url=chat.url, model="m", deadline_ms=5_000)
    running = Running(hash_settings(tmp_path, expand=options))
    yield running
    running.stop()


def test_a_models_words_count_but_not_its_arithmetic(helped: Running, chat: ChatServer) -> None:
    wrong = {"start": "1999-01-01T00:00:00Z", "end": "1999-01-02T00:00:00Z"}
    chat.says("What did I say yesterday about the flat's lease?", ["flat", "lease"], wrong)
    found = expand(helped)
    assert found["rewritten"] == "What did I say yesterday about the flat's lease?"
    assert found["keywords"] == ["flat", "lease"]
    assert found["time_window"]["start"] == "2025-03-11T00:00:00+01:00"
    chat.says("the lease", [], {"start": "2025-01-01T00:00:00+01:00", "end": "2025-02-01T00:00:00+01:00"})
    assert expand(helped, query="the lease back when it snowed")["time_window"]["start"] == "2025-01-01T00:00:00+01:00"


def test_its_rewrite_is_what_is_searched(helped: Running, chat: ChatServer) -> None:
    helped.append("ann", "s", "the Leica cost 900", "the weather was fine")
    chat.says("Leica cost", ["Leica"])
    answer = helped.search("ann", "how much was that thing?", session_id="s")
    assert answer["query"]["rewritten"] == "Leica cost"
    assert answer["results"][0]["content"] == "the Leica cost 900"


def test_what_the_policy_covers_is_not_sent(helped: Running, chat: ChatServer) -> None:
    chat.says("x")
    card = "4111 1111 1111 1111"
    history = [{"role": "user", "content": f"my card is {card}"}]
    expand(helped, query=f"and was it {card}?", history=history)
    sent = str(chat.asked)
    assert "4111" not in sent
    assert chat.question["query"] == "and was it [credit_card]?"
    assert chat.question["said"] == ["my card is [credit_card]"]


@pytest.mark.parametrize(
    ("status", "content", "reason"), [(500, "", "status 500"), (200, "rubbish", "answer of no use")]
)
def test_any_fault_leaves_the_rules_and_is_named(
    helped: Running, chat: ChatServer, status: int, content: str, reason: str
) -> None:
    chat.status, chat.content = status, content
    found = expand(helped)
    assert found["degradation"] == {"level": "full", "reasons": [f"expand: {reason}"]}
    assert found["time_window"]["start"] == "2025-03-11T00:00:00+01:00"
    helped.append("ann", "s", "the lease is long")
    assert f"expand: {reason}" in helped.search("ann", "lease")["degradation"]["reasons"]


def test_a_late_model_is_left_out(helped: Running, chat: ChatServer) -> None:
    helped.append("ann", "s", "the lease is long")
    chat.delay_s = 3.0
    answer = helped.search("ann", "lease", deadline_ms=300)
    assert "expand: deadline" in answer["degradation"]["reasons"]
    assert answer["results"]


def test_a_context_is_made_without_it(helped: Running, chat: ChatServer) -> None:
    helped.append("ann", "s", "the lease is long")
    for query in ("lease", "And how long is it?", "the lease yesterday"):
        helped.context("ann", query, session_id="s")
    assert not chat.asked
