"""The suites of `memstrata bench` run against a live service and count what they should. No test here knows a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import latency, recall
from serve_app.client.http import Client, Json
from serve_app.errors import InvalidRequest
from tests.api.running import Running

PETS = {"cat": "Biscuit hides from thunder", "dog": "Rex digs up tulips", "parrot": "Kiwi repeats the doorbell"}


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.listen(), service.key) as client:
        yield client


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One conversation of three turns in three sessions, and four queries; one of them without evidence."""
    turns = [
        {
            "conversation_id": "pets",
            "session": pet,
            "dia_id": f"turn-{pet}",
            "speaker": "Ada",
            "text": text,
            "timestamp": f"2024-05-0{day}T08:00:00Z",
        }
        for day, (pet, text) in enumerate(PETS.items(), 1)
    ]
    queries: list[dict[str, Any]] = [
        {"query": text, "evidence": [f"turn-{pet}"], "category_name": "single"} for pet, text in PETS.items()
    ]
    queries[0]["timestamp"] = "2024-05-01T09:00:00Z"
    queries.append({"query": "nothing answers this", "evidence": [], "category_name": "none"})
    (tmp_path / "conversations.jsonl").write_text("\n".join(map(json.dumps, turns)))
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"conversation_id": "pets", **query}) for query in queries)
    )
    return tmp_path


def test_recall_counts_what_is_found(client: Client, data: Path) -> None:
    """Each turn is found by its own words; a query without evidence is left out."""
    groups = recall.measure(client, data, "lexical")["groups"]
    assert set(groups) == {"all", "single"}
    assert groups["all"]["queries"] == 3
    assert groups["all"]["recall@5"] == groups["all"]["session_hit@10"] == 1.0
    assert "single" in recall.table({"groups": groups})


def test_recall_counts_what_is_not_found(client: Client, data: Path) -> None:
    """Evidence that no search can give is missing from the recall."""
    queries = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    queries[1] |= {"query": "thunder", "evidence": ["turn-dog", "turn-cat"]}
    (data / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    assert recall.measure(client, data, "lexical")["groups"]["all"]["recall@5"] == pytest.approx(2.5 / 3, abs=1e-4)


@pytest.mark.parametrize("name", ["conversations.jsonl", "queries.jsonl"])
def test_a_data_set_that_is_not_there_is_said_before_anything_is_written(
    service: Running, client: Client, data: Path, name: str
) -> None:
    (data / name).unlink()
    with pytest.raises(InvalidRequest, match=name):
        recall.measure(client, data, "lexical")
    assert sum(shard["turns_in_memory"] for shard in service.ok("GET", "/v1/admin/stats")["shards"]) == 0


class Heard(Client):
    """Keeps what it is asked: queries, and the kind of user of each append of one turn."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key)
        self.queries: list[str] = []
        self.appends: list[str] = []

    def search(self, body: Json) -> Json:
        self.queries.append(body["query"])
        return super().search(body)

    def append(self, user: str, session: str, turns: list[Json], wait: str = "durable") -> Json:
        if wait == "durable":
            self.appends.append(user.rpartition("-")[2])
        return super().append(user, session, turns, wait)


def test_a_second_run_asks_other_queries(service: Running) -> None:
    """So that the first run's vectors, which the service still holds, do not help it."""
    url = service.listen()
    with Heard(url, service.key) as first, Heard(url, service.key) as second:
        seeds = {latency.measure(client, turns=1, repeats=1)["seed"] for client in (first, second)}
    assert len(seeds) == 2
    assert set(first.queries) & set(second.queries) == {latency.CACHED_QUERY}


def test_appends_to_either_session_take_turns(service: Running) -> None:
    with Heard(service.listen(), service.key) as client:
        latency.measure(client, turns=1, repeats=3)
    assert client.appends == ["short", "long"] * 4


def test_latency_measures_each_kind(client: Client) -> None:
    measured = latency.measure(client, turns=120, repeats=3)
    assert {"text search", "append at 100 turns", "append at 120 turns"} <= set(measured["ms"])
    assert all(0 < times["p50"] <= times["p95"] for times in measured["ms"].values())
    assert measured["append_long_to_short"] > 0
    assert "append, long session to short" in latency.table(measured)
